package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
)

// backend is a supervisor that is in the middle of the drain of a reload.
type backend struct {
	reload func(context.Context, control.ReloadOptions, func(control.Event)) (*control.ReloadReport, error)
	stop   func(context.Context, control.StopKind, func(control.Event)) error
	zones  func(context.Context, []string, func(control.Event)) (*control.ZoneReport, error)
	status func(context.Context) (*control.Status, error)
	loads  int // how often Traffic was asked
	flow   func(control.FlowQuery) (*control.FlowAnswer, error)
	plan   func() *control.Plan
	abort  func(context.Context) (*control.Aborted, error)
	watch  func(context.Context, int, func(control.Event)) error

	upgraded control.UpgradeRequest // the last one

	tracing, endTrace chan struct{} // closed when a trace without an end runs, and when it is to end
}

func (b *backend) Version() control.Version {
	return control.Version{Version: "v0.1.0", Revision: "f737e20", Go: "go1.26.8", API: 1}
}

func (b *backend) Zones(context.Context) ([]control.ZoneStatus, error) {
	return []control.ZoneStatus{
		{Name: "example.com.", File: "/etc/dnsapp/zones/example.com.zone", Serial: 2026010201, Records: 33, Bytes: 4096, LoadedAt: day},
		{Name: "big.example.", File: "/etc/dnsapp/zones/big.zone", Serial: 7, Records: 1_000_000, Bytes: 104 << 20, LoadedAt: day,
			Error: "/etc/dnsapp/zones/big.zone:3: www: no TTL"},
	}, nil
}

func (b *backend) Backends(context.Context) ([]control.BackendStatus, error) {
	at := netip.MustParseAddrPort
	return []control.BackendStatus{
		{Name: "app", Policy: "round-robin", Check: "udp", Servers: []control.ServerStatus{
			{Name: "a", Address: at("192.0.2.1:9000"), State: "enabled", Health: "up", Weight: 1, FileWeight: 1, Flows: 12, Begun: 3456, Sent: 98765, Received: 98760},
			{Name: "b", Address: at("[2001:db8::2]:9000"), State: "draining", Health: "down", Why: "connection refused", Weight: 5, FileWeight: 1, Backup: true, MaxFlows: 100, Refused: 3},
		}},
		{Name: "spare", Policy: "hash", Check: "none"},
	}, nil
}

func (b *backend) OrderServer(_ context.Context, req control.ServerRequest) (*control.ServerStatus, error) {
	if req.Backend != "app" || req.Server != "a" {
		return nil, control.Refuse("there is no server %s in backend %s", req.Server, req.Backend)
	}
	s := &control.ServerStatus{Name: "a", State: "enabled", Health: "up", Weight: 1, FileWeight: 1, Flows: 12}
	if req.State != "" {
		s.State = req.State
	}
	if req.Weight != nil {
		s.Weight = *req.Weight
	}
	return s, nil
}

func (b *backend) Diff(context.Context) (*control.Diff, error) {
	return &control.Diff{
		ConfigFile: "/etc/dnsapp/dnsapp.yaml",
		Orders:     []control.Change{{Key: "backends[app].servers[b].state", Old: "enabled", New: "draining"}},
		Changes:    []control.Change{{Key: "workers", Old: "1", New: "2"}},
	}, nil
}

func (b *backend) Status(ctx context.Context) (*control.Status, error) {
	if b.status != nil {
		return b.status(ctx)
	}
	drain := &control.Drain{Flows: 3, Idle: 4100 * ms, DeadlineLeft: 31 * sec}
	drain.Reason = drain.Describe()
	return &control.Status{
		Name: "edge-1", Version: "v0.1.0", PID: 10, StartedAt: day, Uptime: 3661 * sec,
		ConfigFile: "/etc/dnsapp/dnsapp.yaml", ConfigLoadedAt: day.Add(time.Hour), Admin: "127.0.0.1:9153",
		StateFile: &control.StateFile{Path: "/var/lib/dnsapp/state.json", SavedAt: day.Add(time.Hour)},
		Step:      control.StepDrain, Reload: 2, Elapsed: 1250 * ms, Zones: 2,
		Generations: []control.Generation{
			{Epoch: 2, Slot: 1, State: "active", RxOwner: true, Lanes: 2, StartedAt: day.Add(time.Hour), Workers: []control.Worker{
				{Index: 0, PID: 20, Ready: true, Uptime: 60 * sec}, {Index: 1, PID: 21, Uptime: 5 * ms, Respawns: 1},
			}, Load: &control.Load{Flows: 250, TCP: 2}},
			{Epoch: 1, State: "draining", Lanes: 2, StartedAt: day, Drain: drain, Workers: []control.Worker{
				{Index: 0, PID: 11, Ready: true, Uptime: 3660 * sec, Drain: drain}, {Index: 1, Gone: true},
			}},
		},
		Listeners: []control.Listener{
			{Name: "dns", Addresses: addrs("127.0.0.1:5353", "[::1]:5353"), Transport: []string{"udp", "tcp"}, Service: "dns", Affinity: "none"},
			{Name: "who", Addresses: addrs("127.0.0.1:5399"), Transport: []string{"udp"}, Service: "identify", Affinity: "flow"},
		},
		LastReload: sampleReport(),
		Ledger: control.Ledger{
			Received: 1000, Served: 900, Sibling: 50, Forwarded: 46, Dropped: map[string]uint64{"short": 2, "not_query": 1}, InHand: 1,
			RingTaken: 96, RingServed: 95, RingDropped: map[string]uint64{"send": 1}, KernelDropped: 4,
			TCPAccepted: 9, TCPClosed: 7, TCPQueries: 30, TCPAnswers: 30,
		},
	}, nil
}

