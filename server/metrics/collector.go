package metrics

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
)

// sampleTimeout is how long the supervisor may take for a sample.
const sampleTimeout = 5 * time.Second

// collector turns samples into metrics.
type collector struct{ source Source }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, s := range sections {
		for _, f := range s.families {
			ch <- f.desc()
		}
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), sampleTimeout)
	defer cancel()
	s, err := c.source.Sample(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(build.desc(), fmt.Errorf("asking the supervisor: %w", err))
		return
	}
	o := output{ch}
	o.packets(&s.Counters)
	o.streams(&s.Counters)
	o.dns(s)
	o.proxy(s)
	o.generations(s)
	o.reloads(s)
	o.process(s)
}

// output is where metrics go.
type output struct{ ch chan<- prometheus.Metric }

// put sends one metric of a family.
func (o output) put(f *family, v float64, labels ...string) {
	t := prometheus.GaugeValue
	if f.kind == counterKind {
		t = prometheus.CounterValue
	}
	o.ch <- prometheus.MustNewConstMetric(f.desc(), t, v, labels...)
}

// count sends one counter of the snapshot.
func (o output) count(f *family, s *counters.Snapshot, id counters.ID, labels ...string) {
	o.put(f, float64(s.Load(id)), labels...)
}

// sum returns the sum of n counters from id on.
func sum(s *counters.Snapshot, id counters.ID, n int) float64 {
	var v uint64
	for i := range counters.ID(n) {
		v += s.Load(id + i)
	}
	return float64(v)
}

// reasons sends the counters of a range indexed by counters.Reason.
func (o output) reasons(f *family, s *counters.Snapshot, first counters.ID, labels ...string) {
	for r := counters.NotDropped + 1; r < counters.NumReasons; r++ {
		o.count(f, s, first+counters.ID(r), append([]string{r.String()}, labels...)...)
	}
}

func (o output) packets(s *counters.Snapshot) {
	o.count(received, s, counters.Received)
	o.count(served, s, counters.Served)
	o.count(sibling, s, counters.Sibling)
	o.put(forwarded, sum(s, counters.ForwardedTo, counters.NumSlots))
	o.reasons(dropped, s, counters.Dropped, "wire")
	o.reasons(dropped, s, counters.DroppedRing, "ring")
	o.put(inHand, float64(s.InHand()))
	o.count(kernelDrops, s, counters.KernelDrops)
	o.count(ringTaken, s, counters.FromSibling, "sibling")
	o.put(ringTaken, sum(s, counters.ForwardedFrom, counters.NumSlots), "forwarded")
	o.count(ringTaken, s, counters.TakenBack, "dead_worker")
	o.count(ringServed, s, counters.ServedRing)
	o.count(sent, s, counters.Sent)
	o.count(receivedSize, s, counters.RxBytes)
	o.count(sentSize, s, counters.TxBytes)
	o.count(bursts, s, counters.Bursts)
	o.count(notRecorded, s, counters.NotRecorded)
}

func (o output) streams(s *counters.Snapshot) {
	o.count(tcpAccepted, s, counters.TCPAccepted)
	o.count(tcpClosed, s, counters.TCPClosed)
	o.count(tcpAcceptFailed, s, counters.TCPAcceptFailed)
	o.count(tcpQueries, s, counters.TCPQueries)
	o.count(tcpAnswers, s, counters.TCPAnswers)
	o.reasons(tcpDropped, s, counters.DroppedTCP)
}

func (o output) dns(s *Sample) {
	for t := range counters.NumTransports {
		o.queries(&s.Counters, t)
		for c := range counters.NumClasses {
			o.latency(&s.Counters, t, c)
		}
	}
	o.put(zones, float64(s.Zones))
	o.put(zoneSize, float64(s.ZoneRecords))
	o.put(staleZones, float64(s.StaleZones))
	o.count(logged, &s.Counters, counters.QueriesLogged)
	o.count(notLogged, &s.Counters, counters.QueriesNotLogged)
	for i := range s.PerZone {
		o.zone(&s.PerZone[i])
	}
}

// zone sends what is not zero: most of very many zones are hardly ever asked for.
func (o output) zone(z *Zone) {
	if z.UDP != 0 {
		o.put(zoneQueries, float64(z.UDP), z.Name, counters.UDP.String())
	}
	if z.TCP != 0 {
		o.put(zoneQueries, float64(z.TCP), z.Name, counters.TCP.String())
	}
	if z.NXDomain != 0 {
		o.put(zoneNX, float64(z.NXDomain), z.Name)
	}
	if z.Truncated != 0 {
		o.put(zoneTruncated, float64(z.Truncated), z.Name)
	}
}

