package server

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/statefile"
)

// What was saved of a server holds for the same server: counts always, health where
// something checks it, an order as long as the file says of the server what it said.
func TestRecall(t *testing.T) {
	at := netip.MustParseAddrPort("127.0.0.1:53")
	was := config.Server{Name: "a", Address: at, Weight: 1}
	checked := config.Health{Check: config.CheckTCP}
	type found struct {
		Order  backend.Order
		Weight int
		Down   bool
		Flows  uint64
	}
	for name, c := range map[string]struct {
		server  config.Server
		backend string
		health  config.Health
		want    found
	}{
		"the same":         {was, "app", checked, found{backend.Disabled, 9, true, 5}},
		"unchecked":        {was, "app", config.Health{Check: config.CheckNone}, found{backend.Disabled, 9, false, 5}},
		"another weight":   {config.Server{Name: "a", Address: at, Weight: 2}, "app", checked, found{backend.Enabled, 2, true, 5}},
		"another limit":    {config.Server{Name: "a", Address: at, Weight: 1, MaxFlows: 7}, "app", checked, found{backend.Enabled, 1, true, 5}},
		"another address":  {config.Server{Name: "a", Address: netip.MustParseAddrPort("127.0.0.2:53"), Weight: 1}, "app", checked, found{backend.Enabled, 1, false, 0}},
		"another name":     {config.Server{Name: "b", Address: at, Weight: 1}, "app", checked, found{backend.Enabled, 1, false, 0}},
		"of another group": {was, "web", checked, found{backend.Enabled, 1, false, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := newBackends(slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer b.close()
			b.saved = map[serverKey]statefile.Server{{"app", "a", at}: {
				Backend: "app", File: was, Order: backend.Disabled, Weight: 9, Down: true, Counts: backend.Counts{Flows: 5},
			}}
			cfg := &config.Config{Backends: []config.Backend{{Name: c.backend, Servers: []config.Server{c.server}, Health: c.health}}}
			look := func() found {
				w := b.region.Server(b.byKey[serverKey{c.backend, c.server.Name, c.server.Address}].id)
				return found{w.Order(), w.Weight(), w.Down(), w.Counts().Flows}
			}
			first, err := b.claim(cfg)
			if err != nil {
				t.Fatal(err)
			}
			b.commit(cfg)
			if diff := cmp.Diff(c.want, look()); diff != "" {
				t.Errorf("after the start (-want +got):\n%s", diff)
			}
			if _, err := b.claim(cfg); err != nil {
				t.Fatal(err)
			}
			b.release(cfg, first)
			b.commit(cfg)
			if diff := cmp.Diff(c.want, look()); diff != "" {
				t.Errorf("after a reload (-want +got):\n%s", diff)
			}
			// Taken away and brought back it is a new one.
			gone := *cfg
			gone.Backends = nil
			b.release(cfg, first)
			b.commit(&gone)
			if _, err := b.claim(cfg); err != nil {
				t.Fatal(err)
			}
			b.commit(cfg)
			if diff := cmp.Diff(found{Weight: c.server.Weight}, look()); diff != "" {
				t.Errorf("after it was away (-want +got):\n%s", diff)
			}
		})
	}
}

// Each counter of the supervisor has a name of its own in the state file.
func TestTallyNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, y := range tallies {
		if seen[y.name] || y.name == "" {
			t.Errorf("the name %q is there twice, or none", y.name)
		}
		seen[y.name] = true
	}
}