func addrs(list ...string) (a []netip.AddrPort) {
	for _, s := range list {
		a = append(a, netip.MustParseAddrPort(s))
	}
	return a
}

func sampleReport() *control.ReloadReport {
	return &control.ReloadReport{
		ID: 2, OK: true, Outcome: control.OutcomeDone, Reason: "drained", StartedAt: day, Elapsed: 2034 * ms, FromEpoch: 1, ToEpoch: 2,
		Steps: []control.StepTime{
			{Step: control.StepPrepare, Elapsed: 3 * ms}, {Step: control.StepWindow, Elapsed: 18 * ms}, {Step: control.StepHandover, Elapsed: 2 * ms},
			{Step: control.StepDrain, Elapsed: 2005 * ms}, {Step: control.StepRelease, Elapsed: 2 * ms}, {Step: control.StepReap, Elapsed: 4 * ms},
		},
		Commit: 23 * ms, Gap: 361 * ms / 1000, DrainStart: control.Load{Flows: 3, TCP: 1, Queries: 1},
		Window: control.Ledger{Received: 100, Served: 70, Sibling: 10, Forwarded: 15, Dropped: map[string]uint64{"short": 5}},
	}
}

func (b *backend) Reload(ctx context.Context, o control.ReloadOptions, emit func(control.Event)) (*control.ReloadReport, error) {
	if b.reload != nil {
		return b.reload(ctx, o, emit)
	}
	event := func(at control.Millis, step control.Step, entered bool, text string) {
		emit(control.Event{Time: day.Add(at.Duration()), Elapsed: at, Step: step, Entered: entered, Epoch: 2, Text: text})
	}
	event(0, control.StepPrepare, true, "reading /etc/dnsapp/dnsapp.yaml")
	event(3*ms, control.StepWindow, true, "starting 2 workers")
	event(21*ms, control.StepHandover, true, "every worker is ready")
	event(23*ms, control.StepDrain, true, "committed: epoch 2 owns the wire")
	r := sampleReport()
	if o.Wait == control.WaitCommit {
		r.Outcome, r.Reason, r.Elapsed, r.Steps = control.OutcomeCommitted, "", 23*ms, r.Steps[:3]
		return r, nil
	}
	event(1023*ms, control.StepDrain, false, "3 UDP flows, newest idle 1.0 s; deadline in 89 s")
	event(2028*ms, control.StepRelease, true, "drained")
	event(2030*ms, control.StepReap, true, "rings empty")
	return r, nil
}

func (b *backend) Stop(ctx context.Context, kind control.StopKind, emit func(control.Event)) error {
	if b.stop != nil {
		return b.stop(ctx, kind, emit)
	}
	emit(control.Event{Time: day, Step: control.StepSteady, Epoch: 2, Text: "stopping: " + string(kind)})
	return nil
}

