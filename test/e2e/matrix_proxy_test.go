package e2e

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/load"
)

// The rows of the crash matrix for flows of a UDP proxy. A flow's answer says by
// which port of the proxy it came, and the port, whose process has the flow.

// proxyMoments are the columns.
var proxyMoments = []moment{atSteady, atT1, atParked, atFlip, atT4}

// proxySmoke names the cells of the short form.
var proxySmoke = []string{"owner/SIGKILL/steady", "draining/SIGKILL/T2 flipped", "new/SIGSTOP/T2 parked"}

// proxyLonger is how much longer than in the matrix somebody may wait: the server
// behind the proxy is a goroutine of the test, and a killed worker's flows begin
// anew, with sockets of the next process.
const proxyLonger = 20 * time.Millisecond

// ways is a protocol whose tags are the ways that answers have come: the proxy's
// port towards the server as Lane, the server as Worker.
type ways struct {
	*pinned
	owners map[int]int // process by port; of later ports it is not known
}

func (w *ways) Check(answer []byte, flow int, seq uint32) (load.Tag, error) {
	if _, err := w.pinned.Check(answer, flow, seq); err != nil {
		return load.Tag{}, err
	}
	return load.Tag{Lane: int(binary.BigEndian.Uint16(answer[pinnedSize+1:])), Worker: int(answer[pinnedSize])}, nil
}

// identify puts the process that has the port into a tag.
func (w *ways) identify(t load.Tag) load.Tag {
	t.PID = w.owners[t.Lane]
	return t
}

// portOwners returns which process of s has which port towards a server of the
// tests.
func (s *server) portOwners() map[int]int {
	s.t.Helper()
	ports := udpPorts(s.t)
	owners := map[int]int{}
	for _, pid := range s.processes() {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		list, err := os.ReadDir(dir)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, fd := range list {
			link, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if err != nil {
				continue // it was closed
			}
			if port, ok := ports[link]; ok {
				owners[port] = pid
			}
		}
	}
	return owners
}

// udpPorts returns the ports of the sockets connected to a server of the tests, by
// what /proc/PID/fd calls them.
func udpPorts(t *testing.T) map[string]int {
	t.Helper()
	const inode, local, remote = 9, 1, 2
	b, err := os.ReadFile("/proc/net/udp")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]int{}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) <= inode || !strings.Contains(f[remote], ":232") { // 9000 and so on
			continue
		}
		_, hex, _ := strings.Cut(f[local], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			t.Fatalf("/proc/net/udp: %q: %v", line, err)
		}
		m["socket:["+f[inode]+"]"] = int(port)
	}
	return m
}

// newProxyCrash is newCrash for flows of a proxy. The queries are flows of one
// datagram each, whose second answers come late and are for nobody.
func newProxyCrash(t *testing.T, c cell, reload string) *crash {
	t.Helper()
	const oneShot = 20000 // more than there is time for
	config := proxied(reload, 0, 1)
	config.workers, config.lanes = 2, 1
	// A second answer must not be later than the tenth of the quarantine for which a
	// port rests that has had its answer, however long the machine stalls.
	config.more = strings.Replace(config.more, "responses: 1,", "responses: 1, quarantine: 10s,", 1)
	x := startCrash(t, c, config)
	x.away = func() int64 {
		m := metrics(t)
		late := m["dnsapp_proxy_datagrams_late_total"]
		if late == 0 {
			x.complain("no answer came late: that it reaches nobody was not seen")
		}
		return int64(m["dnsapp_proxy_datagrams_out_total"] - (m["dnsapp_proxy_datagrams_in_total"] - late))
	}
	track := func(name string) {
		const flows = 16
		w := &ways{pinned: newPinned(flows)}
		x.record(name, load.UDPConfig{Targets: []netip.AddrPort{long4, long6}, Flows: flows, Rate: 250, Protocol: w})
		awaitAnswers(t, x.flows[name].UDP, 3*flows)
		w.owners = x.portOwners()
	}
	track("old flows")
	x.ctl("reload", "--wait", "commit")
	track("flows")
	queries := newPinned(oneShot)
	queries.twice = pinnedTwice
	x.record("queries", load.UDPConfig{Targets: []netip.AddrPort{short4}, Flows: oneShot, Rate: 500, Once: true, Protocol: queries})
	awaitAnswers(t, x.flows["queries"].UDP, 100)
	return x
}

// newPorts returns of how many flows the port has changed.
func (x *crash) newPorts() (moved, all int) {
	for _, name := range []string{"old flows", "flows"} {
		for _, flow := range x.flows[name].answers() {
			all++
			if len(flow) > 0 && slices.ContainsFunc(flow, func(q request) bool { return q.by != flow[0].by }) {
				moved++
			}
		}
	}
	return moved, all
}

func startEchoes(t *testing.T) {
	t.Helper()
	startEcho(t, 0)
	startEcho(t, 1)
}

// TestProxyCrashMatrix runs every cell with -soak, else a few of them. It logs the
// table of docs/udp-proxy.md.
func TestProxyCrashMatrix(t *testing.T) {
	waits := make(map[string]time.Duration)
	for _, c := range matrix() {
		if !slices.Contains(proxyMoments, c.when) || !slices.Contains(proxySmoke, c.String()) && !*soak {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			startEchoes(t)
			c.limit += proxyLonger
			waits[c.String()] = inTime(t, c.limit, func() *crash {
				x := newProxyCrash(t, c, matrixReload)
				x.run()
				moved, all := x.newPorts()
				t.Logf("%d of %d flows have another port", moved, all)
				return x
			})
		})
	}
	t.Logf("longest waits in ms\n%s", table(waits))
	if *soak { // TestProxyRestartMoves shows as much
		t.Run("mode restart fails", restartFailsProxied)
	}
}

// restartFailsProxied sees to it that the rows see what the plain way to reload
// does to flows of a proxy, without any fault.
func restartFailsProxied(t *testing.T) {
	startEchoes(t)
	x := newProxyCrash(t, cell{report: control.OutcomeCommitted}, "{udp_idle: 30s, mode: restart}")
	x.spared = true
	x.begin()
	x.awaitReport(x.startReload())
	x.finish()
	moved, all := x.newPorts()
	t.Logf("%d of %d flows have another port; %d complaints, the first: %v", moved, all, len(x.wrong), append(x.wrong, nil)[0])
	if len(x.wrong) == 0 || moved == 0 {
		t.Error("a restart kept every flow: the rows do not see what they are there to see")
	}
}
