package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// serviceManager does what systemd does with the descriptors that a service gives it
// to keep, and nothing else.
type serviceManager struct {
	s    *server
	conn *net.UnixConn

	mu     sync.Mutex // guards the rest
	has    map[string][]int
	faults []string
}

func newServiceManager(s *server) *serviceManager {
	s.t.Helper()
	m := &serviceManager{s: s, has: make(map[string][]int)}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path("notify"), Net: "unixgram"}); err != nil {
		s.t.Fatal(err)
	}
	var heard sync.WaitGroup
	heard.Go(m.hear)
	s.t.Cleanup(func() {
		m.conn.Close()
		heard.Wait()
		for name := range m.has {
			m.drop(name)
		}
		for _, f := range m.faults {
			s.t.Error(f)
		}
	})
	s.env = append(s.env, "NOTIFY_SOCKET="+s.path("notify"))
	return m
}

// drop closes what is kept by that name. m.mu is held.
func (m *serviceManager) drop(name string) {
	for _, fd := range m.has[name] {
		unix.Close(fd)
	}
	delete(m.has, name)
}

// hear does what it is told.
func (m *serviceManager) hear() {
	for b, oob := make([]byte, 4096), make([]byte, 1024); ; {
		n, oobn, _, _, err := m.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return // it was closed
		}
		m.mu.Lock()
		if err := m.obey(string(b[:n]), oob[:oobn]); err != nil {
			m.faults = append(m.faults, fmt.Sprintf("%q: %v", b[:n], err))
		}
		m.mu.Unlock()
	}
}

// obey does what one datagram says.
func (m *serviceManager) obey(text string, oob []byte) error {
	said := make(map[string]string)
	for line := range strings.SplitSeq(text, "\n") {
		k, v, _ := strings.Cut(line, "=")
		said[k] = v
	}
	var fds []int
	if len(oob) > 0 {
		cmsgs, err := unix.ParseSocketControlMessage(oob)
		if err != nil {
			return err
		}
		if fds, err = unix.ParseUnixRights(&cmsgs[0]); err != nil {
			return err
		}
	}
	name := said["FDNAME"]
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 127 || r == ':' }) || len(name) > 255 {
		return fmt.Errorf("%q is no name", name)
	}
	switch {
	case said["FDSTOREREMOVE"] == "1":
		m.drop(name)
	case said["FDSTORE"] == "1":
		if len(fds) != 1 || said["FDPOLL"] != "0" {
			return fmt.Errorf("%d descriptors", len(fds))
		}
		m.has[name] = append(m.has[name], fds...)
	case len(fds) > 0:
		return fmt.Errorf("%d descriptors", len(fds))
	}
	return nil
}

// names returns what is kept, in order.
func (m *serviceManager) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.has))
}

