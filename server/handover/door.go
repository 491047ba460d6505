package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SupervisorDoor is the name of the door of the supervisor.
const SupervisorDoor = "supervisor.door"

// WorkerDoor returns the name of the door of a worker.
func WorkerDoor(epoch uint32, index int) string {
	return fmt.Sprintf("worker.%d.%d.door", epoch, index)
}

// parseWorkerDoor is the inverse of WorkerDoor.
func parseWorkerDoor(name string) (epoch uint32, index int, ok bool) {
	f := strings.Split(name, ".")
	if len(f) != 4 || f[0] != "worker" || f[3] != "door" {
		return 0, 0, false
	}
	e, err1 := strconv.ParseUint(f[1], 10, 32)
	i, err2 := strconv.ParseUint(f[2], 10, 16)
	return uint32(e), int(i), err1 == nil && err2 == nil
}

// Door is a door in the control directory.
type Door struct {
	Name  string
	Epoch uint32 // of the worker. Valid iff it is a worker's
	Index int    // the same
}

// Workers lists the doors of workers in a directory. Nobody need stand behind
// them any more.
func Workers(dir string) ([]Door, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("looking for workers: %w", err)
	}
	var doors []Door
	for _, e := range list {
		if epoch, index, ok := parseWorkerDoor(e.Name()); ok {
			doors = append(doors, Door{Name: e.Name(), Epoch: epoch, Index: index})
		}
	}
	return doors, nil
}

// Open makes a door: a listening socket of mode 0600. A stale one of that name is
// replaced. The descriptor is the caller's, close-on-exec and non-blocking.
func Open(dir, name string) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a door: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd, err = -1, fmt.Errorf("opening the door %s: %w", filepath.Join(dir, name), err)
		}
	}()
	// The mode of the descriptor when it is bound, less the umask, is that of the
	// file: nobody can connect before it is right.
	if err = unix.Fchmod(fd, 0o600); err != nil {
		return
	}
	if err = Remove(dir, name); err != nil {
		return
	}
	err = at(dir, name, func(sa unix.Sockaddr) error {
		if err := unix.Bind(fd, sa); err != nil {
			return err
		}
		return unix.Listen(fd, 8)
	})
	return
}

// Remove removes a door; one that is not there is no error.
func Remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// at calls f with the address of a file in dir, by way of a descriptor of the
// directory: an address holds 107 octets of path, whatever the directory.
func at(dir, name string, f func(unix.Sockaddr) error) error {
	d, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	return f(&unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d, name)})
}

// ErrNobody is matched by the error of Knock when nobody stands behind the door.
var ErrNobody = errors.New("nobody is behind the door")

// Knock connects to a door. The connection may wait until whoever stands behind
// it is ready; what is received over it tells the sender's pid.
func Knock(dir, name string) (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("knocking: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	if err == nil {
		err = at(dir, name, func(sa unix.Sockaddr) error { return unix.Connect(fd, sa) })
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		err = fmt.Errorf("%w: %w", ErrNobody, err)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("knocking at %s: %w", filepath.Join(dir, name), err)
	}
	return connOf(fd)
}

// Listener is a door from inside.
type Listener struct{ l *net.UnixListener }

// Stand returns the inside of a door. It takes fd over.
func Stand(fd int) (*Listener, error) {
	f := os.NewFile(uintptr(fd), "door")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("standing behind a door: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, errors.New("standing behind a door: not a unix socket")
	}
	u.SetUnlinkOnClose(false) // another process may hold it, too
	return &Listener{l: u}, nil
}

// Accept waits for somebody of user uid, or root, until ctx ends. Whoever else
// knocks is turned away.
func (l *Listener) Accept(ctx context.Context, uid uint32) (*net.UnixConn, error) {
	stop := context.AfterFunc(ctx, func() { l.l.Close() })
	defer stop()
	for {
		c, err := l.l.AcceptUnix()
		if err != nil {
			return nil, fmt.Errorf("at the door: %w", err)
		}
		if cred, err := Peer(c); err == nil && (cred.Uid == uid || cred.Uid == 0) {
			return c, nil
		}
		c.Close()
	}
}

// Close closes this process's end of the door.
func (l *Listener) Close() error { return l.l.Close() }
