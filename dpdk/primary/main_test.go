//go:build dpdk

package primary

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/netns"
)

// The test binary is the primary and the secondaries, too. It runs in a network
// namespace of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		if err := child(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[1]+": "+err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	code, inside, err := netns.Enter()
	switch {
	case errors.Is(err, netns.ErrNotRoot):
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case !inside:
		os.Exit(code)
	}
	os.Exit(m.Run())
}

const (
	limit = 60 * time.Second // for anything that a machine under load may take
	// wantedPages is how many hugepages of 2 MB the tests need at once.
	wantedPages = 64
)

// bench is one primary and its secondaries.
type bench struct {
	*Client
	*State
	dir string
	t   *testing.T
}

// spec is a small Spec with these devices.
func spec(t *testing.T, huge string, devices ...string) Spec {
	s := Spec{
		Mbufs: 4095, MbufSize: 2048, MaxWorkers: 2, RingSize: 256, Memory: 24, Hugepages: huge,
		FilePrefix: "dnsapp-test-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")),
	}
	for i, d := range devices {
		s.Devices = append(s.Devices, Device{Name: "d" + strconv.Itoa(i), Device: d, Queues: 1, Descriptors: 256, MTU: 1500})
	}
	return s
}

// newBench starts a primary, which t stops and whose pool t checks at the end.
func newBench(t *testing.T, s Spec) *bench {
	t.Helper()
	dir := t.TempDir()
	state, reused, err := Ensure(within(t), Order{Dir: dir, Spec: s}, "primary")
	if err != nil || reused {
		t.Fatalf("reused %v, %v", reused, err)
	}
	b := &bench{NewClient(dir), state, dir, t}
	t.Cleanup(func() {
		if now, err := ReadState(dir); err == nil && now.Alive() { // the test may have killed it
			b.State = now
			b.end()
		}
	})
	return b
}

// end stops the primary: nothing of it is left.
func (b *bench) end() {
	b.t.Helper()
	until(b.t, "no secondary is left", func() bool {
		s, err := b.Status(context.Background())
		return err != nil || len(s.Secondaries) == 0
	})
	if err := b.Stop(context.Background(), StopRequest{}); err != nil { // the context of t has ended
		b.t.Error(err)
		_ = unix.Kill(b.PID, unix.SIGKILL)
	}
	until(b.t, "the primary ends", func() bool { return !b.Alive() })
	if left, _ := filepath.Glob(filepath.Join(b.Spec.Hugepages, b.Prefix+"*")); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
	if left, _ := filepath.Glob("/var/run/dpdk/" + b.Prefix); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// until waits for what cannot be waited for otherwise.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(limit); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("it never was that %s", what)
		}
	}
}

// mate is a secondary.
type mate struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	lease *Lease
	t     *testing.T
	gone  bool
}

// spawn starts a process that becomes a secondary once it has a job.
func (b *bench) spawn() *mate {
	b.t.Helper()
	m := &mate{cmd: exec.Command("/proc/self/exe", "secondary"), t: b.t}
	m.cmd.Stderr = os.Stderr
	var err error
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	m.out = bufio.NewReader(out)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(m.kill)
	return m
}

// start starts a secondary with a lease, at work in its role.
func (b *bench) start(slot, worker int, role string, peer int) *mate {
	b.t.Helper()
	m := b.spawn()
	var err error
	until(b.t, "the worker before is swept", func() bool {
		m.lease, err = b.Lease(within(b.t), LeaseRequest{PID: m.cmd.Process.Pid, Slot: slot, Worker: worker})
		return err == nil || !strings.Contains(err.Error(), "ask again") && !strings.Contains(err.Error(), "which lives")
	})
	if err != nil {
		b.t.Fatal(err)
	}
	line, err := json.Marshal(job{*m.lease, role, peer})
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := m.in.Write(append(line, '\n')); err != nil {
		b.t.Fatal(err)
	}
	if word, err := m.out.ReadString('\n'); err != nil || word != "attached\n" {
		b.t.Fatalf("a secondary says %q, %v", word, err)
	}
	return m
}

// tally asks what m has done.
func (m *mate) tally() (c tally) {
	m.t.Helper()
	if _, err := m.in.Write([]byte("\n")); err != nil {
		m.t.Fatal(err)
	}
	line, err := m.out.ReadBytes('\n')
	if err != nil {
		m.t.Fatal(err)
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &c); err != nil {
		m.t.Fatal(err)
	}
	return c
}

// moves waits until m has moved n more packets.
func (m *mate) moves(n uint64) {
	m.t.Helper()
	from := m.tally().Moved
	until(m.t, fmt.Sprintf("%d packets are moved after %d", n, from), func() bool { return m.tally().Moved >= from+n })
}

// finish has m end its work, free what it has, and exit.
func (m *mate) finish() {
	m.t.Helper()
	m.in.Close()
	if err := m.cmd.Wait(); err != nil {
		m.t.Error(err)
	}
	m.gone = true
}

func (m *mate) kill() {
	if !m.gone {
		m.gone = true
		_ = m.cmd.Process.Kill() // an error: it has ended
		_ = m.cmd.Wait()
	}
}

// swept waits until nobody has a lease, and returns the pool.
func (b *bench) swept() *Status {
	b.t.Helper()
	var s *Status
	until(b.t, "no secondary is left", func() bool {
		var err error
		if s, err = b.Status(within(b.t)); err != nil {
			b.t.Fatal(err)
		}
		return len(s.Secondaries) == 0
	})
	b.sound(s)
	return s
}

// sound checks that the pool adds up.
func (b *bench) sound(s *Status) {
	b.t.Helper()
	p := s.Pool
	if p == nil {
		b.t.Fatal("the pool was in use at every look")
	}
	n := p.Free + p.Rings + p.Primary + p.Rx + p.Tx + p.Astray
	for _, m := range s.Secondaries {
		n += m.Mbufs
	}
	if n != p.Size || p.Duplicate != 0 {
		b.t.Fatalf("the pool does not add up: %+v, %+v", p, s.Secondaries)
	}
}
