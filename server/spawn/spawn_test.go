package spawn

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The child gets the descriptors of Files, in their order, and no other: not what
// this process has inherited without close-on-exec, nor what it has open besides.
func TestExactlyTheDescriptorsGiven(t *testing.T) {
	stray, err := unix.FcntlInt(uintptr(memfile(t, "stray")), unix.F_DUPFD, 200) // as from a careless parent
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stray)
	a, b, c := memfile(t, "a"), memfile(t, "b"), memfile(t, "c")
	// Descriptors whose numbers are those of other places, so that the order of
	// the dups matters, and one that is given twice.
	files := []int{a, c, b, a, c, b}
	want := []string{"a", "c", "b", "a", "c", "b", "account"}
	for _, fd := range []int{b, c, a} {
		if fd < 30 {
			for len(files) < fd {
				files = append(files, a)
				want = append(want[:len(want)-1], "a", "account")
			}
			files = append(files, c)
			want = append(want[:len(want)-1], "c", "account")
		}
	}
	_, got := accountOf(t, Command{Files: files})
	for n, name := range want {
		if link := "/memfd:" + name + " (deleted)"; got.Files[n] != link {
			t.Errorf("descriptor %d is %q, want %q", n, got.Files[n], link)
		}
		delete(got.Files, n)
	}
	maps.DeleteFunc(got.Files, func(_ int, link string) bool { return own(link) })
	if len(got.Files) != 0 {
		t.Errorf("beside what it was given the child has %v", got.Files)
	}
	if f, err := unix.FcntlInt(uintptr(a), unix.F_GETFD, 0); err != nil || f&unix.FD_CLOEXEC == 0 {
		t.Errorf("the parent's descriptor flags became %#x, %v", f, err)
	}
}

// Where close_range(2) is missing the same is done by hand.
func TestCloseOnExecEach(t *testing.T) {
	stray, err := unix.FcntlInt(uintptr(memfile(t, "stray")), unix.F_DUPFD, 200)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stray)
	if err := closeOnExecEach(); err != nil {
		t.Fatal(err)
	}
	for fd, want := range map[int]int{1: 0, stray: unix.FD_CLOEXEC} {
		if f, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || f != want {
			t.Errorf("flags of descriptor %d: %#x, %v; want %#x", fd, f, err, want)
		}
	}
}

// O_NONBLOCK belongs to the description that parent, child and siblings share:
// Start leaves it as it is.
func TestStatusFlagsStay(t *testing.T) {
	var files []int
	for _, nonblock := range []int{0, unix.SOCK_NONBLOCK} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|nonblock, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		files = append(files, pair[0])
	}
	_, a := accountOf(t, Command{Files: files})
	for n, want := range []int{0, unix.O_NONBLOCK} {
		here, err := unix.FcntlInt(uintptr(files[n]), unix.F_GETFL, 0)
		if err != nil {
			t.Fatal(err)
		}
		if here&unix.O_NONBLOCK != want || a.Flags[n]&unix.O_NONBLOCK != want {
			t.Errorf("O_NONBLOCK is %#x here, %#x in the child, want %#x", here&unix.O_NONBLOCK, a.Flags[n]&unix.O_NONBLOCK, want)
		}
	}
}

func TestArgumentsAndEnvironment(t *testing.T) {
	t.Setenv("SECRET", "x")
	p, a := accountOf(t, Command{Args: []string{"one", "two words"}, Env: []string{"A=1", "TZ=UTC"}})
	if want := []string{"dnsapp", "account", "0", "one", "two words"}; !slices.Equal(a.Args, want) {
		t.Errorf("arguments %q", a.Args)
	}
	if want := []string{"A=1", "TZ=UTC"}; !slices.Equal(a.Env, want) {
		t.Errorf("environment %q", a.Env)
	}
	if a.PGID != p.PID {
		t.Errorf("process group %d of process %d: a terminal's signals reach it", a.PGID, p.PID)
	}
}

// statusOf returns a field of this thread's status.
func statusOf(t *testing.T, field string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if k, v, _ := strings.Cut(line, ":"); k == field {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	t.Fatalf("no %s in status", field)
	return ""
}

const noCapabilities = "0000000000000000"

// A child can gain no privileges, and as another user it has none and cannot get
// any. The parent keeps its own, in every thread.
func TestPrivileges(t *testing.T) {
	bounding := statusOf(t, "CapBnd")
	nice, err := niceness()
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, a account, want map[string]string) {
		t.Helper()
		for k, v := range want {
			if a.Status[k] != v {
				t.Errorf("%s: %s is %q, want %q", what, k, a.Status[k], v)
			}
		}
	}
	_, a := accountOf(t, Command{Nice: min(nice+3, 19)})
	uid, gid := fmt.Sprint(unix.Getuid()), fmt.Sprint(unix.Getgid())
	check("the same user", a, map[string]string{
		"NoNewPrivs": "1", "Uid": strings.Join([]string{uid, uid, uid, uid}, " "), "Gid": strings.Join([]string{gid, gid, gid, gid}, " "), "CapBnd": bounding,
	})
	if a.Nice != min(nice+3, 19) {
		t.Errorf("niceness %d, want %d more than %d", a.Nice, 3, nice)
	}
	if unix.Geteuid() != 0 {
		t.Log("NOT TESTED as another user: this takes root")
	} else {
		_, a = accountOf(t, Command{Identity: Identity{UID: 65534, GID: 65533, Change: true}})
		check("another user", a, map[string]string{
			"NoNewPrivs": "1", "Uid": "65534 65534 65534 65534", "Gid": "65533 65533 65533 65533", "Groups": "",
			"CapInh": noCapabilities, "CapPrm": noCapabilities, "CapEff": noCapabilities, "CapBnd": noCapabilities, "CapAmb": noCapabilities,
		})
		const raw = "0000000000002000" // CAP_NET_RAW alone
		_, a = accountOf(t, Command{Identity: Identity{UID: 65534, GID: 65533, Change: true, Keep: []uintptr{unix.CAP_NET_RAW}}})
		check("another user that keeps a capability", a, map[string]string{
			"NoNewPrivs": "1", "Uid": "65534 65534 65534 65534", "CapInh": raw, "CapPrm": raw, "CapEff": raw, "CapBnd": raw, "CapAmb": raw,
		})
	}
	for range 20 { // of the goroutine's threads, whichever run it
		runtime.Gosched()
		if statusOf(t, "NoNewPrivs") != "0" || statusOf(t, "CapBnd") != bounding {
			t.Fatal("a thread of the parent has lost privileges")
		}
	}
	if n, err := niceness(); err != nil || n != nice {
		t.Errorf("the parent's niceness became %d, %v", n, err)
	}
}

