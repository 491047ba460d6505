package server

import (
	"context"
	"net/netip"

	"github.com/dnsapp/dnsapp/server/backend/health"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/mono"
)

// checking is the checks of one server that run.
type checking struct {
	key    serverKey
	health config.Health
	cancel context.CancelFunc
	why    string // it is down; "": it is up
}

// checkServers makes exactly those checks run that cfg wants. A check whose
// settings have not changed goes on; what the last one found stays.
func (s *Supervisor) checkServers(cfg *config.Config) {
	wanted := make(map[serverKey]config.Health)
	for i := range cfg.Backends {
		b := &cfg.Backends[i]
		for _, server := range b.Servers {
			if b.Health.Check != config.CheckNone {
				wanted[serverKey{b.Name, server.Name, server.Address}] = b.Health
			}
		}
	}
	for key, c := range s.backends.checks {
		if h, still := wanted[key]; still && h == c.health {
			continue
		}
		c.cancel()
		delete(s.backends.checks, key)
		if k := s.backends.byKey[key]; k != nil {
			if _, still := wanted[key]; !still { // nobody would find out that it is up again
				s.backends.region.Server(k.id).SetUp(mono.Millis())
			}
		}
	}
	for key, h := range wanted {
		if s.backends.checks[key] == nil {
			s.startCheck(key, h)
		}
	}
}

func (s *Supervisor) startCheck(key serverKey, h config.Health) {
	ctx, cancel := context.WithCancel(s.background)
	c := &checking{key: key, health: h, cancel: cancel}
	s.backends.checks[key] = c
	down := s.backends.region.Server(s.backends.byKey[key].id).Down()
	plan := health.Plan{Interval: h.Interval, Timeout: h.Timeout, Tries: h.Tries, Rise: h.Rise}
	s.jobs.Go(func() {
		health.Run(ctx, plan, tryOf(key.address, h), down, func(err error) {
			s.post(func() { s.checked(c, err) })
		})
	})
}

// checked takes over what a check has found.
func (s *Supervisor) checked(c *checking, err error) {
	k := s.backends.byKey[c.key]
	if s.away || k == nil || s.backends.checks[c.key] != c { // it was stopped meanwhile
		return
	}
	server := s.backends.region.Server(k.id)
	if err != nil {
		c.why = err.Error()
		server.SetDown()
		s.log.Warn("server down", "backend", c.key.backend, "server", c.key.name, "address", c.key.address, "reason", err)
		return
	}
	c.why = ""
	server.SetUp(mono.Millis())
	s.log.Info("server up", "backend", c.key.backend, "server", c.key.name, "address", c.key.address)
}

// tryOf returns how to try a server.
func tryOf(address netip.AddrPort, h config.Health) health.Try {
	if h.Port != 0 {
		address = netip.AddrPortFrom(address.Addr(), uint16(h.Port))
	}
	switch h.Check {
	case config.CheckTCP:
		return health.TCP(address)
	case config.CheckDNS:
		name, err := wire.AppendName(nil, []byte(h.Name), nil)
		if err != nil {
			return func(context.Context) error { return err } // config has checked it
		}
		return health.DNS(address, name)
	case config.CheckHTTP:
		return health.HTTP(address, h.Path)
	default:
		send, _ := config.Unescape(h.Send) // config has checked both
		expect, _ := config.Unescape(h.Expect)
		return health.UDP(address, send, expect)
	}
}