func (b *backend) Plan(context.Context) (*control.Plan, error) {
	if b.plan != nil {
		return b.plan(), nil
	}
	drain := &control.DrainPlan{Load: &control.Load{Flows: 12, TCP: 3}, Idle: 400 * ms, UDPIdle: 10 * sec}
	drain.Forecast(90 * time.Second)
	return &control.Plan{
		Accepted: true, ConfigFile: "/etc/dnsapp/dnsapp.yaml", FromEpoch: 2, After: "the reload in progress", Drain: drain,
		Changes: []control.Change{
			{Key: "log.level", Old: "info", New: "debug"},
			{Key: "zones[new.example.]", New: "{name: new.example., file: /etc/dnsapp/zones/new.zone}"},
		},
		Zones: []control.ZonePlan{
			{Name: "new.example.", File: "/etc/dnsapp/zones/new.zone", New: true, Changed: true, Serial: 1, Records: 1},
			{Name: "example.com.", File: "/etc/dnsapp/zones/example.com.zone", Changed: true, Serial: 2, Records: 35, OldSerial: 1, OldRecords: 33},
			{Name: "same.example.", File: "/etc/dnsapp/zones/same.zone", Serial: 5, Records: 9, OldSerial: 5, OldRecords: 9},
		},
		Kept: 2, Warnings: []control.Problem{{File: "/etc/dnsapp/zones/new.zone", Line: 9, Message: "the TTLs of one set differ"}},
	}, nil
}

// Traffic counts on by a fixed amount every half second of its own clock: a
// reload from epoch 1 to 2 begins between the first two samples.
func (b *backend) Traffic(context.Context) (*control.Traffic, error) {
	n := uint64(b.loads)
	b.loads++
	t := &control.Traffic{
		Name: "edge-1", Time: day.Add(time.Duration(n) * 500 * time.Millisecond), Uptime: 3661 * sec, Step: control.StepSteady,
		Total: control.Counts{Received: 9000 + n*6172, Served: 8900 + n*6100, Forwarded: n * 70, Dropped: 100 + n*2, Ring: n * 70, KernelDropped: 3, Messages: n},
		Generations: []control.GenerationTraffic{{
			Epoch: 1, State: "active", RxOwner: true, Workers: 2, Ready: 2, Load: &control.Load{Flows: 12, TCP: 3}, Counts: control.Counts{Received: 9000, Served: 8900, Dropped: 100},
		}},
		Recent: []control.Event{{Time: day, Kind: control.KindRequest, Reload: 2, Text: "reload 2 is wanted (graceful)"}},
	}
	if n == 0 {
		return t, nil
	}
	drain := &control.Drain{Flows: 12, Idle: 40 * ms, TCP: 3, DeadlineLeft: 31 * sec}
	drain.Reason = drain.Describe()
	old := &t.Generations[0]
	old.State, old.RxOwner, old.Load, old.Drain = "draining", false, nil, drain
	old.Counts.Ring += n * 70
	t.Step, t.Reload, t.Elapsed = control.StepDrain, 2, 450*ms
	t.Generations = append([]control.GenerationTraffic{{
		Epoch: 2, State: "active", RxOwner: true, Workers: 2, Ready: 1, Counts: control.Counts{Received: n * 6172, Served: n * 6100, Forwarded: n * 70, Dropped: n * 2, Messages: n},
	}}, t.Generations...)
	return t, nil
}

func (b *backend) ExplainFlow(_ context.Context, q control.FlowQuery) (*control.FlowAnswer, error) {
	if b.flow != nil {
		return b.flow(q)
	}
	if q.Transport == "tcp" {
		return &control.FlowAnswer{Transport: "tcp", Remote: q.Remote, Flows: []control.Flow{{
			Local: netip.MustParseAddrPort("127.0.0.1:5353"), Listener: "dns", Service: "dns", Affinity: "none", Reader: 2, State: "ESTABLISHED",
			Owner:   &control.FlowOwner{Epoch: 2, State: "active", PID: 20},
			Verdict: "served by worker 0 of epoch 2, to its end",
		}}}, nil
	}
	return &control.FlowAnswer{Transport: "udp", Remote: q.Remote, Flows: []control.Flow{
		{
			Local: netip.MustParseAddrPort("127.0.0.1:5353"), Listener: "dns", Service: "dns", Affinity: "none", Reader: 2,
			Verdict: "served by whichever worker of epoch 2 reads it",
			Rules: []control.FlowRule{
				{Epoch: 2, Decides: true, Reached: true, Text: "affinity none: no flow is recorded, the reader serves every datagram"},
			},
		},
		{
			Local: netip.MustParseAddrPort("127.0.0.1:5399"), Listener: "who", Service: "identify", Affinity: "flow", Reader: 2,
			Owner:   &control.FlowOwner{Epoch: 1, State: "draining", Worker: 1, Age: 130 * ms, Packets: 255, AtLeast: true},
			Verdict: "forwarded to worker 1 of epoch 1",
			Rules: []control.FlowRule{
				{Rule: 1, Reached: true, Text: "not a QUIC listener"},
				{Rule: 2, Epoch: 2, Reached: true, Text: "not in its table"},
				{Rule: 3, Epoch: 1, Reached: true, Decides: true, Text: "alive: worker 1, 255 packets or more, the last one 130ms ago; it publishes, so its flows are forwarded to it"},
				{Rule: 4, Epoch: 2, Text: "whoever reads it serves it and records the flow"},
			},
		},
	}}, nil
}

