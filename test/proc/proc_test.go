package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"
)

// burnEnv makes this program the child of TestChild.
const burnEnv = "DNSAPP_TEST_BURN"

func TestMain(m *testing.M) {
	if os.Getenv(burnEnv) != "" {
		burn()
		return
	}
	os.Exit(m.Run())
}

// burn uses 20 ms of CPU, says so, and waits for the end of its input.
func burn() {
	for {
		if d, err := CPU(os.Getpid()); err != nil || d > 20*time.Millisecond {
			break
		}
	}
	fmt.Println("burnt")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

func TestParseStat(t *testing.T) {
	s, err := parseStat([]byte("77 (a (b) c) S 1 77 66 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 5 6 7\n"))
	want := Stat{PID: 77, Comm: "a (b) c", State: 'S', PPID: 1, Session: 66, CPU: 1750 * time.Millisecond}
	if err != nil || s != want {
		t.Errorf("parseStat = %+v, %v; want %+v", s, err, want)
	}
	for _, bad := range []string{"", "77 (x", "77 (x) S 1 2", "x (x) S 1 77 66 0 -1 4194560 1 2 3 4 150 25 0"} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("parseStat(%q) = %+v", bad, s)
		}
	}
}

// A child that burns CPU shows in its account, in the tree and by its file;
// once it is gone it shows nowhere.
func TestChild(t *testing.T) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), burnEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var seen bytes.Buffer
	for buf := make([]byte, 64); !bytes.Contains(seen.Bytes(), []byte("burnt\n")); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen.Bytes())
		}
		seen.Write(buf[:n])
	}
	if d, err := CPU(pid); err != nil || d < 20*time.Millisecond {
		t.Errorf("CPU = %v, %v; it has burnt 20 ms at least", d, err)
	}
	if n, err := PSS(pid); err != nil || n < 1<<20 {
		t.Errorf("PSS = %d, %v", n, err)
	}
	if st, err := Status(pid); err != nil || st["Pid"] == "" || st["Uid"] == "" {
		t.Errorf("Status = %v, %v", st, err)
	}
	has := func(list []Stat, err error) bool {
		if err != nil {
			t.Error(err)
		}
		for _, s := range list {
			if s.PID == pid {
				return true
			}
		}
		return false
	}
	if !has(Of(exe)) || !has(Tree(os.Getpid())) {
		t.Error("the child is in no list")
	}
	in.Close()
	_ = cmd.Wait()
	if has(Of(exe)) || has(Tree(os.Getpid())) {
		t.Error("the child is listed after its end")
	}
	if _, err := ReadStat(pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadStat of a process that has ended: %v", err)
	}
}
