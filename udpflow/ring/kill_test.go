package ring

import (
	"bufio"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/shm"
)

// childEnv makes a test binary started with it run as one end of the ring in the
// region at descriptor 3; firstEnv is the number of the first record to push.
const (
	childEnv = "DNSAPP_RING_TEST_CHILD"
	firstEnv = "DNSAPP_RING_TEST_FIRST"
)

func TestMain(m *testing.M) {
	run, ok := map[string]func(*Rings){"lane": childLane, "worker": childWorker}[os.Getenv(childEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	region, err := shm.Map(3)
	if err != nil {
		panic(err)
	}
	r, err := Attach(region)
	if err != nil {
		panic(err)
	}
	run(r)
}

// sizeOf is the payload of the record with this number.
func sizeOf(seq int) int { return seq * 37 % 1200 }

// unwrap returns a record's number, of which it carries 16 bits, near the expected one.
func unwrap(segment uint16, expected int) int {
	return expected + int(int16(segment-uint16(expected)))
}

// childLane pushes numbered records for ever, a few to a publication.
func childLane(r *Rings) {
	seq, err := strconv.Atoi(os.Getenv(firstEnv))
	if err != nil {
		panic(err)
	}
	for p := r.Producer(0, 0); ; {
		for range rand.IntN(5) {
			if !push(p, seq, sizeOf(seq)) {
				break
			}
			seq++
		}
		p.Publish()
		runtime.Gosched()
	}
}

// childWorker reads records for ever and reports each by its number on standard
// output, before it is released.
func childWorker(r *Rings) {
	c := r.Consumer(0, 0)
	var pkt burst.Packet
	var m Meta
	for {
		out := []byte(nil)
		for upTo := c.Tail(); len(out) < 64 && c.Next(upTo, &pkt, &m); {
			out = binary.LittleEndian.AppendUint16(out, m.Segment)
		}
		if c.Damaged() != 0 {
			panic("damage")
		}
		if len(out) > 0 {
			if _, err := os.Stdout.Write(out); err != nil {
				panic(err)
			}
		}
		c.Release()
		runtime.Gosched()
	}
}

// sharedRings returns one ring in a region that a child can map.
func sharedRings(t *testing.T) (*Rings, *shm.Region) {
	t.Helper()
	region, err := shm.Create("ring-test", RegionSize(1, 1, 16<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { region.Close() })
	r, err := Format(region, 1, 1, 16<<10)
	if err != nil {
		t.Fatal(err)
	}
	return r, region
}

// startChild starts this test binary as an end of the ring.
func startChild(t *testing.T, region *shm.Region, name string, stdout io.Writer, first int) *exec.Cmd {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(region.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "region")
	defer f.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe)
	c.Env = append(os.Environ(), childEnv+"="+name, firstEnv+"="+strconv.Itoa(first))
	c.ExtraFiles = []*os.File{f}
	c.Stdout, c.Stderr = stdout, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// kill ends c by SIGKILL; any other end fails t.
func kill(t *testing.T, c *exec.Cmd) {
	t.Helper()
	c.Process.Signal(os.Kill)
	c.Wait()
	if ws, ok := c.ProcessState.Sys().(interface{ Signaled() bool }); !ok || !ws.Signaled() {
		t.Fatalf("the child ended by itself: %v", c.ProcessState)
	}
}

// A lane killed at any instant leaves only whole records, in order; its successor goes
// on behind them.
func TestLaneKilledAnywhere(t *testing.T) {
	r, region := sharedRings(t)
	c := r.Consumer(0, 0)
	var pkt burst.Packet
	var m Meta
	next := 0
	for range 8 {
		child := startChild(t, region, "lane", nil, next)
		until := next + 1 + rand.IntN(2_000)
		deadline := time.Now().Add(time.Minute)
		read := func() bool {
			if !c.Next(c.Tail(), &pkt, &m) {
				return false
			}
			check(t, next, sizeOf(next), &pkt, m)
			c.Release()
			next++
			return true
		}
		for next < until {
			if !read() {
				if time.Now().After(deadline) {
					t.Fatal("the child makes no progress")
				}
				runtime.Gosched()
			}
		}
		kill(t, child)
		for read() {
		}
		if c.Damaged() != 0 {
			t.Fatal("damage")
		}
	}
}

// A worker killed at any instant loses nothing: its successor, or the lane that takes
// the records back, begins with what it had not released.
func TestWorkerKilledAnywhere(t *testing.T) {
	r, region := sharedRings(t)
	p := r.Producer(0, 0)
	pushed, next := 0, 0 // next: the first record of which nobody has reported
	for round := range 10 {
		pr, pw, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		child := startChild(t, region, "worker", pw, 0)
		pw.Close()
		first := next
		until := pushed + 1 + rand.IntN(2_000)
		for deadline := time.Now().Add(time.Minute); pushed < until; {
			if push(p, pushed, sizeOf(pushed)) {
				pushed++
			} else if time.Now().After(deadline) {
				t.Fatal("the child makes no progress")
			}
			p.Publish()
		}
		kill(t, child)
		begun := false
		for in := bufio.NewReader(pr); ; {
			var b [2]byte
			if _, err := io.ReadFull(in, b[:]); err != nil {
				break // also in the middle of a report: it was killed
			}
			seq := unwrap(binary.LittleEndian.Uint16(b[:]), next)
			if seq != next && (begun || seq > first || seq < first-64) {
				t.Fatalf("round %d: record %d follows %d", round, seq, next-1)
			}
			next, begun = seq+1, true
		}
		pr.Close()
		if round%5 != 4 {
			continue
		}
		c := p.TakeBack()
		var pkt burst.Packet
		var m Meta
		begun = false
		for c.Next(c.Tail(), &pkt, &m) {
			seq := unwrap(m.Segment, next)
			if seq != next && (begun || seq > next || seq < next-64) {
				t.Fatalf("round %d: record %d is taken back after %d", round, seq, next-1)
			}
			check(t, seq, sizeOf(seq), &pkt, m)
			next, begun = seq+1, true
		}
		c.Release()
		if next != pushed || c.Damaged() != 0 {
			t.Fatalf("round %d: %d of %d records, damage %d", round, next, pushed, c.Damaged())
		}
	}
}