func (b *backend) Abort(ctx context.Context) (*control.Aborted, error) {
	if b.abort != nil {
		return b.abort(ctx)
	}
	return &control.Aborted{Epoch: 2}, nil
}

func (b *backend) Drain(_ context.Context, epoch uint32, now bool, emit func(control.Event)) error {
	switch epoch {
	case 1:
	case 2:
		return control.Refuse("epoch 2 does not drain: it is active")
	default:
		return control.Refuse("there is no epoch %d (there are 1, 2)", epoch)
	}
	emit(control.Event{Time: day, Step: control.StepDrain, Epoch: epoch, Text: "3 UDP flows, newest idle 4.1 s; deadline in 31 s"})
	why := "drained"
	if now {
		why = "ended on request"
	}
	emit(control.Event{Time: day, Elapsed: 5 * ms, Step: control.StepRelease, Entered: true, Epoch: epoch, Text: "draining -> handing: " + why})
	return nil
}

func (b *backend) Upgrade(_ context.Context, req control.UpgradeRequest, emit func(control.Event)) (*control.ReloadReport, error) {
	b.upgraded = req
	if req.Action == control.UpgradeDrainOld {
		return nil, nil
	}
	emit(control.Event{Time: day, Text: "pid 30, v0.2.0, takes over"})
	return &control.ReloadReport{OK: true, Outcome: control.OutcomeDone, Reason: "drained", FromEpoch: 2, ToEpoch: 3, Elapsed: 1 * sec}, nil
}

// Trace writes two octets of a file, and waits for EndTrace if there is no count.
func (b *backend) Trace(ctx context.Context, req control.TraceRequest, out io.Writer) (*control.TraceReport, error) {
	if req.Filter == "arp" {
		return nil, control.Refuse("a trace runs already: end it first, or wait for its end")
	}
	if _, err := out.Write([]byte("ng")); err != nil {
		return nil, err
	}
	reason := "as many packets as were asked for"
	if req.Count == 0 {
		close(b.tracing)
		select {
		case <-b.endTrace:
			reason = "ended on request"
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &control.TraceReport{
		Packets: req.Count, Bytes: 60 * req.Count, Dropped: 3, Elapsed: 1500 * ms, Reason: reason,
		Workers: []control.TraceWorker{{Epoch: 1, Packets: 1}, {Epoch: 2, Worker: 1, Packets: req.Count - 1, Dropped: 3}},
	}, nil
}

func (b *backend) EndTrace(context.Context) error {
	close(b.endTrace)
	return nil
}

func (b *backend) Watch(ctx context.Context, last int, emit func(control.Event)) error {
	if b.watch != nil {
		return b.watch(ctx, last, emit)
	}
	worker := 0
	for _, e := range []control.Event{
		{Seq: 40, Kind: control.KindRequest, Reload: 2, Step: control.StepSteady, Text: "reload 2 is wanted (graceful)"},
		{Seq: 41, Kind: control.KindMachine, Reload: 2, Elapsed: 3 * ms, Step: control.StepWindow, Entered: true, Epoch: 2, Text: "preparing -> starting"},
		{Seq: 42, Kind: control.KindWorker, Reload: 2, Elapsed: 20 * ms, Step: control.StepWindow, Epoch: 2, Worker: &worker, Text: "is ready, pid 20"},
		{Seq: 50, Step: control.StepWindow, Text: "7 events left out: the reader was too slow"},
		{Seq: 51, Kind: control.KindLanes, Step: control.StepHandover, Text: "every lane has stopped reading"},
	}[max(0, 5-last):] {
		e.Time = day.Add(e.Elapsed.Duration())
		emit(e)
	}
	return nil
}

// serve serves b and returns the path of its control socket.
func serve(t *testing.T, b control.Backend) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl") //nolint:usetesting // t.TempDir would be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	s := control.NewServer(b, slog.New(slog.DiscardHandler))
	path := filepath.Join(dir, "control.sock")
	if err := s.Listen(path); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Shutdown(ctx), <-ended, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return path
}

// ctl runs dnsappctl against the socket at path.
func ctl(t *testing.T, path string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{out: &out, err: &errs, env: environment(path)}
	code = a.run(t.Context(), args)
	return out.String(), errs.String(), code
}

func environment(path string) func(string) (string, bool) {
	return func(name string) (string, bool) { return path, name == "DNSAPP_CONTROL" }
}
