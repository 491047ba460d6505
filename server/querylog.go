package server

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
)

// noQueryLog is the descriptor of a query log that is not wanted.
const noQueryLog = -1

// openQueryLog opens the file that the workers of one generation append to, if one
// is wanted. Each generation opens it anew, so that a reload follows a file that
// was moved away. A named pipe is opened only if somebody reads it, and nobody
// waits for whoever does.
func openQueryLog(cfg *config.Config) (fd int, err error) {
	path := cfg.DNS.QueryLog.File
	if path == "" {
		return noQueryLog, nil
	}
	const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NONBLOCK | unix.O_CLOEXEC
	for {
		fd, err = unix.Open(path, flags, 0o640)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return fd, nil
	}
	p := config.Problem{
		File: cfg.File, Key: "dns.query_log.file", Msg: (&fs.PathError{Op: "open", Path: path, Err: err}).Error(),
		Fix: "name a file that can be written",
	}
	if errors.Is(err, unix.ENXIO) {
		p.Fix = "start what reads the pipe first"
	}
	return noQueryLog, config.Problems{p}
}

// closeQueryLog closes what openQueryLog returned.
func (s *Supervisor) closeQueryLog(fd int) {
	if fd == noQueryLog {
		return
	}
	if err := unix.Close(fd); err != nil {
		s.log.Warn("closing the query log", "error", err)
	}
}
