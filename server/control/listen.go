package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// LockName is the file in the control directory on which the supervisor holds
// an flock. It holds the supervisor's pid. It is never removed: a lock file that
// is removed can be locked twice.
const LockName = "dnsapp.lock"

// MaxPath is the longest path of a unix socket in bytes (unix(7): sun_path, less
// its terminating zero).
const MaxPath = 107

// InUseError says that another supervisor has the control directory.
type InUseError struct {
	Dir string
	PID int // the supervisor; 0 if not known
}

// Error names the directory, its holder and a remedy.
func (e *InUseError) Error() string {
	who := "another dnsapp"
	if e.PID > 0 {
		who = fmt.Sprintf("dnsapp pid %d", e.PID)
	}
	return fmt.Sprintf("control directory %s is in use by %s; stop it with dnsappctl stop, or set control: to a path in another directory", e.Dir, who)
}

// ExitCode returns exit.Refused.
func (e *InUseError) ExitCode() int { return exit.Refused }

// listener is a bound control socket and the lock on its directory.
type listener struct {
	*net.UnixListener
	path string
	file os.FileInfo // of the socket
	lock *os.File

	renamed bool // bound under another name: closing does not remove it
}

// listen takes the control directory and binds the socket at path, mode 0600.
// It creates the directory if only that is missing.
func listen(path string) (*listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	l, err := newListener(path, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return l, nil
}

// makeDir makes a control directory, if only that is missing, and checks it.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("creating control directory %s: its parent directory does not exist; create it, or set control: to another path", dir)
		}
		return fmt.Errorf("creating control directory: %w", err)
	}
	return checkDir(dir)
}

// release removes the socket, unless closing has done that, and gives the
// control directory up. It may be repeated.
func (l *listener) release() error {
	if l.renamed && l.inPlace() {
		_ = os.Remove(l.path)
	}
	err := l.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if lerr := l.lock.Close(); lerr != nil && !errors.Is(lerr, fs.ErrClosed) {
		err = errors.Join(err, lerr)
	}
	return err
}

// checkDir refuses a directory in which somebody else could have put the lock or
// the socket, as anybody can in /tmp.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("control directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.IsDir():
		return fmt.Errorf("control directory %s is not a directory; set control: to a path in another one", dir)
	case st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("control directory %s belongs to user id %d; set control: to a path in a directory of your own", dir, st.Uid)
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("control directory %s can be written by others (mode %v); set control: to a path in a directory of its own", dir, info.Mode().Perm())
	}
	return nil
}

// checkPath refuses what cannot be, or was never meant to be, a socket's path.
func checkPath(path string) error {
	switch {
	case path == "":
		return exit.With(exit.Usage, errors.New("the control socket path is empty; name the socket, such as "+DefaultPath))
	case strings.ContainsFunc(path, unicode.IsControl):
		return exit.With(exit.Usage, fmt.Errorf("the control socket path %q has a control character in it, such as a line's end; is it the output of a command?", path))
	case len(path) > MaxPath:
		return exit.With(exit.Usage, fmt.Errorf("the control socket path has %d bytes, and a unix socket path at most %d; choose a shorter one (%s)", len(path), MaxPath, path))
	}
	return nil
}

// endingTime bounds the wait for a process that is ending: it has memory to give
// back, and perhaps a processor to wait for.
const (
	endingTime  = 2 * time.Second
	endingEvery = 5 * time.Millisecond
)

// lockDir takes the flock of a control directory. The kernel drops it when the
// process ends, however that happens. A holder that has been killed is waited for:
// who starts the next one at once need not know how long a process takes to die.
func lockDir(dir string) (*os.File, error) {
	for waited := time.Duration(0); ; waited += endingEvery {
		f, err := tryLockDir(dir)
		if in, ok := errors.AsType[*InUseError](err); !ok || waited >= endingTime || !ending(in.PID) {
			return f, err
		}
		time.Sleep(endingEvery)
	}
}

// ending reports whether the process pid has ended or cannot go on: it is gone, a
// zombie, or has a SIGKILL to receive (proc_pid_status(5)).
func ending(pid int) bool {
	if pid <= 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "State":
			if strings.HasPrefix(value, "Z") || strings.HasPrefix(value, "X") {
				return true
			}
		case "SigPnd", "ShdPnd":
			if set, err := strconv.ParseUint(value, 16, 64); err == nil && set>>(unix.SIGKILL-1)&1 != 0 {
				return true
			}
		}
	}
	return false
}

func tryLockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking control directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &InUseError{Dir: dir, PID: readPID(f)}
		}
		return nil, fmt.Errorf("locking control directory %s: %w", dir, err)
	}
	if err := writePID(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking control directory %s: %w", dir, err)
	}
	return f, nil
}

func readPID(r io.Reader) int {
	b, err := io.ReadAll(io.LimitReader(r, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return err
}

// bind binds the socket, in a directory that this process has locked. A socket
// that is there already is stale unless somebody answers on it, who then runs
// in spite of the lock (its file was removed).
func bind(path string) (*net.UnixListener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("looking for a stale control socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("control socket %s: there is a file of that name that is not a socket; remove it, or set control: to another path", path)
	default:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			defer c.Close()
			in := &InUseError{Dir: filepath.Dir(path)}
			if cred, err := peerOf(c); err == nil {
				in.PID = int(cred.Pid)
			}
			return nil, in
		} else if !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("looking whether the control socket %s is stale: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing a stale control socket: %w", err)
		}
	}
	// The mode that the descriptor has when it is bound, less the umask, is that
	// of the file: nobody can connect before it is right.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); cerr != nil {
			return cerr
		}
		return err
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("binding control socket: %w", err)
	}
	return l.(*net.UnixListener), nil
}
