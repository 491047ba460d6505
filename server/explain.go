package server

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// ExplainFlow implements control.Backend.
func (s *Supervisor) ExplainFlow(ctx context.Context, q control.FlowQuery) (*control.FlowAnswer, error) {
	if q.Transport == "tcp" {
		return s.explainTCP(ctx, q)
	}
	remote, err := endpointOf(q.Remote)
	if err != nil {
		return nil, err
	}
	a := &control.FlowAnswer{Transport: q.Transport, Remote: q.Remote}
	asked := []netip.Addr{q.Local.Addr()}
	if !q.Local.IsValid() {
		if asked, err = hostAddresses(); err != nil {
			return nil, err
		}
	}
	var all []control.Flow
	onDevices := false
	if err := s.ask(ctx, func() {
		onDevices = s.cfg.Datapath == config.DPDK
		for _, local := range s.sockets.candidates(asked, q) {
			all = append(all, s.explainUDP(local, &remote))
		}
	}); err != nil {
		return nil, err
	}
	if onDevices {
		return nil, control.Refuse("explain knows the data path sockets only, and this is dpdk")
	}
	if len(all) == 0 {
		return nil, control.Refuse("%s", nothingServes(q))
	}
	a.Flows = slices.DeleteFunc(slices.Clone(all), func(f control.Flow) bool { return f.Owner == nil })
	if len(a.Flows) == 0 {
		a.Flows = all
	}
	return a, nil
}

func nothingServes(q control.FlowQuery) string {
	if q.Local.IsValid() {
		return fmt.Sprintf("nothing serves %s %v; dnsappctl status lists the listeners", q.Transport, q.Local)
	}
	return fmt.Sprintf("nothing serves %s to %v; dnsappctl status lists the listeners", q.Transport, q.Remote.Addr())
}

// endpointOf returns the endpoint that a lane would see.
func endpointOf(ap netip.AddrPort) (burst.Endpoint, error) {
	e := burst.EndpointOf(ap)
	zone := ap.Addr().Zone()
	if zone == "" {
		return e, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		e.Scope = uint32(n)
		return e, nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return e, control.Refuse("%v names the interface %s: %v", ap, zone, err)
	}
	e.Scope = uint32(i.Index)
	return e, nil
}

// hostAddresses returns the addresses of this host, which a client may have
// asked where a socket is bound to all of them.
func hostAddresses() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of this host: %w", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, ip.Unmap())
			}
		}
	}
	return addrs, nil
}

// candidate is a local address that the client may have asked, and the socket
// that it would have reached.
type candidate struct {
	local  netip.AddrPort
	socket *socket
}

// candidates returns the UDP sockets that a client may have reached: those bound
// to an address, and for those bound to every address, each of asked.
func (ss *sockets) candidates(asked []netip.Addr, q control.FlowQuery) []candidate {
	byLocal := make(map[netip.AddrPort]candidate)
	add := func(local netip.AddrPort, s *socket) {
		if q.Local.IsValid() && local != q.Local {
			return
		}
		// All sockets of a group serve alike, and one bound to the address is
		// stronger than one bound to all.
		if c, known := byLocal[local]; !known || c.socket.address.Addr().IsUnspecified() {
			byLocal[local] = candidate{local, s}
		}
	}
	for _, s := range ss.byID {
		bound := s.address.Addr()
		switch {
		case s.tcp || s.fd < 0 || bound.Is4() != q.Remote.Addr().Unmap().Is4():
		case !bound.IsUnspecified():
			add(s.address, s)
		default:
			for _, a := range asked {
				if a.Is4() == bound.Is4() {
					add(netip.AddrPortFrom(a, s.address.Port()), s)
				}
			}
		}
	}
	all := make([]candidate, 0, len(byLocal))
	for _, c := range byLocal {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b candidate) int { return a.local.Compare(b.local) })
	return all
}

// explainUDP asks the rules of the dispatcher about one flow. Within the loop.
func (s *Supervisor) explainUDP(c candidate, remote *burst.Endpoint) control.Flow {
	f := control.Flow{Local: c.local}
	reader := s.readerOf(c.socket)
	if reader == nil {
		f.Verdict = "nobody reads this socket"
		return f
	}
	f.Reader = reader.Epoch
	l := listenerOf(reader, c.socket)
	f.Listener, f.Service, f.Affinity = l.Name, string(l.Service), string(l.Affinity)
	if l.Affinity == config.AffinityNone {
		f.Verdict = fmt.Sprintf("served by whichever worker of epoch %d reads it", reader.Epoch)
		f.Rules = []control.FlowRule{{
			Decides: true, Reached: true, Epoch: reader.Epoch,
			Text: "affinity none: no flow is recorded, the reader serves every datagram",
		}}
		return f
	}
	e := explainer{s: s, f: &f, reader: reader, now: mono.Millis()}
	local := burst.EndpointOf(c.local)
	e.hash = flow.Hash(&s.secret, flow.UDP, &local, remote)
	e.run()
	return f
}

// readerOf returns the generation that reads a socket now; nil: none.
func (s *Supervisor) readerOf(k *socket) *generation {
	slot := s.dir.Reader(s.dir.Owner().Epoch(), k.id)
	if slot < 0 {
		return nil
	}
	return s.gens[slot]
}

