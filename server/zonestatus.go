package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/zone/master"
	"github.com/dnsapp/dnsapp/server/metrics"
	"github.com/dnsapp/dnsapp/server/zones"
)

// withZones calls f, beside the loop, with the zones of the generation that has
// the wire; none before there is one.
func (s *Supervisor) withZones(ctx context.Context, f func([]*zones.Zone)) error {
	found := make(chan *zones.Catalog, 1)
	err := s.ask(ctx, func() {
		var c *zones.Catalog
		if g := s.generation(s.state.Active); g != nil && ctx.Err() == nil {
			c = g.catalog
			s.zones.Retain(c)
		}
		found <- c
	})
	if err != nil { // the loop may come to it yet
		go func() {
			select {
			case c := <-found:
				s.zones.Release(c)
			case <-s.done:
			}
		}()
		return err
	}
	c := <-found
	defer s.zones.Release(c)
	if c == nil {
		f(nil)
	} else {
		f(c.Zones)
	}
	return nil
}

// Zones implements control.Backend.
func (s *Supervisor) Zones(ctx context.Context) ([]control.ZoneStatus, error) {
	list := []control.ZoneStatus{}
	err := s.withZones(ctx, func(zones []*zones.Zone) {
		for _, z := range zones {
			list = append(list, s.zoneStatus(z))
		}
	})
	return list, err
}

func (s *Supervisor) zoneStatus(z *zones.Zone) control.ZoneStatus {
	st := control.ZoneStatus{
		Name: z.Name, File: z.File, Serial: z.Report.Serial, Records: z.Report.Records,
		Bytes: int64(z.Report.Size), LoadedAt: z.Loaded,
	}
	if f := s.zones.Failure(z); f != nil {
		st.Error = f.String()
	}
	return st
}

// Zone implements control.Backend.
func (s *Supervisor) Zone(ctx context.Context, name string) (*control.ZoneDetail, error) {
	canonical, err := canonicalName(name)
	if err != nil {
		return nil, err
	}
	var d *control.ZoneDetail
	var failed error
	if err := s.withZones(ctx, func(list []*zones.Zone) {
		if i := slices.IndexFunc(list, func(z *zones.Zone) bool { return z.Name == canonical }); i >= 0 {
			d, failed = s.zoneDetail(list[i])
		}
	}); err != nil {
		return nil, err
	}
	if d == nil && failed == nil {
		failed = control.Refuse("zone %s is not served (dnsappctl zone list says which are)", canonical)
	}
	return d, failed
}

func (s *Supervisor) zoneDetail(z *zones.Zone) (*control.ZoneDetail, error) {
	types, err := z.Census()
	if err != nil {
		return nil, err
	}
	r := &z.Report
	d := &control.ZoneDetail{
		ZoneStatus: s.zoneStatus(z), Nodes: r.Nodes, Content: r.Key.String(), WarningsDropped: r.WarningsDropped,
		Queries: s.zoneQueries(z.Cell()),
	}
	for t, n := range types {
		d.Types = append(d.Types, control.TypeCount{Type: master.TypeName(t), Records: n})
	}
	slices.SortFunc(d.Types, func(a, b control.TypeCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), cmp.Compare(a.Type, b.Type))
	})
	for _, f := range s.zones.Deps(z) {
		d.Files = append(d.Files, control.ZoneFile{Path: f.Path, Bytes: f.Size, ModifiedAt: time.Unix(0, f.MtimeNs)})
	}
	for _, w := range r.Warnings {
		d.Warnings = append(d.Warnings, control.Problem{File: w.File, Line: w.Line, Message: w.Text})
	}
	if f := s.zones.Failure(z); f != nil {
		d.Problems = zoneProblems(f)
	}
	return d, nil
}

func (s *Supervisor) zoneQueries(cell uint32) control.ZoneQueries {
	load := func(c counters.ZoneCounter) uint64 { return s.zoneCounters.Load(cell, c) }
	return control.ZoneQueries{
		UDP: load(counters.ZoneUDP), TCP: load(counters.ZoneTCP),
		NXDomain: load(counters.ZoneNXDomain), Truncated: load(counters.ZoneTruncated),
	}
}

// maxZoneMetrics bounds the zones whose counters are exported by name. The rest
// shares one name, or a scrape would be tens of megabytes.
const maxZoneMetrics = 1000

// otherZones is what the rest is called: no zone has a name without a dot at its
// end.
const otherZones = "other"

// zoneMetrics returns the counters of zones for a scrape: of those that were
// served first by their name, of all others together. Which ones have a name does
// not change, so no counter falls.
func (s *Supervisor) zoneMetrics() []metrics.Zone {
	names, all := s.zones.Cells(maxZoneMetrics + 1)
	list := make([]metrics.Zone, 0, len(names))
	other := metrics.Zone{Name: otherZones, ZoneQueries: s.zoneQueries(0)}
	add := func(cell uint32) {
		q := s.zoneQueries(cell)
		other.UDP += q.UDP
		other.TCP += q.TCP
		other.NXDomain += q.NXDomain
		other.Truncated += q.Truncated
	}
	for cell, name := range names {
		switch {
		case cell == 0:
		case name == "":
			add(uint32(cell))
		default:
			list = append(list, metrics.Zone{Name: name, ZoneQueries: s.zoneQueries(uint32(cell))})
		}
	}
	for cell := len(names); cell < all; cell++ {
		add(uint32(cell))
	}
	return append(list, other)
}
