package e2e

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/test/load"
)

// trouble is a reload that meets with something else than the death of a process.
type trouble struct {
	name   string
	limit  time.Duration
	report control.Outcome
	says   string // in the reason of the report
	smoke  bool

	// prepare is called before the reload, and may hold its processes.
	prepare func(x *crash)
}

var troubles = []trouble{
	{
		name: "late READY", limit: noOutage, report: control.OutcomeCommitted,
		prepare: func(x *crash) {
			x.h.at("ready", func(at *held) { time.AfterFunc(time.Second, at.release) })
		},
	},
	{
		name: "no READY", limit: noOutage, report: control.OutcomeAborted, says: "were not ready in time",
		prepare: func(x *crash) {
			x.h.at("ready", func(*held) {}) // it waits until it is killed
		},
	},
	{
		// A lane that has answered, and then neither stops reading nor goes on:
		// the park lapses, and its process is killed before the next one.
		name: "no park ack", limit: afterStop + afterLongPark, report: control.OutcomeCommitted,
		prepare: func(x *crash) {
			pid := x.flows["flows"].servers()[0]
			x.spared, x.target = false, &os.Process{Pid: pid}
			x.h.at("ack", func(at *held) {
				if at.pid != pid {
					at.release()
				}
			})
		},
	},
	{
		// Each park lapses, and what has waited is served before the next one.
		name: "late park acks", limit: 3 * directory.Lease, report: control.OutcomeAborted,
		says: fmt.Sprintf("%d parks lapsed", reload.MaxRetries+1),
		prepare: func(x *crash) {
			pid := x.flows["flows"].servers()[0]
			x.h.at("ack", func(at *held) {
				if at.pid == pid {
					time.AfterFunc(directory.Lease*6/5, at.release)
					return
				}
				at.release()
			})
		},
	},
	{
		name: "config error", limit: noOutage, report: control.OutcomeRefused, says: "dnsapp.yaml",
		prepare: func(x *crash) { x.write("dnsapp.yaml", "nonsense: 1\n") },
	},
	{
		name: "bind error", limit: noOutage, report: control.OutcomeRefused, says: "127.0.0.1:5312",
		prepare: func(x *crash) {
			taken, err := net.ListenPacket("udp", "127.0.0.1:5312")
			if err != nil {
				x.t.Fatal(err)
			}
			x.t.Cleanup(func() { taken.Close() })
			x.write("dnsapp.yaml", matrixSettings("  - {name: taken, address: [\"127.0.0.1:5312\"], service: identify}\n").yaml())
		},
	},
	{
		name: "layout mismatch", limit: noOutage, report: control.OutcomeAborted, says: "exit status", smoke: true,
		prepare: func(x *crash) {
			caught := x.h.catch("attach")
			go func() {
				at := <-caught
				defer at.release()
				if err := spoilNewestTable(at.pid); err != nil {
					x.t.Error(err)
				}
			}()
		},
	},
}

// matrixSettings is the configuration of the matrix, with more listeners.
func matrixSettings(more string) settings {
	return settings{workers: 2, reload: matrixReload, more: keptListener + more}
}

// spoilNewestTable has the flow table of a worker's own generation say that it
// has another layout. The worker has not looked at it yet.
func spoilNewestTable(pid int) error {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	newest, name := "", ""
	for _, link := range links {
		to, err := os.Readlink(link)
		if rest, ok := strings.CutPrefix(to, "/memfd:dnsapp:flows:"); err == nil && ok && rest > name {
			newest, name = link, rest
		}
	}
	f, err := os.OpenFile(newest, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening the newest flow table: %w", err)
	}
	defer f.Close()
	const layoutOffset = 12 // behind magic and kind
	_, err = f.WriteAt(binary.NativeEndian.AppendUint32(nil, 0xbad), layoutOffset)
	return err
}

// TestTroubledReload runs every trouble with -soak, else a few of them.
func TestTroubledReload(t *testing.T) {
	for _, tr := range troubles {
		if !tr.smoke && !*soak {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			inTime(t, tr.limit, func() *crash {
				x := newCrash(t, cell{report: tr.report}, matrixReload)
				x.spared = true
				good := matrixSettings("").yaml()
				tr.prepare(x)
				x.begin()
				r := x.startReload()
				x.awaitReport(r)
				if tr.report != control.OutcomeCommitted && !strings.Contains(r.report.Reason, tr.says) {
					t.Errorf("the reload ended with %q, which does not say %q", r.report.Reason, tr.says)
				}
				x.h.letAllPass()
				x.write("dnsapp.yaml", good)
				x.finish()
				return x
			})
		})
	}
}

