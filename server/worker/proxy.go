package worker

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/logging"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/stream"
	"github.com/dnsapp/dnsapp/udpflow/proxy"
)

// proxyKeeper puts the UDP proxies of a worker on its lanes.
type proxyKeeper struct {
	w      *Worker
	region *backend.Region
	group  *proxy.Group
	icmp   *netio.ICMP
	lanes  []*proxy.Lane
	short  logging.Seldom // of sockets towards servers
}

// newProxyKeeper returns nil if no listener is a UDP proxy.
func newProxyKeeper(w *Worker) (*proxyKeeper, error) {
	cfg := w.m.Config
	wanted, flows := false, make([]int, len(cfg.Listeners))
	for i, l := range cfg.Listeners {
		if l.Service == config.ServiceUDPProxy {
			wanted, flows[i] = true, l.UDPProxy.Flows
		}
	}
	if !wanted {
		return nil, nil
	}
	r, err := shm.Map(w.m.Backends)
	if err != nil {
		return nil, fmt.Errorf("servers of backends: %w", err)
	}
	k := &proxyKeeper{w: w, icmp: netio.NewICMP(w.m.ICMP4, w.m.ICMP6)}
	if k.region, err = backend.Attach(r); err != nil {
		return nil, err
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("reading the limit of open files: %w", err)
	}
	k.group, err = proxy.NewGroup(cfg.Lanes, flows, cfg.FlowsWithin(files.Cur), func(lane int) { netio.Wake(w.lanes[lane].wake) })
	return k, err
}

// count adds what proxies still have to serve to a drain report, and returns for
// how long a port is in quarantine: that is, an answer may come.
func (k *proxyKeeper) count(r *directory.Report) time.Duration {
	if k == nil {
		return 0
	}
	flows, rest := k.group.Open(mono.Millis())
	r.Flows = max(r.Flows, uint32(flows)) // also those that the flow table has no room for
	if rest > 0 {
		r.Queries++
	}
	return rest
}

// noSocket says what to do about flows that are refused for want of a socket.
func (k *proxyKeeper) noSocket(err error) {
	skipped, ok := k.short.Now()
	if !ok {
		return
	}
	remedy := "look at the error"
	switch {
	case errors.Is(err, unix.EMFILE):
		remedy = "raise the limit of open files (LimitNOFILE= of the unit, ulimit -n of the shell), add workers, or lower udp_proxy.flows"
	case errors.Is(err, unix.ENFILE):
		remedy = "raise fs.file-max"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EADDRINUSE):
		remedy = "list more addresses in udp_proxy.source, or widen net.ipv4.ip_local_port_range"
	case errors.Is(err, unix.EADDRNOTAVAIL):
		remedy = "list addresses of this host in udp_proxy.source"
	case errors.Is(err, unix.EPERM):
		remedy = "udp_proxy.transparent needs CAP_NET_RAW"
	}
	k.w.log.Warn("new flows are refused for want of a socket: "+remedy, "error", err, "not_logged", skipped)
}

// newLane returns the flows of l, the lane with this number in the worker.
func (k *proxyKeeper) newLane(l *lane, number int) (*proxy.Lane, error) {
	cfg := k.w.m.Config
	row := k.region.Row(k.w.slot, l.global)
	peers, err := netio.NewPeers()
	if err != nil {
		return nil, err
	}
	listeners := make([]*proxy.Listener, len(cfg.Listeners))
	for i := range cfg.Listeners {
		if cfg.Listeners[i].Service == config.ServiceUDPProxy {
			if listeners[i], err = k.listener(&cfg.Listeners[i], row); err != nil {
				return nil, err
			}
		}
	}
	p := proxy.New(proxy.Setup{
		Group: k.group, Lane: number, Worker: k.w.index, Listeners: listeners, Table: k.w.table, Ports: k.region.Ports(), Block: l.block,
		Net: proxyNet{l, peers}, Client: proxyClient{l, k.icmp}, NoSocket: k.noSocket, Idle: k.w.reportDue, Now: mono.Millis(),
	})
	k.lanes = append(k.lanes, p)
	return p, nil
}