// listenerOf returns the listener of g that serves a socket.
func listenerOf(g *generation, k *socket) config.Listener {
	for _, u := range g.uses {
		if u.socket == k {
			return g.cfg.Listeners[u.listener]
		}
	}
	return config.Listener{}
}

// explainer goes through the rules of udpflow/dispatch for one flow.
type explainer struct {
	s       *Supervisor
	f       *control.Flow
	reader  *generation
	hash    uint64
	now     uint32
	decided bool
}

func (e *explainer) run() {
	e.rule(1, 0, false, "", "not a QUIC listener")
	e.ownTable()
	others := e.s.besides(e.reader)
	for _, g := range others {
		e.drainingTable(g)
	}
	if len(others) == 0 {
		e.rule(3, 0, false, "", "no older generation lives")
	}
	e.rule(4, e.reader.Epoch, true,
		fmt.Sprintf("a new flow: served, and recorded, by whichever worker of epoch %d reads it", e.reader.Epoch),
		"whoever reads it serves it and records the flow")
}

// rule notes what one rule says. The first one that decides gives the verdict.
func (e *explainer) rule(n int, epoch uint32, decides bool, verdict, text string) {
	r := control.FlowRule{Rule: n, Epoch: epoch, Reached: !e.decided, Decides: decides && !e.decided, Text: text}
	if r.Decides {
		e.decided = true
		e.f.Verdict = verdict
	}
	e.f.Rules = append(e.f.Rules, r)
}

// ownTable is rule 2: the table of the generation that reads.
func (e *explainer) ownTable() {
	g := e.reader
	sight, found := g.table.Inspect(e.hash, e.now)
	text := sightText(g, sight, found)
	if !found || !sight.Alive || sight.Worker >= len(g.workers) {
		e.rule(2, g.Epoch, false, "", text)
		return
	}
	verdict := fmt.Sprintf("served by worker %d of epoch %d, whoever reads it", sight.Worker, g.Epoch)
	if g.workers[sight.Worker].proc == nil || e.s.dir.Worker(int(g.Slot), sight.Worker).Absent() {
		verdict = fmt.Sprintf("worker %d of epoch %d is dead: whoever reads it serves it and takes the flow over", sight.Worker, g.Epoch)
	}
	e.rule(2, g.Epoch, true, verdict, text)
	e.own(g, sight)
}

// drainingTable is rule 3: the table of a generation that may drain.
func (e *explainer) drainingTable(g *generation) {
	sight, found := g.table.Inspect(e.hash, e.now)
	text := sightText(g, sight, found)
	if !found || !sight.Alive || sight.Worker >= len(g.workers) {
		e.rule(3, g.Epoch, false, "", text)
		return
	}
	header := g.table.Header(sight.Worker)
	switch {
	case g.table.Valid(sight.Worker, g.window):
		text += "; it publishes, so its flows are forwarded to it"
		e.rule(3, g.Epoch, true, fmt.Sprintf("forwarded to worker %d of epoch %d", sight.Worker, g.Epoch), text)
		e.own(g, sight)
	case header.State() == table.Handed:
		e.rule(3, g.Epoch, false, "", text+"; it has handed its flows over")
	default:
		e.rule(3, g.Epoch, false, "", text+"; it does not publish its flows")
	}
}

// own notes the owner that the deciding rule has found.
func (e *explainer) own(g *generation, sight table.Sight) {
	if e.f.Owner != nil {
		return
	}
	e.f.Owner = e.s.owner(g, sight.Worker)
	e.f.Owner.Age = control.Millis(sight.Age)
	e.f.Owner.Packets, e.f.Owner.AtLeast = sight.Packets, sight.Packets == table.ManyPackets
}

// owner describes a worker as the owner of a flow. Within the loop.
func (s *Supervisor) owner(g *generation, worker int) *control.FlowOwner {
	o := &control.FlowOwner{Epoch: g.Epoch, State: s.stateOf(g).String(), Worker: worker}
	if p := g.workers[worker].proc; p != nil {
		o.PID = p.PID
	}
	return o
}

// sightText says what the table of g shows of a flow.
func sightText(g *generation, sight table.Sight, found bool) string {
	if !found {
		return "not in its table"
	}
	packets := strconv.Itoa(sight.Packets) + " packets"
	switch sight.Packets {
	case 1:
		packets = "1 packet"
	case table.ManyPackets:
		packets += " or more"
	}
	idle := sight.Age.Round(time.Millisecond)
	switch {
	case sight.Alive:
		return fmt.Sprintf("alive: worker %d, %s, the last one %v ago", sight.Worker, packets, idle)
	case sight.Removed:
		return fmt.Sprintf("ended: worker %d served it, %s, the last one %v ago", sight.Worker, packets, idle)
	}
	return fmt.Sprintf("over: worker %d served it, idle for %v, and flows end after %v", sight.Worker, idle, g.table.Idle())
}

// besides returns the generations whose tables are asked after that of g, newest
// first: the older ones, and newer ones that have had to give the wire back.
func (s *Supervisor) besides(g *generation) []*generation {
	var others []*generation
	for _, o := range s.gens {
		if o != nil && o != g && (o.Epoch < g.Epoch || s.stateOf(o) >= directory.Draining) {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(a, b *generation) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return others
}
