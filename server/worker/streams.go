package worker

import (
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/stream"
)

// limits are those of the connections of one worker.
func limits(cfg *config.Config) stream.Limits {
	return stream.Limits{
		Total: cfg.DNS.TCPConnections, PerClient: cfg.DNS.TCPClient,
		Idle: cfg.DNS.TCPIdle, Lifetime: cfg.DNS.TCPLifetime,
	}
}

// serveConn takes over an accepted connection.
func (w *Worker) serveConn(fd int, from unix.Sockaddr, listener, lane int, block *counters.Block) {
	c, err := stream.NewSocket(fd, stream.AddrPort(from))
	if err != nil {
		w.log.Error("taking over a connection", "error", err)
		return
	}
	w.streams.Serve(c, block, w.handlers[listener][lane])
}