// listener returns what a lane needs to serve l.
func (k *proxyKeeper) listener(l *config.Listener, row *backend.Row) (*proxy.Listener, error) {
	cfg := k.w.m.Config
	b := cfg.BackendOf(l)
	if b == nil {
		return nil, fmt.Errorf("listener %s: the manifest has no backend %q", l.Name, l.Backend)
	}
	o := l.UDPProxy
	p := &proxy.Listener{Options: proxy.Options{
		Responses: o.Responses, Requests: o.Requests, Timeout: o.Timeout, Quarantine: o.Quarantine,
		Sources: o.Source, Transparent: o.Transparent, ProxyProtocol: o.ProxyProtocol,
		Flows: o.Flows, ClientFlows: o.ClientFlows, Recorded: l.Affinity == config.AffinityFlow,
		Passive: backend.Passive{MaxFails: b.Health.MaxFails, Timeout: b.Health.FailTimeout},
	}}
	var members []backend.Member
	for at := range cfg.Backends {
		if cfg.Backends[at].Name != b.Name {
			continue
		}
		if at >= len(k.w.m.Servers) || len(k.w.m.Servers[at]) != len(b.Servers) {
			return nil, fmt.Errorf("listener %s: the manifest does not number the servers of %s", l.Name, b.Name)
		}
		for i, s := range b.Servers {
			members = append(members, backend.Member{
				ID: k.w.m.Servers[at][i], Identity: backend.Identity(s.Name), Backup: s.Backup, MaxFlows: s.MaxFlows,
			})
			p.Servers = append(p.Servers, s.Address)
		}
	}
	p.Pool = backend.NewPool(policies[b.Policy], b.SlowStart, k.region, row, members)
	return p, nil
}

var policies = map[config.Policy]backend.Policy{
	config.RoundRobin:     backend.RoundRobin,
	config.LeastFlows:     backend.LeastFlows,
	config.ConsistentHash: backend.Hash,
}

// udpProxyService is the proxy of one listener.
type udpProxyService struct {
	proxies  *proxyKeeper
	listener int
}

func (s *udpProxyService) lane(index int, _ *counters.Block) burst.Handler {
	return s.proxies.lanes[index].Handler(s.listener)
}

func (s *udpProxyService) streams(int, *counters.Block) stream.Handler { return nil } // it has no TCP

func (s *udpProxyService) drain() {}

// proxyNet is the servers' side of a lane.
type proxyNet struct {
	lane  *lane
	peers *netio.Peers
}

func (n proxyNet) Dial(server netip.AddrPort, source netip.Addr) (int, netip.AddrPort, error) {
	return netio.DialUDP(server, source)
}

func (n proxyNet) DialAs(server, client netip.AddrPort) (int, error) {
	return netio.DialUDPAs(server, client)
}

func (n proxyNet) Watch(fd int, conn int32) error { return n.lane.poller.Add(fd, tokenFlow+conn) }

func (n proxyNet) Close(fd int) { netio.Close(fd) }

func (n proxyNet) Send(fd int, b *burst.Burst, which []uint8, header []byte) (int, error) {
	sent, err := n.peers.Send(fd, b, which, header)
	n.lane.traceServer(fd, b, which[:sent], header)
	return sent, err
}

func (n proxyNet) Recv(fd int, out *burst.Burst) (int, error) {
	from := out.N
	got, err := n.peers.Recv(fd, out)
	n.lane.traceAnswers(fd, out, from)
	return got, err
}

// proxyClient is the clients' side of a lane.
type proxyClient struct {
	lane *lane
	icmp *netio.ICMP
}

func (c proxyClient) Answer(socket uint32, out *burst.Burst) (unsent uint64) {
	l := c.lane
	u := l.worker.socket(socket)
	if u == nil {
		for i := range out.N {
			out.Packets[i].Drop = counters.DropNoSocket
			unsent += uint64(out.Packets[i].Answers())
		}
		return unsent
	}
	sent := l.batch.Send(u, out)
	l.traceSent(out)
	l.block.Add(counters.Sent, sent.Packets)
	l.block.Add(counters.TxBytes, sent.Bytes)
	return sent.Failed
}

func (c proxyClient) Refuse(local, remote *burst.Endpoint) { c.icmp.Unreachable(local, remote) }

func (c proxyClient) Listener(socket uint32) int {
	if u := c.lane.worker.socket(socket); u != nil {
		return u.Listener
	}
	return -1
}
