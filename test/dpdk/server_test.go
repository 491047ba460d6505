package dpdk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/test/huge"
)

const (
	// startTimeout is how long a server may take until it serves, and commandTimeout
	// a command.
	startTimeout   = 60 * time.Second
	commandTimeout = 60 * time.Second
	// pages is how many hugepages of 2 MB a server takes.
	pages = 48
)

// The addresses of both ends.
var (
	server4, server6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	dns4, dns6       = netip.AddrPortFrom(server4, 53), netip.AddrPortFrom(server6, 53)
	who4, who6       = netip.AddrPortFrom(server4, 5399), netip.AddrPortFrom(server6, 5399)
)

const clients4, clients6 = "192.0.2.9/24", "2001:db8::9/64"

// server is a running dnsapp on a tap.
type server struct {
	t      *testing.T
	dir    string
	tap    string
	config string // text of the configuration, %s for what a test adds
	cmd    *exec.Cmd
	client *primary.Client
}

// start starts a server with so many workers, and waits until it serves. more is
// added to its configuration.
func start(t *testing.T, workers int, more string) *server {
	t.Helper()
	return startWith(t, workers, "", more, func(s *server) {
		s.plug()
		s.reachable()
	})
}

// startWith is start with more keys of the device, and another client, which plug makes.
func startWith(t *testing.T, workers int, device, more string, plug func(*server)) *server {
	t.Helper()
	if suite.skipped != "" {
		t.Skip("SKIPPED: " + suite.skipped)
	}
	s := &server{t: t, dir: t.TempDir(), tap: fmt.Sprintf("dt%d", os.Getpid()%100000)}
	pages := huge.Pages(t, pages)
	s.write("example.zone", zone())
	s.config = fmt.Sprintf(`control: %[1]s/control.sock
state_dir: %[1]s/state
admin: off
datapath: dpdk
workers: %[2]d
dns: {max_udp_size: 4096}
expose_generation: true
reload: {udp_idle: 2s, shutdown_timeout: 20s}
dpdk:
  mbufs: 8191
  memory: 40
  max_workers: 2
  hugepages: %[3]s
  file_prefix: %[4]s
  devices:
    - {name: wan, device: "net_tap0,iface=%[4]s", queues: 2, addresses: ["192.0.2.1/24", "2001:db8::1/64"]%[5]s}
zones: [{name: example.com, file: example.zone}]
listeners:
  - {name: dns, address: ["0.0.0.0:53", "[::]:53"], service: dns}
  - {name: who, address: ["192.0.2.1:5399", "[2001:db8::1]:5399"], service: identify}
`, s.dir, workers, pages, s.tap, device)
	s.write("dnsapp.yaml", s.config+more)
	s.client = primary.NewClient(s.dir)
	t.Cleanup(s.cleanUp)
	s.serve()
	s.until(startTimeout, "the server serves", func() bool {
		st, ok := s.tryStatus()
		return ok && st.Step == control.StepSteady && len(st.Generations) == 1 && st.Generations[0].RxOwner
	})
	plug(s)
	return s
}

// zone has an answer of some 4 KB.
func zone() string {
	var b strings.Builder
	b.WriteString("$ORIGIN example.com.\n$TTL 300\n@ SOA ns1 host 1 3600 600 86400 300\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.80\nwww AAAA 2001:db8::80\n")
	for i := range 250 {
		fmt.Fprintf(&b, "big A 10.0.0.%d\n", i)
	}
	return b.String()
}

