package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// keepInterval is how often the server looks whether its socket is in its place.
const keepInterval = time.Second

// keep puts the control socket back when its file, or the directory that it is
// in, has been removed, until ctx ends. A supervisor that cannot be asked serves
// on, so what is wrong is logged, once.
func (s *Server) keep(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l := s.listener.Load()
		if l.inPlace() {
			told = ""
			continue
		}
		again, err := l.again()
		if err != nil {
			if told != err.Error() {
				told = err.Error()
				s.log.Error("the control socket is gone and cannot be put back; dnsappctl finds nobody, signals still work", "path", l.path, "error", err)
			}
			continue
		}
		told = ""
		s.log.Warn("the control socket was gone and is put back", "path", l.path)
		s.listener.Store(again)
		l.SetUnlinkOnClose(false) // the file is of again
		_ = l.Close()             // connections that it took live on
		if l.lock != again.lock {
			l.lock.Close()
		}
	}
}

// InPlace reports whether whoever connects to the socket's path comes to s.
func (s *Server) InPlace() bool {
	l := s.listener.Load()
	return l != nil && l.inPlace()
}

// inPlace reports whether whoever connects to the path of l comes to l.
func (l *listener) inPlace() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(info, l.file)
}

// again binds the socket anew, in a directory that may have to be made and locked
// anew.
func (l *listener) again() (*listener, error) {
	dir := filepath.Dir(l.path)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	lock := l.lock
	if !isFile(filepath.Join(dir, LockName), lock) {
		var err error
		if lock, err = lockDir(dir); err != nil {
			return nil, err
		}
	}
	n, err := newListener(l.path, lock)
	if err != nil && lock != l.lock {
		lock.Close()
	}
	return n, err
}

// isFile reports whether f is the file at path.
func isFile(path string, f *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	here, err := f.Stat()
	return err == nil && os.SameFile(there, here)
}

// newListener binds the socket at path, in a directory that lock holds.
func newListener(path string, lock *os.File) (*listener, error) {
	u, err := bind(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return &listener{UnixListener: u, path: path, file: info, lock: lock}, nil
}
