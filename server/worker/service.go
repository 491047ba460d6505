package worker

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/auth"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/identify"
	"github.com/dnsapp/dnsapp/server/querylog"
	"github.com/dnsapp/dnsapp/server/stream"
)

// service is what one listener does with its traffic. A new service is one
// more of these: lanes and listeners know nothing else of it.
type service interface {
	// lane returns the handler of datagrams for one lane (numbered within the
	// worker) with its counters.
	lane(index int, block *counters.Block) burst.Handler

	// streams returns the handler of connections that this lane accepts.
	streams(index int, block *counters.Block) stream.Handler

	// drain begins the end of its connections: clients that can be asked to go
	// are asked.
	drain()
}

// resumer is a service whose drain does something that can be taken back.
type resumer interface{ resume() }

// newServices returns the services of m's listeners, by listener. DNS answers
// from what zones keeps, and logs to queries; proxies have the flows of the UDP
// proxies.
func newServices(m *Manifest, pid int, zones *zoneKeeper, queries *querylog.Log, proxies *proxyKeeper) ([]service, error) {
	var dns *dnsService
	all := make([]service, len(m.Config.Listeners))
	for i, l := range m.Config.Listeners {
		switch l.Service {
		case config.ServiceIdentify:
			all[i] = &identifyService{m: m, pid: pid}
		case config.ServiceDNS:
			if dns == nil { // all DNS listeners serve the same zones
				dns = newDNSService(m, pid, zones, queries)
			}
			all[i] = dns
		case config.ServiceUDPProxy:
			all[i] = &udpProxyService{proxies, i}
		default:
			return nil, fmt.Errorf("listener %s: this binary has no service %q", l.Name, l.Service)
		}
	}
	return all, nil
}

type identifyService struct {
	m   *Manifest
	pid int
}

func (s *identifyService) text(lane int) string {
	return identify.Text(s.m.Epoch, s.m.Index, lane, s.pid, s.m.Config.Name)
}

func (s *identifyService) lane(index int, _ *counters.Block) burst.Handler {
	return identify.NewLane(s.text(index))
}

func (s *identifyService) streams(index int, _ *counters.Block) stream.Handler {
	return &stream.Lines{Text: []byte(s.text(index))}
}

func (s *identifyService) drain() {}

// dnsService answers from zones. Each lane has an engine of its own, because
// the CHAOS answers name the lane.
type dnsService struct {
	engines []*auth.Engine
	users   *grace.Domain // of the zones
	queries *querylog.Log // nil: none are logged
}

func newDNSService(m *Manifest, pid int, zones *zoneKeeper, queries *querylog.Log) *dnsService {
	s := &dnsService{users: zones.users, queries: queries}
	for lane := range m.Config.Lanes {
		options := auth.Options{
			MaxUDPSize: m.Config.DNS.MaxUDPSize,
			Minimal:    m.Config.DNS.MinimalResponses,
			TCPIdle:    m.Config.DNS.TCPIdle,
		}
		if m.Config.DNS.ExposeGeneration {
			options.Generation = strings.TrimSuffix(identify.Text(m.Epoch, m.Index, lane, pid, m.Config.Name), "\n")
		}
		e := auth.New(options)
		zones.serve(e)
		s.engines = append(s.engines, e)
	}
	return s
}

func (s *dnsService) newLane(index int, block *counters.Block) *auth.Lane {
	l := s.engines[index].NewLane(block)
	l.LogTo(s.queries.Sampler(block))
	return l
}

func (s *dnsService) lane(index int, block *counters.Block) burst.Handler {
	return s.newLane(index, block)
}

func (s *dnsService) streams(index int, block *counters.Block) stream.Handler {
	return stream.NewMessages(func() stream.Answerer { return dnsStream{s.newLane(index, block), s.users} })
}

func (s *dnsService) drain() {
	for _, e := range s.engines {
		e.Leave()
	}
}

func (s *dnsService) resume() {
	for _, e := range s.engines {
		e.Stay()
	}
}

// dnsStream answers queries that came over TCP.
type dnsStream struct {
	lane  *auth.Lane
	users *grace.Domain
}

func (d dnsStream) AnswerStream(dst, query []byte, client netip.AddrPort) ([]byte, counters.Class, counters.Reason) {
	use := d.users.Enter() // until the answer is a copy
	defer use.Exit()
	out, reason := d.lane.Answer(dst, query, counters.TCP, wire.MaxMessage)
	if reason == counters.NotDropped {
		d.lane.LogAnswer(client, len(out)-len(dst))
	}
	return out, d.lane.Class(), reason
}
