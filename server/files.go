package server

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
)

// ensureFiles sees to it that processes of cfg may open as many files as it wants,
// past the hard limit where the capability allows. It warns where that cuts the
// connections, and refuses a limit under which cfg cannot be served at all.
func (s *Supervisor) ensureFiles(cfg *config.Config) error {
	least, connections := cfg.Files()
	limit, err := raiseFiles(uint64(least + connections))
	if err != nil {
		return err
	}
	n, ok := cfg.ConnectionsWithin(limit)
	if !ok {
		return fmt.Errorf("the limit of open files is %d, and this configuration needs %d or more: "+
			"raise it (LimitNOFILE= of the unit, ulimit -n of the shell), or use fewer addresses or lanes", limit, least)
	}
	if n < connections && s.fewFiles != limit {
		s.fewFiles = limit
		s.log.Warn("the limit of open files cuts the TCP connections of a worker: raise it (LimitNOFILE= of the unit, ulimit -n of the shell), or lower dns.tcp_connections",
			"limit", limit, "tcp_connections", connections, "allowed", n)
	}
	return nil
}

// raiseFiles raises the limit of open files of this process, and of its children
// to come, to want, as far as it may, and returns what it is then.
func raiseFiles(want uint64) (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %w", err)
	}
	if l.Cur >= want {
		return l.Cur, nil
	}
	for _, hard := range []uint64{max(l.Max, want), l.Max} {
		// By this call, and no other, the runtime learns that children shall have
		// the new limit rather than what this process was started with.
		next := syscall.Rlimit{Cur: min(want, hard), Max: hard}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &next) == nil {
			return next.Cur, nil
		}
	}
	return l.Cur, nil
}