func TestWaitAndDescribe(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"exit", "0"}, "exit status 0"},
		{[]string{"exit", "3"}, "exit status 3"},
		{[]string{"kill", "9"}, "signal SIGKILL"},
		{[]string{"kill", "15"}, "signal SIGTERM"},
	} {
		p := startChild(t, Command{Args: c.args, Files: []int{0, 1, 2}, Env: []string{"GOTRACEBACK=none"}})
		if got := Describe(waitFor(t, p)); got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
		if err := syscall.Kill(p.PID, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%v: process %d was not reaped: %v", c.args, p.PID, err)
		}
		if _, err := p.Wait(); err == nil {
			t.Errorf("%v: waited twice", c.args)
		}
	}
	if got := Describe(0x137f); got != "wait status 0x137f" { // stopped: Wait never says so
		t.Errorf("stopped: %q", got)
	}
}

// waiting starts a child that waits until stop is called.
func waiting(t *testing.T, args ...string) (p *Process, out *bufio.Reader, stop func()) {
	t.Helper()
	in, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end.Close(); from.Close() })
	p = startChild(t, Command{Args: append([]string{"wait"}, args...), Files: []int{int(in.Fd()), int(to.Fd()), 2}})
	in.Close()
	to.Close()
	return p, bufio.NewReader(from), func() { end.Close() }
}

// Signal reaches the process while it lives; afterwards, reaped or not, there is
// nobody to reach, which is what was wanted.
func TestSignal(t *testing.T) {
	p, _, _ := waiting(t)
	if err := p.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := Describe(waitFor(t, p)); got != "signal SIGKILL" {
		t.Errorf("it ended by %s", got)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Errorf("after Wait: %v", err)
	}
	p, out, stop := waiting(t)
	stop()
	if _, err := out.ReadByte(); err == nil { // its end, when it has ended
		t.Fatal("the child wrote something")
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Errorf("before Wait: %v", err)
	}
	if _, err := syscall.Wait4(p.PID, nil, 0, nil); err != nil { // as Wait does it
		t.Fatal(err)
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Errorf("in the middle of Wait: %v", err)
	}
	if _, err := p.Wait(); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("waiting for what was reaped: %v", err)
	}
	p, _, stop = waiting(t)
	defer stop()
	if err := p.Signal(unix.Signal(999)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no such signal: %v", err)
	}
	stop()
	waitFor(t, p)
}

// Many goroutines may wait, each for its own child, whichever ends first.
func TestManyWaits(t *testing.T) {
	const children = 20
	var all []*Process
	var stops []func()
	for range children {
		p, _, stop := waiting(t)
		all, stops = append(all, p), append(stops, stop)
	}
	ended := make(chan error, children)
	for _, p := range all {
		go func() {
			_, err := p.Wait()
			ended <- err
		}()
	}
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	for range children {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a child has ended and its Wait has not")
		}
	}
}

// With its start time a pid names a process for good, whatever it calls itself.
func TestStartTime(t *testing.T) {
	p, out, stop := waiting(t, "a) R 1 (b")
	defer stop()
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if p.Start == 0 || startTime(p.PID) != p.Start {
		t.Errorf("started at %d, now it says %d", p.Start, startTime(p.PID))
	}
	if own := startTime(os.Getpid()); own == 0 || own > p.Start {
		t.Errorf("the parent started at %d, the child at %d", own, p.Start)
	}
	stop()
	waitFor(t, p)
	if got := startTime(p.PID); got != 0 {
		t.Errorf("a process that is gone started at %d", got)
	}
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

// Neither a child that has ended nor a start that failed leaves a descriptor or a
// zombie.
func TestLeavesNothing(t *testing.T) {
	waitFor(t, startChild(t, Command{Args: []string{"exit", "0"}, Files: []int{0, 1, 2}})) // what the runtime opens once
	before := descriptors(t)
	for range 10 {
		p, err := Start(Command{Args: []string{"exit", "0"}, Files: []int{0, 1, 2}})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, p)
		for name, c := range map[string]Command{
			"no such descriptor": {Args: []string{"exit", "0"}, Files: []int{0, 1, 2, 1 << 20}},
			"bad environment":    {Args: []string{"exit", "0"}, Files: []int{0, 1, 2}, Env: []string{"A=\x00"}},
		} {
			if _, err := Start(c); err == nil || !strings.HasPrefix(err.Error(), "starting exit: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := descriptors(t); n != before {
		t.Errorf("%d descriptors before, %d after", before, n)
	}
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("a child is left: %v", err)
	}
}
