package worker

import (
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/stream"
)

// limits are those of the connections of one worker: not more than it can have open
// files for, so that there is always one for what the supervisor passes on.
func limits(cfg *config.Config) stream.Limits {
	total := cfg.DNS.TCPConnections
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		if n, ok := cfg.ConnectionsWithin(files.Cur); ok {
			total = min(total, n)
		}
	}
	return stream.Limits{
		Total: total, PerClient: cfg.DNS.TCPClient,
		Idle: cfg.DNS.TCPIdle, Lifetime: cfg.DNS.TCPLifetime,
	}
}

// serveConn takes over an accepted connection.
func (w *Worker) serveConn(fd int, from unix.Sockaddr, listener, lane int, block *counters.Block) {
	c, err := stream.NewSocket(fd, stream.AddrPort(from))
	if err != nil {
		block.Add(counters.TCPAccepted, 1)
		block.Add(counters.TCPClosed, 1)
		block.Add(counters.DroppedTCP+counters.ID(counters.DropInternal), 1)
		if skipped, ok := w.spoilt.Now(); ok {
			w.log.Error("taking over a connection", "error", err, "not_logged", skipped)
		}
		return
	}
	w.streams.Serve(c, block, w.handlers[listener][lane])
}
