package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// This file is how the socket and the lock of a control directory pass from one
// supervisor to another, without a moment in which nobody has them.

// TakeOver is Listen for a supervisor that was given the lock of the directory by
// the one before: the socket takes the place of that one's, in which connections
// that wait there stay. It takes lock over.
func (s *Server) TakeOver(path string, lock *os.File) error {
	l, err := replace(path, lock)
	if err != nil {
		lock.Close()
		return fmt.Errorf("replacing the control socket: %w", err)
	}
	s.hold(l)
	return nil
}

// replace binds a socket and puts it, in one step, in the place of the one at path.
func replace(path string, lock *os.File) (*listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := writePID(lock); err != nil {
		return nil, err
	}
	const suffix = ".n" // as short as can be: the path may be as long as a socket's can
	if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := newListener(path+suffix, lock)
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove what it was called first
	if err := os.Rename(path+suffix, path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.path, l.renamed = path, true
	return l, nil
}

// Lock returns another descriptor of the lock, for another supervisor, or for this
// process when the server has ended.
func (s *Server) Lock() (*os.File, error) {
	fd, err := unix.FcntlInt(s.listener.Load().lock.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicating the lock of the control directory: %w", err)
	}
	return os.NewFile(uintptr(fd), LockName), nil
}

// Leave has the socket and the directory be another supervisor's: Shutdown leaves
// what is there where it is.
func (s *Server) Leave() {
	s.endKeep()
	if l := s.listener.Load(); l != nil {
		l.renamed = false
		l.SetUnlinkOnClose(false)
	}
}

// endKeep has nobody look after the socket any more.
func (s *Server) endKeep() {
	if s.unkeep != nil {
		s.unkeep()
		s.keeping.Wait()
	}
}