// awaitKept waits until these names are kept, each once.
func (m *serviceManager) awaitKept(want ...string) {
	m.s.t.Helper()
	slices.Sort(want)
	if !awaiting(5*time.Second, func() bool { return slices.Equal(m.names(), want) }) {
		m.s.t.Fatalf("%q are kept, and should be %q", m.names(), want)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, fds := range m.has {
		if len(fds) != 1 {
			m.s.t.Errorf("%d descriptors are kept as %s", len(fds), name)
		}
	}
}

// serve starts the supervisor with all that is kept.
func (m *serviceManager) serve(args ...string) {
	m.s.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	var files []*os.File
	for _, name := range slices.Sorted(maps.Keys(m.has)) {
		for _, fd := range m.has[name] {
			own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
			if err != nil {
				m.s.t.Fatal(err)
			}
			f := os.NewFile(uintptr(own), name)
			defer f.Close()
			names, files = append(names, name), append(files, f)
		}
	}
	m.s.start(func(c *exec.Cmd) {
		// The process has to be told its own number, which nobody knows before.
		c.Args = append([]string{"sh", "-c", `export LISTEN_PID=$$; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
		c.Env = append(c.Env, "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
		c.ExtraFiles = files
	}, args...)
}

// keptBy is what is kept of a server with these lanes.
func keptBy(lanes int, more ...string) []string {
	names := append([]string{"directory", "counters", "zone-counters"}, more...)
	for _, ap := range []netip.AddrPort{dns4, dns6, who4, who6} {
		address := strings.ReplaceAll(ap.String(), ":", "/")
		names = append(names, "tcp/0/"+address)
		for lane := range lanes {
			names = append(names, "udp/"+strconv.Itoa(lane)+"/"+address)
		}
	}
	return names
}

// What waits in the sockets survives the supervisor and all workers, with the
// counters, if the service manager keeps descriptors; and what it keeps is what there
// is to keep.
func TestKeptByServiceManager(t *testing.T) {
	more := `  - {name: more, address: ["127.0.0.1:5311"], service: identify, transport: [udp]}
`
	s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	m := newServiceManager(s)
	m.serve() // with nothing
	s.awaitReady()
	m.awaitKept(keptBy(2)...)

	s.write("dnsapp.yaml", settings{workers: 2, reload: upgradeReload, more: more}.yaml())
	s.reload()
	m.awaitKept(keptBy(2, "udp/0/127.0.0.1/5311", "udp/1/127.0.0.1/5311")...)
	s.write("dnsapp.yaml", settings{workers: 1, reload: upgradeReload}.yaml())
	s.reload()
	m.awaitKept(keptBy(1)...)
	s.write("dnsapp.yaml", settings{workers: 2, reload: upgradeReload}.yaml())
	s.reload()
	m.awaitKept(keptBy(2)...)

	for range 20 {
		ask(t, "udp", dns4, "h1.example.com.", dns.TypeA)
		ask(t, "tcp", dns6, "h1.example.com.", dns.TypeA)
	}
	s.ledger()
	before, epoch := metrics(t), s.epoch()
	s.cutPower()
	// Nobody serves, and nobody is refused.
	var waiting []net.Conn
	for i := range 40 {
		c, err := net.Dial([]string{"udp", "tcp"}[i%2], []netip.AddrPort{who4, who6}[i/2%2].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("who\n")); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, c)
	}
	m.serve()
	s.awaitReady()
	for i, c := range waiting {
		if err := c.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 512)); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
	if got := s.epoch(); got != epoch+1 {
		t.Errorf("epoch %d after %d", got, epoch)
	}
	fallen(t, "after the end of all processes", before)
	m.awaitKept(keptBy(2)...)

	// While workers are left it is they who have everything, and nothing piles up.
	var open []int
	for range 4 {
		s.killSupervisor()
		m.serve()
		s.awaitReady()
		m.awaitKept(keptBy(2)...)
		open = append(open, descriptors(t, s.cmd.Process.Pid))
	}
	if slices.Max(open[2:]) > slices.Max(open[:2])+2 {
		t.Errorf("descriptors after each start: %v", open)
	}

	// The next supervisor after an upgrade is not started with what is kept, and says
	// so all the same.
	s.ctl("upgrade", "--binary", s.next())
	s.ctl("upgrade", "--drain-old")
	m.awaitKept(keptBy(2)...)
	s.write("dnsapp.yaml", settings{workers: 2, reload: upgradeReload, more: more}.yaml())
	s.ctl("reload")
	m.awaitKept(keptBy(2, "udp/0/127.0.0.1/5311", "udp/1/127.0.0.1/5311")...)
	s.stopAll()
	m.awaitKept()
}

// What is kept, and is of no use, is closed, and the service starts.
func TestKeptOfNoUse(t *testing.T) {
	s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	m := newServiceManager(s)
	m.serve()
	s.awaitReady()
	m.awaitKept(keptBy(2)...)
	s.cutPower()
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dup := func(fd int) int {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		return own
	}
	name := func(ap netip.AddrPort) string { return "udp/0/" + strings.ReplaceAll(ap.String(), ":", "/") }
	m.mu.Lock()
	wrong := m.has[name(dns4)][0]
	m.drop("directory")
	m.drop(name(who4))
	m.has["directory"] = []int{null}
	m.has[name(who4)] = []int{dup(wrong)}                     // of another address
	m.has["nonsense"] = []int{dup(null)}                      // of another service
	m.has[name(dns6)] = append(m.has[name(dns6)], dup(null))  // twice
	m.has["tcp/0/127.0.0.1/1"] = []int{dup(null)}             // no socket
	m.has["udp/0/127.0.0.9/5312"] = []int{listenUDP(t, 5312)} // of a listener that is none any more
	m.mu.Unlock()
	m.serve()
	s.awaitReady()
	m.awaitKept(keptBy(2)...)
	for _, network := range []string{"udp", "tcp"} {
		for _, ap := range []netip.AddrPort{who4, who6} {
			for range 10 { // of each lane
				whoAnswers(t, network, ap.String())
			}
		}
	}
	if n := strings.Count(s.log(), "is of no use"); n < 4 {
		t.Errorf("the log names %d of them", n)
	}

	s.cutPower()
	m.serve("--fresh")
	s.awaitReady()
	m.awaitKept(keptBy(2)...)
	if got := s.epoch(); got != 1 {
		t.Errorf("epoch %d", got)
	}
	s.stopAll()
	m.awaitKept()
}

// listenUDP returns a descriptor of a socket at 127.0.0.9.
func listenUDP(t *testing.T, port int) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 9}, Port: port})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// Without anybody who keeps them the sockets go with the last process: the test above
// can fail.
func TestNotKeptWithoutServiceManager(t *testing.T) {
	s := start(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	s.cutPower()
	if _, err := net.Dial("tcp", who4.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
	s.serve() // which removes what is left
	s.awaitReady()
}
