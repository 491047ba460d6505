package handover

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait of these tests: it only ends a test that fails.
const limit = 10 * time.Second

// pair returns two ends of a connection.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = connOf(fds[0]); err != nil {
		t.Fatal(err)
	}
	if b, err = connOf(fds[1]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// numbered returns a descriptor of a file in memory that holds n.
func numbered(t *testing.T, n int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.Pwrite(fd, []byte{byte(n), byte(n >> 8)}, 0); err != nil {
		t.Fatal(err)
	}
	return fd
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Any number of descriptors arrives, each in its place, and any number of octets:
// none, what one datagram holds, and more than that.
func TestParcel(t *testing.T) {
	for name, size := range map[string]struct{ fds, bytes int }{
		"nothing":         {0, 0},
		"one of each":     {1, 1},
		"a full datagram": {ChunkFDs, chunkBytes},
		"one more":        {ChunkFDs + 1, chunkBytes + 1},
		"a thousand":      {1000, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			var fds []int
			for i := range size.fds {
				fds = append(fds, numbered(t, i))
			}
			data := bytes.Repeat([]byte("0123456789abcdef"), size.bytes/16+1)[:size.bytes]
			sent := make(chan error, 1)
			go func() { sent <- Send(a, data, fds, limit) }()
			p, err := Receive(b, limit)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(p.Data, data) || len(p.FDs) != len(fds) {
				t.Fatalf("%d octets and %d descriptors", len(p.Data), len(p.FDs))
			}
			for i, fd := range p.FDs {
				var n [2]byte
				if _, err := unix.Pread(fd, n[:], 0); err != nil || int(n[0])|int(n[1])<<8 != i {
					t.Fatalf("descriptor %d holds %v (%v)", i, n, err)
				}
				flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
				if err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Fatalf("descriptor %d is not close-on-exec (%v)", i, err)
				}
			}
		})
	}
}

// A transfer that ends in the middle leaves no descriptor behind, on either side.
func TestParcelCutShort(t *testing.T) {
	before := descriptors(t)
	func() {
		a, b := pair(t)
		defer a.Close()
		defer b.Close()
		got := make(chan error, 1)
		go func() {
			_, err := Receive(b, limit)
			got <- err
		}()
		head := []byte("hov1\x2c\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00") // 300 descriptors
		if err := put(a, head, nil); err != nil {
			t.Fatal(err)
		}
		if err := put(a, []byte{'f'}, unix.UnixRights(make([]int, ChunkFDs)...)); err != nil {
			t.Fatal(err)
		}
		a.Close()
		if err := <-got; !errors.Is(err, io.EOF) {
			t.Errorf("error %v", err)
		}
	}()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// What is no parcel is refused; a side that does not answer is given up.
func TestParcelRefused(t *testing.T) {
	for name, head := range map[string]string{
		"another magic":        "hov9\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"short":                "hov1",
		"too many descriptors": "hov1\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00",
		"too many octets":      "hov1\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			if _, err := a.Write([]byte(head)); err != nil {
				t.Fatal(err)
			}
			if _, err := Receive(b, limit); !errors.Is(err, ErrParcel) {
				t.Errorf("error %v", err)
			}
		})
	}
	a, _ := pair(t)
	if err := Send(a, []byte("x"), nil, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nobody receives: %v", err)
	}
}