// queries sends what is not zero: 24 types times 13 rcodes would be 312 series
// a transport, of which a server has a dozen.
func (o output) queries(s *counters.Snapshot, t counters.Transport) {
	id := counters.Queries + counters.ID(t)*counters.NumTypes*counters.NumRcodes
	for qtype := range counters.NumTypes {
		for rcode := range counters.NumRcodes {
			if s.Load(id) != 0 {
				o.count(queries, s, id, t.String(), counters.TypeName(qtype), counters.RcodeName(rcode))
			}
			id++
		}
	}
}

func (o output) latency(s *counters.Snapshot, t counters.Transport, c counters.Class) {
	first := counters.LatencyFirst(t, c)
	buckets := make(map[float64]uint64, counters.NumLatency)
	var n uint64
	for i := range counters.NumLatency {
		n += s.Load(first + counters.ID(i))
		buckets[time.Duration(counters.LatencyBound(i)).Seconds()] = n
	}
	n += s.Load(first + counters.NumLatency)
	if n == 0 {
		return
	}
	total := time.Duration(s.Load(counters.LatencyNsID(t, c))).Seconds()
	o.ch <- prometheus.MustNewConstHistogram(latency.desc(), n, total, buckets, t.String(), c.String())
}

func (o output) generations(s *Sample) {
	states := [...]directory.State{directory.Starting, directory.Active, directory.Draining, directory.Leaving}
	for _, state := range states {
		name := state.String()
		n, known, slots := 0, false, 0
		var load control.Load
		for _, g := range s.Generations {
			if g.State != name {
				continue
			}
			n++
			slots += g.FlowSlots
			if g.Load != nil {
				known = true
				load.Flows += g.Load.Flows
				load.TCP += g.Load.TCP
			}
		}
		o.put(generations, float64(n), name)
		o.put(flowSlots, float64(slots), name)
		if known {
			o.put(flows, float64(load.Flows), name)
			o.put(connections, float64(load.TCP), name)
		}
	}
	fill := 0.0
	for _, g := range s.Generations {
		fill = max(fill, g.RingFill)
		for _, p := range g.Processes {
			o.worker(g.Slot, p)
		}
		if g.RxOwner {
			o.put(epoch, float64(g.Epoch))
			o.put(workers, float64(g.Workers))
			o.put(workersReady, float64(g.Ready))
		}
	}
	o.put(ringFill, fill)
	o.put(restarts, float64(s.Respawns))
	o.put(fences, float64(s.Fences))
}

// worker sends what a worker takes; what is not known is left out.
func (o output) worker(slot int, p Process) {
	labels := []string{strconv.Itoa(slot), strconv.Itoa(p.Worker)}
	o.put(resident, float64(p.Resident), labels...)
	if p.OpenFDs > 0 {
		o.put(openFDs, float64(p.OpenFDs), labels...)
	}
	if p.MaxFDs > 0 {
		o.put(maxFDs, float64(p.MaxFDs), labels...)
	}
}

func (o output) reloads(s *Sample) {
	for _, st := range control.Steps {
		o.put(step, truth(st == s.Step), string(st))
	}
	for _, out := range control.Outcomes {
		if out != control.OutcomeCommitted { // it is on its way to another one
			o.put(reloads, float64(s.Reloads[out]), string(out))
		}
	}
	for _, why := range Refusals {
		o.put(refused, float64(s.Refusals[why]), string(why))
	}
	o.put(lapses, float64(s.Lapses))
	var left *time.Duration
	for _, g := range s.Generations {
		if d := g.DrainLeft; d != nil && (left == nil || *d > *left) {
			left = d
		}
	}
	if left != nil {
		o.put(drainLeft, left.Seconds())
	}
	r := s.LastReload
	if r == nil {
		return
	}
	o.put(reloadOK, truth(r.OK))
	o.put(reloadBegan, seconds(r.StartedAt))
	o.put(reloadDuration, r.Elapsed.Duration().Seconds())
	for _, st := range control.Steps[1:] {
		if d, ok := duration(r.Steps, st); ok {
			o.put(stepDuration, d.Seconds(), string(st))
		}
	}
	o.put(reloadGap, r.Gap.Duration().Seconds())
	o.put(reloadHanded, float64(r.Handed))
}

// duration returns how long a step took over all the times it was entered.
func duration(steps []control.StepTime, st control.Step) (d time.Duration, entered bool) {
	for _, s := range steps {
		if s.Step == st {
			d += s.Elapsed.Duration()
			entered = true
		}
	}
	return d, entered
}

func (o output) process(s *Sample) {
	o.put(build, 1, s.Version.Version, s.Version.Revision, s.Version.Go)
	o.put(started, seconds(s.StartedAt))
	o.put(standby, truth(s.Standby))
	o.put(configTime, seconds(s.ConfigLoadedAt))
	o.put(configHash, float64(s.ConfigHash))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds returns t since the Unix epoch.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