func (s *server) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// serve starts a supervisor.
func (s *server) serve(args ...string) {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(suite.bin, "dnsapp"), append([]string{"serve", "-c", filepath.Join(s.dir, "dnsapp.yaml")}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func(c *exec.Cmd) { _ = c.Wait() }(s.cmd)
}

// plug gives the kernel's side of the tap its addresses.
func (s *server) plug() {
	s.t.Helper()
	for _, args := range [][]string{
		{"link", "set", s.tap, "address", "02:00:00:00:00:09"}, // else both ends have the same one
		{"addr", "add", clients4, "dev", s.tap},
		{"addr", "add", clients6, "dev", s.tap, "nodad"},
		{"link", "set", s.tap, "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			s.t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
}

// reachable waits until the kernel has found the server: what it sends before is lost
// or late.
func (s *server) reachable() {
	s.t.Helper()
	for _, at := range []netip.AddrPort{who4, who6} {
		s.until(startTimeout, fmt.Sprintf("%v answers", at), func() bool {
			_, err := ask(at, 200*time.Millisecond)
			return err == nil
		})
	}
}

// ask asks identify once.
func ask(at netip.AddrPort, patience time.Duration) ([]byte, error) {
	c, err := net.Dial("udp", at.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if _, err := c.Write([]byte("who")); err != nil {
		return nil, err
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 1500)
	n, err := c.Read(b)
	return b[:n], err
}

// cleanUp ends everything. What is left is a failure.
func (s *server) cleanUp() {
	if _, ok := s.tryStatus(); ok {
		s.ctl("stop", "--fast")
	}
	s.until(commandTimeout, "no worker is left", func() bool {
		st, err := s.client.Status(context.Background())
		return err != nil || len(st.Secondaries) == 0
	})
	if st, err := s.client.Status(context.Background()); err == nil {
		s.ledger(st)
		if _, err := s.client.End(context.Background(), primary.StopRequest{}); err != nil {
			s.t.Error(err)
			_ = syscall.Kill(st.PID, syscall.SIGKILL)
		}
	}
	if s.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		s.t.Logf("the log:\n%s", log)
	}
}

// tryCtl runs a command of dnsappctl.
func (s *server) tryCtl(args ...string) (stdout, stderr []byte, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(suite.bin, "dnsappctl"), append([]string{"--control", filepath.Join(s.dir, "control.sock")}, args...)...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run() // the code says it
	return out.Bytes(), errs.Bytes(), c.ProcessState.ExitCode()
}

// ctl is tryCtl for what must succeed.
func (s *server) ctl(args ...string) []byte {
	s.t.Helper()
	out, errs, code := s.tryCtl(args...)
	if code != 0 {
		s.t.Fatalf("dnsappctl %v: code %d\n%s%s", args, code, out, errs)
	}
	return out
}

func (s *server) tryStatus() (st control.Status, ok bool) {
	s.t.Helper()
	out, _, code := s.tryCtl("status", "-o", "json")
	return st, code == 0 && json.Unmarshal(out, &st) == nil
}

func (s *server) status() control.Status {
	s.t.Helper()
	st, ok := s.tryStatus()
	if !ok {
		s.t.Fatal("there is no status")
	}
	return st
}

// owner is the generation that owns the wire.
func (s *server) owner() control.Generation {
	s.t.Helper()
	for _, g := range s.status().Generations {
		if g.RxOwner {
			return g
		}
	}
	s.t.Fatal("nobody owns the wire")
	return control.Generation{}
}

// until waits for what cannot be waited for otherwise.
func (s *server) until(limit time.Duration, what string, done func() bool) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !done(); <-tick.C {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			s.t.Fatalf("it never was that %s; the log:\n%s", what, log)
		}
	}
}

// pool is where the packet buffers are now.
func (s *server) pool() *primary.Status {
	s.t.Helper()
	st, err := s.client.Status(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.ledger(st)
	return st
}

// ledger checks that all packet buffers are accounted for.
func (s *server) ledger(st *primary.Status) {
	s.t.Helper()
	p := st.Pool
	if p == nil {
		s.t.Error("there was no instant at which the buffers could be counted")
		return
	}
	n := p.Free + p.Rings + p.Primary + p.Rx + p.Tx + p.Astray
	for _, w := range st.Secondaries {
		n += w.Mbufs
	}
	if n != p.Size || p.Duplicate != 0 || p.Astray != 0 {
		s.t.Errorf("the buffers do not add up: %+v, %+v", p, st.Secondaries)
	}
}
