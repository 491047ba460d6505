package spawn

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/priority"
)

// self is the image that is running, also when the file it came from has been
// replaced or deleted since.
const self = "/proc/self/exe"

// Identity is the user a child runs as. The zero value keeps the parent's.
type Identity struct {
	UID, GID uint32
	Change   bool // to UID and GID

	// Keep are capabilities that the child keeps, of those that the parent has. All
	// others are gone for good. Valid iff Change: without it a child keeps nothing
	// that its program does not get by itself.
	Keep []uintptr
}

// Command is a child to start.
type Command struct {
	Args     []string // after the program name
	Files    []int    // descriptors; index i becomes descriptor i of the child
	Env      []string
	Identity Identity
	Nice     int // of the child, -20 .. 19; one lower than the caller's it gets only where that is permitted
}

// Process is a started child. It must be waited for.
type Process struct {
	PID   int
	Start uint64 // start time, clock ticks since boot: with PID it names the process for good
	pidfd *os.File
}

// Start starts the child in a process group of its own, so that a terminal's
// signals reach only the parent.
func Start(c Command) (*Process, error) {
	type result struct {
		p   *Process
		err error
	}
	done := make(chan result)
	go func() {
		// no_new_privs and the bounding set belong to a thread, and a child
		// inherits those of the thread that forks it. This one is never unlocked,
		// so it ends with the goroutine.
		runtime.LockOSThread()
		p, err := start(c)
		done <- result{p, err}
	}()
	r := <-done
	return r.p, r.err
}

func start(c Command) (*Process, error) {
	if err := closeOnExec(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("starting %s: no_new_privs: %w", c.Args[0], err)
	}
	// Of this thread, and of every thread of the child.
	if err := priority.SetThread(c.Nice); err != nil && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	if c.Identity.Change {
		for capability := uintptr(0); ; capability++ {
			if slices.Contains(c.Identity.Keep, capability) {
				continue
			}
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
				if errors.Is(err, unix.EINVAL) { // past the last capability of this kernel
					break
				}
				return nil, fmt.Errorf("starting %s: dropping capability %d: %w", c.Args[0], capability, err)
			}
		}
	}
	files := make([]uintptr, len(c.Files))
	for i, fd := range c.Files {
		files[i] = uintptr(fd)
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Env:   c.Env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	}
	if c.Identity.Change {
		attr.Sys.Credential = &syscall.Credential{Uid: c.Identity.UID, Gid: c.Identity.GID}
		attr.Sys.AmbientCaps = c.Identity.Keep
	}
	pid, err := syscall.ForkExec(self, append([]string{"dnsapp"}, c.Args...), attr)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	p := &Process{PID: pid, Start: startTime(pid)}
	if err := p.adoptPidfd(pidfd); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return nil, fmt.Errorf("starting %s: %w", c.Args[0], err)
	}
	return p, nil
}

// closeOnExec keeps from children whatever this process has inherited itself: a
// shell, or a service manager, may have left descriptors open across its exec.
func closeOnExec() error {
	if unix.CloseRange(firstFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	return closeOnExecEach() // before Linux 5.11, or under a filter that does not know the call
}

// firstFD is the first descriptor beyond standard input, output and error, of
// which every child gets its own.
const firstFD = 3

func closeOnExecEach() error {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("listing descriptors: %w", err)
	}
	for _, entry := range list {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd >= firstFD {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

func (p *Process) adoptPidfd(fd int) error {
	if fd < 0 {
		return errors.New("this kernel gives no pidfd (Linux 5.4 or newer is needed)")
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the netpoller waits for it
		return fmt.Errorf("pidfd: %w", err)
	}
	p.pidfd = os.NewFile(uintptr(fd), "pidfd")
	return nil
}

// startTime returns field 22 of /proc/PID/stat, or 0 if the process is gone.
func startTime(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The command name, in parentheses, may hold spaces: count from its end.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 {
		return 0
	}
	t, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0
	}
	return t
}

// Wait waits without holding a thread until the process is gone, reaps it, and
// returns how it ended. Of a process that is not a child of this one the error
// matches ErrNotChild. It is called once.
func (p *Process) Wait() (syscall.WaitStatus, error) {
	defer p.pidfd.Close()
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("waiting for process %d: %w", p.PID, err)
	}
	var status syscall.WaitStatus
	var waitErr error
	err = conn.Read(func(fd uintptr) bool {
		var got int
		for {
			got, waitErr = syscall.Wait4(p.PID, &status, syscall.WNOHANG, nil)
			if !errors.Is(waitErr, syscall.EINTR) {
				break
			}
		}
		if errors.Is(waitErr, syscall.ECHILD) && !ended(int(fd)) {
			waitErr = nil
			return false
		}
		return waitErr != nil || got == p.PID
	})
	if errors.Is(waitErr, syscall.ECHILD) {
		waitErr = ErrNotChild
	}
	if err = errors.Join(err, waitErr); err != nil {
		return 0, fmt.Errorf("waiting for process %d: %w", p.PID, err)
	}
	return status, nil
}

// ended reports whether the process behind a pidfd has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// Signal sends sig to exactly this process, never to a later one with its pid.
// A process that is gone is no error.
func (p *Process) Signal(sig unix.Signal) error {
	conn, err := p.pidfd.SyscallConn()
	if err != nil { // closed by Wait: it is gone
		return nil
	}
	var sendErr error
	err = conn.Control(func(fd uintptr) { sendErr = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if err != nil || errors.Is(sendErr, unix.ESRCH) {
		return nil
	}
	if sendErr != nil {
		return fmt.Errorf("sending %v to process %d: %w", sig, p.PID, sendErr)
	}
	return nil
}

// Describe says in words how a process ended.
func Describe(s syscall.WaitStatus) string {
	switch {
	case s.Exited():
		return fmt.Sprintf("exit status %d", s.ExitStatus())
	case s.Signaled():
		return "signal " + unix.SignalName(s.Signal())
	}
	return fmt.Sprintf("wait status %#x", uint32(s))
}