// What a forward ring has no room for is dropped, and counted. Nobody else waits
// for the process that does not empty it, and what lies in it is served when that
// is given up.
func TestForwardRingFull(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 10s, heartbeat_timeout: 2s}"}.yaml(), zoneFiles())
	first := s.epoch()
	flood, err := load.StartUDP(load.UDPConfig{
		Targets: []netip.AddrPort{who4, who6}, Flows: 8, Rate: 4000, Sources: []netip.Prefix{clients6}, Protocol: padded{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(flood.Close)
	awaitAnswers(t, flood, 1000)
	served := map[int]uint64{}
	for tag, n := range flood.Report().Tags {
		served[tag.PID] += n
	}
	busiest := slices.MaxFunc(slices.Collect(maps.Keys(served)), func(a, b int) int { return cmp.Compare(served[a], served[b]) })
	p := startProbe(t)
	s.ctl("reload", "--wait", "commit")

	kill(t, busiest, syscall.SIGSTOP)
	const full = "ring_full"
	s.await(20*time.Second, "a ring is full", func() bool { return s.status().Ledger.Dropped[full] > 0 })
	s.await(20*time.Second, "the stopped worker is given up", func() bool { return !slices.Contains(s.processes(), busiest) })
	awaitAnswers(t, flood, 1000)
	report, others := flood.Stop(time.Second), p.dns.Stop(time.Second)
	t.Logf("flood: %v", report)
	t.Logf("others: %v", others)
	if err := others.Exact(); err != nil {
		t.Error(err)
	}
	if others.Astray(first) == 0 {
		t.Errorf("answers by epoch: %v; the reload did not take place", others.Epochs())
	}
	report.Add(p.who.Stop(time.Second)) // the same rings carry these flows
	l := s.status().Ledger
	inHand := l.RingTaken - l.RingServed // the burst that it had when it was stopped
	if dropped := l.Dropped[full]; report.Lost() < dropped || report.Lost() > dropped+inHand || inHand > 64 {
		t.Errorf("%d were lost, %d were dropped and %d in hand: %+v", report.Lost(), dropped, inHand, l)
	}
}

// padded is identify with large requests: few of them fill a ring.
type padded struct{ load.Identify }

func (p padded) AppendRequest(b []byte, flow int, seq uint32) []byte {
	return append(p.Identify.AppendRequest(b, flow, seq), make([]byte, 1300)...)
}

// A full flow table keeps the flows that it has; others are served all the same. A
// reload may move those, and loses nothing.
func TestFlowTableFull(t *testing.T) {
	const flows, rate = 900, 2000 // of each of two groups, for 1024 slots
	s := start(t, settings{workers: 2, reload: "{udp_idle: 2s, flow_table: 1024}"}.yaml(), zoneFiles())
	first := s.epoch()
	early := identify(t, flows, rate)
	awaitAnswers(t, early, 4*flows)
	late := identify(t, flows, rate)
	notRecorded := func() float64 { return metrics(t)["dnsapp_flows_not_recorded_total"] }
	s.await(20*time.Second, "the table is full", func() bool { return notRecorded() > flows/4 })
	r := s.startReload()
	r.awaitCommit()
	awaitAnswers(t, late, 2*flows)
	a, b := early.Stop(time.Second), late.Stop(time.Second)
	t.Logf("early: %v", a)
	t.Logf("late: %v; %v datagrams without an entry", b, notRecorded())
	for _, report := range []load.Report{a, b} {
		if err := report.Exact(); err != nil {
			t.Error(err)
		}
	}
	if moved := a.Astray(first); moved > a.Answered/10 {
		t.Errorf("%d answers to flows that had an entry are of another generation: %v", moved, a.Epochs())
	}
	if b.Astray(first) == 0 {
		t.Errorf("no flow without an entry was moved: %v; the table was not full", b.Epochs())
	}
	if l := s.ledger(); l.Received != a.Sent+b.Sent || sum(l.Dropped)+sum(l.RingDropped)+l.KernelDropped != 0 {
		t.Errorf("%d were sent; ledger %+v", a.Sent+b.Sent, l)
	}
	r.wait()
}
