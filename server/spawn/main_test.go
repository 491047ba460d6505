package spawn

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain is the child, too: Start executes this binary.
func TestMain(m *testing.M) {
	if os.Args[0] == "dnsapp" && len(os.Args) > 1 {
		os.Exit(child(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// account is what a child sees of itself.
type account struct {
	Args    []string
	Env     []string
	Files   map[int]string // by descriptor: what it is
	Flags   map[int]int    // by descriptor: its file status flags
	Status  map[string]string
	Nice    int
	PGID    int
	Workdir string
}

// child does what a test asks for and returns the exit code.
func child(args []string) int {
	switch args[0] {
	case "account": // on descriptor N
		a := takeAccount()
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return 2
		}
		if err := json.NewEncoder(os.NewFile(uintptr(n), "account")).Encode(a); err != nil {
			return 2
		}
		return 0
	case "exit":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return 2
		}
		return n
	case "kill": // itself
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return 2
		}
		_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
		<-time.After(time.Hour)
	case "wait": // until standard input ends
		if len(args) > 1 {
			if err := os.WriteFile("/proc/self/comm", []byte(args[1]), 0); err != nil {
				return 2
			}
			fmt.Println("renamed")
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	return 2
}

func takeAccount() account {
	a := account{Args: os.Args, Env: os.Environ(), Files: map[int]string{}, Flags: map[int]int{}, Status: map[string]string{}}
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil || strings.HasPrefix(to, "/proc/") { // the listing itself
			continue
		}
		n, _ := strconv.Atoi(filepath.Base(l))
		a.Files[n] = to
		a.Flags[n], _ = unix.FcntlInt(uintptr(n), unix.F_GETFL, 0)
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		k, v, _ := strings.Cut(line, ":")
		a.Status[k] = strings.Join(strings.Fields(v), " ")
	}
	a.Nice, _ = niceness()
	a.PGID = unix.Getpgrp()
	a.Workdir, _ = os.Getwd()
	return a
}

// niceness returns the calling thread's; the system call counts from 20 down.
func niceness() (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return 20 - n, err
}

// own reports whether a descriptor is one that the runtime opens for itself.
func own(link string) bool {
	return strings.HasPrefix(link, "anon_inode:[event") || strings.HasPrefix(link, "/sys/fs/cgroup")
}

// memfile returns an empty file in memory.
func memfile(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// start starts a child, and has it killed if the test leaves it behind.
func startChild(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal(unix.SIGKILL) })
	return p
}

func waitFor(t *testing.T, p *Process) syscall.WaitStatus {
	t.Helper()
	status, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return status
}

// accountOf starts a child with these files, and another for its account behind
// them, and returns that.
func accountOf(t *testing.T, c Command) (*Process, account) {
	t.Helper()
	out := memfile(t, "account")
	c.Args = append([]string{"account", strconv.Itoa(len(c.Files))}, c.Args...)
	c.Files = append(slices.Clone(c.Files), out)
	p := startChild(t, c)
	if status := waitFor(t, p); status != 0 {
		t.Fatalf("the child ended with %s", Describe(status))
	}
	var a account
	if err := json.NewDecoder(io.NewSectionReader(os.NewFile(uintptr(dup(t, out)), "account"), 0, 1<<20)).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return p, a
}

func dup(t *testing.T, fd int) int {
	t.Helper()
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
