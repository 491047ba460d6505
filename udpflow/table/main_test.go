package table

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/shm"
)

// childEnv names the function of children that a test binary started with it runs
// instead of the tests, over the table in the region at descriptor 3.
const childEnv = "DNSAPP_TABLE_TEST_CHILD"

var children = map[string]func(*Table){}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		r, err := shm.Map(3)
		if err != nil {
			panic(err)
		}
		t, err := Attach(r)
		if err != nil {
			panic(err)
		}
		children[name](t)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// startChild starts this test binary as the named child over r, with env added.
func startChild(t *testing.T, r *shm.Region, name string, env ...string) *exec.Cmd {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(r.Fd()), unix.F_DUPFD_CLOEXEC, 0)
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
	c.Env = append(append(os.Environ(), childEnv+"="+name), env...)
	c.ExtraFiles = []*os.File{f}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// killed waits for the end of c and reports whether it was by SIGKILL. Any other
// end but a good one fails t.
func killed(t *testing.T, c *exec.Cmd) bool {
	t.Helper()
	err := c.Wait()
	if ws, ok := c.ProcessState.Sys().(interface{ Signaled() bool }); ok && ws.Signaled() {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// sharedTable returns an empty table in a region that a child can map.
func sharedTable(t *testing.T) (*Table, *shm.Region) {
	t.Helper()
	r, err := shm.Create("table-test", RegionSize(MinSlots))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	tb, err := Format(r, MinSlots, xIdle*1e6, [2]uint64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	return tb, r
}