// Who knocks gets whoever stands behind the door, and is told its pid. A door that
// nobody holds any more says so, and gives way to another.
func TestDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // beyond what an address holds
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := WorkerDoor(7, 3)
	if _, err := Knock(dir, name); !errors.Is(err, ErrNobody) {
		t.Errorf("no door: %v", err)
	}
	fd, err := Open(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", st.Mode(), err)
	}
	l, err := Stand(fd)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c, err := Knock(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in, err := l.Accept(ctx, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	sent := make(chan error, 1)
	go func() { sent <- Send(in, []byte("hello"), nil, limit) }()
	p, err := Receive(c, limit)
	if err != nil || p.PID != os.Getpid() || string(p.Data) != "hello" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if doors, err := Workers(dir); err != nil || len(doors) != 1 || doors[0] != (Door{name, 7, 3}) {
		t.Errorf("doors %v, %v", doors, err)
	}
	l.Close()
	if _, err := Knock(dir, name); !errors.Is(err, ErrNobody) {
		t.Errorf("a door that nobody holds: %v", err)
	}
	again, err := Open(dir, name)
	if err != nil {
		t.Fatalf("a stale door is not replaced: %v", err)
	}
	unix.Close(again)
}

// A message arrives as it was sent, with its descriptors; one that is not due is
// an error, and so are descriptors that are not.
func TestTalk(t *testing.T) {
	a, b := pair(t)
	here, err := Here()
	if err != nil {
		t.Fatal(err)
	}
	said := Message{Kind: Hello, Protocol: Protocol, Terms: Terms{"worker": 4}, Place: here, Version: "v1"}
	if err := Tell(a, said); err != nil {
		t.Fatal(err)
	}
	if got, err := HearOne(b, Offer, Hello); err != nil || !reflect.DeepEqual(got, said) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Tell(a, Message{Kind: Offer, Estates: 3}, numbered(t, 5)); err != nil {
		t.Fatal(err)
	}
	got, fds, err := Hear(b)
	if err != nil || got.Estates != 3 || len(fds) != 1 {
		t.Fatalf("%+v, %v, %v", got, fds, err)
	}
	unix.Close(fds[0])
	if err := Tell(a, Message{Kind: Taken}); err != nil {
		t.Fatal(err)
	}
	if _, err := HearOne(b, Done); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a message that is not due: %v", err)
	}
	if err := Tell(a, Message{Kind: Taken}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := HearOne(b, Taken); err == nil {
		t.Error("descriptors that are not due are taken")
	}
	long := Message{Kind: Done, Body: []byte(`"` + strings.Repeat("x", 2*maxMessage) + `"`), Reason: strings.Repeat("y", maxMessage)}
	if err := Tell(a, long); err != nil {
		t.Fatal(err)
	}
	if got, err := HearOne(b, Done); err != nil || got.Body != nil || len(got.Reason) == 0 {
		t.Errorf("a long message: %v", err)
	}
	a.Close()
	if _, err := HearOne(b, Done); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
}

// Binaries that differ in any number are refused, and the numbers are named.
func TestTerms(t *testing.T) {
	mine := Terms{"worker": 4, "directory": 3}
	if err := mine.Agree(Terms{"directory": 3, "worker": 4}); err != nil {
		t.Error(err)
	}
	for want, theirs := range map[string]Terms{
		"directory: 3 here, 2 there": {"directory": 2, "worker": 4},
		"worker: 4 here, 0 there":    {"directory": 3},
		"rings: 0 here, 1 there":     {"directory": 3, "worker": 4, "rings": 1},
	} {
		err := mine.Agree(theirs)
		var differ *TermsError
		if !errors.As(err, &differ) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", theirs, err)
		}
	}
	text := mine.String()
	if text != "directory=3 worker=4" {
		t.Errorf("terms are %q", text)
	}
	if got, err := ParseTerms(text + "\n"); err != nil || got.Agree(mine) != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"directory", "directory=x", "dnsapp v1 (go1.26)"} {
		if _, err := ParseTerms(bad); err == nil {
			t.Errorf("%q are terms", bad)
		}
	}
}

// Processes that are not at the same place are refused, with the reason.
func TestPlace(t *testing.T) {
	here, err := Here()
	if err != nil || here.Net == 0 || here.PID == 0 {
		t.Fatalf("%+v, %v", here, err)
	}
	if err := here.Agree(here); err != nil {
		t.Error(err)
	}
	for word, change := range map[string]func(*Place){
		"user id": func(p *Place) { p.UID++ }, "network namespace": func(p *Place) { p.Net++ },
		"time namespace": func(p *Place) { p.Time++ }, "pid namespace": func(p *Place) { p.PID++ },
	} {
		other := here
		change(&other)
		if err := here.Agree(other); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
