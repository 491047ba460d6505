package priority

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// A test that changes the niceness is run in a process of its own, which has threads
// that come and go.
const inside = "DNSAPP_PRIORITY_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		os.Exit(m.Run())
	}
	stop := make(chan struct{})
	for range 4 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				done := make(chan struct{})
				go func() { // its thread ends with it
					runtime.LockOSThread()
					close(done)
				}()
				<-done
			}
		}()
	}
	code := m.Run()
	close(stop)
	os.Exit(code)
}

// again runs the test in such a process, and reports whether this is one.
func again(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// everyThread reports how many threads there are of each niceness.
func everyThread(t *testing.T) map[int]int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	n := map[int]int{}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(task.Name())
		if raw, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil {
			n[20-raw]++
		}
	}
	return n
}

// Set changes all threads, also while new ones are made; later ones have it from them.
func TestSet(t *testing.T) {
	if !again(t) {
		return
	}
	was, err := Niceness()
	if err != nil {
		t.Fatal(err)
	}
	steps := []int{min(was+1, highest), min(was+4, highest)}
	if unix.Geteuid() == 0 {
		steps = append(steps, Hasty(was), was, Hasty(was), was)
	} else {
		t.Log("NOT TESTED: raising the priority, which takes root")
	}
	for _, nice := range steps {
		if err := Set(nice); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			n := everyThread(t)
			if len(n) != 1 || n[nice] == 0 {
				t.Fatalf("niceness %d was set; threads by niceness: %v", nice, n)
			}
		}
	}
}

// Without the right to raise a priority the error says so, and nothing is changed.
func TestSetRefused(t *testing.T) {
	if !again(t) {
		return
	}
	none := unix.Rlimit{}
	if err := unix.Setrlimit(unix.RLIMIT_NICE, &none); err != nil {
		t.Fatal(err)
	}
	was, err := Niceness()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // its thread alone loses the right
	if unix.Geteuid() == 0 {
		var caps [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0]); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{"the process": Set(Hasty(was)), "the thread": SetThread(Hasty(was))} {
		if !errors.Is(err, unix.EACCES) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if now, err := Niceness(); err != nil || now != was {
		t.Errorf("the niceness is %d, %v; it was %d", now, err, was)
	}
	if err := SetThread(was); err != nil {
		t.Error(err)
	}
}

func TestRange(t *testing.T) {
	for _, c := range [][3]int{{0, -5, 10}, {5, 0, 15}, {19, 14, 19}, {-20, -20, -10}, {-15, -20, -5}} {
		if h, i := Hasty(c[0]), Idle(c[0]); h != c[1] || i != c[2] {
			t.Errorf("of niceness %d: hasty %d, idle %d; want %d, %d", c[0], h, i, c[1], c[2])
		}
	}
}
