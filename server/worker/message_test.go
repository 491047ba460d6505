package worker

import (
	"errors"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// links returns both ends of a control socket.
func links(t testing.TB) (here, there *Link) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Link
	for i, fd := range pair {
		if ends[i], err = NewLink(fd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

// memfd returns a file in memory, open in this process.
func memfd(t testing.TB, name, content string) int {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.Pwrite(fd, []byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return fd
}

// descriptors counts the open descriptors of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Messages arrive as they were sent, one by one, each with its own descriptors,
// which no child gets by accident.
func TestLink(t *testing.T) {
	here, there := links(t)
	a, b := memfd(t, "a", ""), memfd(t, "b", "")
	many := make([]int, MaxFDs)
	for i := range many {
		many[i] = a
	}
	for _, c := range []struct {
		m   Message
		fds []int
	}{
		{Message{Op: OpReady}, nil},
		{Message{Op: OpWindow, Producer: 3}, []int{b}},
		{Message{Op: OpRelease, Window: 1<<32 - 1}, nil},
		{Message{Op: OpWakes, Producer: 1}, many},
		{Message{Op: OpRegions, IDs: slices.Repeat([]uint64{1<<64 - 1}, MaxFDs)}, many},
		{Message{Op: OpZones, Version: 1<<64 - 1}, []int{a}},
		{Message{Op: OpQuit}, []int{a, b}},
	} {
		before := descriptors(t)
		if err := here.Send(c.m, c.fds...); err != nil {
			t.Fatal(err)
		}
		m, fds, err := there.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(m, c.m) || len(fds) != len(c.fds) {
			t.Errorf("%+v with %d descriptors became %+v with %d", c.m, len(c.fds), m, len(fds))
		}
		for i, fd := range fds {
			if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || f&unix.FD_CLOEXEC == 0 {
				t.Errorf("flags of descriptor %d: %#x, %v", i, f, err)
			}
			var sent, got unix.Stat_t
			if err := errors.Join(unix.Fstat(c.fds[i], &sent), unix.Fstat(fd, &got)); err != nil || sent.Ino != got.Ino {
				t.Errorf("descriptor %d is another file: %v", i, err)
			}
		}
		closeAll(fds)
		if n := descriptors(t); n != before {
			t.Errorf("%d descriptors before, %d after", before, n)
		}
	}
}

// The eventfds of a window come first, as many messages as they take.
func TestSendWindow(t *testing.T) {
	here, there := links(t)
	rings := []int{memfd(t, "from", ""), memfd(t, "table", ""), memfd(t, "to", "")}
	want := []uint64{inode(t, rings[0]), inode(t, rings[1]), inode(t, rings[2])}
	for _, n := range []int{0, 1, MaxFDs, MaxFDs + 1, 256} {
		wakes := slices.Repeat([]int{memfd(t, "wake", "")}, n)
		done := make(chan error, 1)
		go func() {
			done <- here.SendWindow(Window{Slot: 2, Epoch: 7, Wakes: wakes, From: rings[0], Table: rings[1], To: rings[2]})
		}()
		got := 0
		for {
			m, fds, err := there.Receive()
			if err != nil {
				t.Fatal(err)
			}
			var are []uint64
			for _, fd := range fds {
				are = append(are, inode(t, fd))
			}
			closeAll(fds)
			if m.Producer != 2 || m.Epoch != 7 {
				t.Errorf("%+v", m)
			}
			if m.Op == OpWindow {
				if !slices.Equal(are, want) {
					t.Errorf("the window came with %v, not %v", are, want)
				}
				break
			}
			if m.Op != OpWakes || m.First != got || len(fds) == 0 {
				t.Errorf("%+v with %d descriptors", m, len(fds))
			}
			got += len(fds)
		}
		if err := <-done; err != nil || got != n {
			t.Errorf("%d eventfds, %d came: %v", n, got, err)
		}
	}
}

// The end of the other side is told from damage, and damage leaves no descriptor
// open.
func TestLinkEnds(t *testing.T) {
	here, there := links(t)
	before := descriptors(t)
	if err := here.Send(Message{Op: OpReport}); err != nil {
		t.Fatal(err)
	}
	here.Close()
	if m, _, err := there.Receive(); err != nil || m.Op != OpReport {
		t.Errorf("the last message: %+v, %v", m, err)
	}
	if _, _, err := there.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
	if err := there.Send(Message{Op: OpReady}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("sent to nobody: %v", err)
	}
	there.Close()
	if n := descriptors(t); n != before-2 {
		t.Errorf("%d descriptors before, %d after both were closed", before, n)
	}
}

func TestLinkDamage(t *testing.T) {
	a := memfd(t, "a", "")
	before := descriptors(t)
	for name, c := range map[string]struct {
		text string
		fds  int
	}{
		"not JSON":             {"ready", 1},
		"no object":            {"[]", 1},
		"another type":         {`{"op":"window","producer":"x"}`, 2},
		"too long":             {`{"op":"` + strings.Repeat("x", maxMessage) + `"}`, 1},
		"too many descriptors": {`{"op":"ready"}`, MaxFDs + 1},
	} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		there, err := NewLink(pair[1])
		if err != nil {
			t.Fatal(err)
		}
		fds := slices.Repeat([]int{a}, c.fds)
		if err := unix.Sendmsg(pair[0], []byte(c.text), unix.UnixRights(fds...), nil, 0); err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendmsg(pair[0], []byte(`{"op":"quit"}`), nil, nil, 0); err != nil {
			t.Fatal(err)
		}
		if m, fds, err := there.Receive(); err == nil || errors.Is(err, io.EOF) || len(fds) != 0 {
			t.Errorf("%s: %+v with %d descriptors, %v", name, m, len(fds), err)
		}
		if m, _, err := there.Receive(); err != nil || m.Op != OpQuit {
			t.Errorf("%s: the message after it: %+v, %v", name, m, err)
		}
		there.Close()
		unix.Close(pair[0])
		if n := descriptors(t); n != before {
			t.Errorf("%s: %d descriptors before, %d after", name, before, n)
		}
	}
}

func TestNewLinkRefuses(t *testing.T) {
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, err := unix.MemfdCreate("no socket", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	for name, fd := range map[string]int{"an internet socket": inet, "a file": file} {
		if l, err := NewLink(fd); err == nil {
			t.Errorf("%s became %v", name, l)
		}
	}
	if n := descriptors(t); n != before-2 {
		t.Errorf("%d descriptors before, %d after: they were taken over", before, n)
	}
}
