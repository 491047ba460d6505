package control

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/shm"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

var cmpAddrPort = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// sampleStatus has every field set.
func sampleStatus() *Status {
	drain := &Drain{
		Flows: 3, Idle: Millis(4100 * time.Millisecond), TCP: 2, HalfOpen: 1, Queries: 5, QUIC: 4, Unsent: 100,
		DeadlineLeft: Millis(31 * time.Second),
	}
	drain.Reason = drain.Describe()
	ledger := Ledger{
		Received: 100, Served: 70, Sibling: 10, Forwarded: 15, Dropped: map[string]uint64{"short": 4}, InHand: 1,
		RingTaken: 25, RingServed: 24, RingDropped: map[string]uint64{"send": 1}, KernelDropped: 2,
		TCPAccepted: 9, TCPClosed: 7, TCPQueries: 30, TCPAnswers: 29, TCPDropped: map[string]uint64{"limit": 1},
	}
	return &Status{
		Name: "edge-1", Version: "v0.1.0", PID: 10, StartedAt: day, Uptime: Millis(time.Hour),
		ConfigFile: "/etc/dnsapp/dnsapp.yaml", ConfigLoadedAt: day, Admin: "127.0.0.1:9153", StateFile: &StateFile{Path: "/var/lib/dnsapp/state.json", SavedAt: day, Error: "disk full"}, Step: StepDrain, Reload: 2, Elapsed: Millis(time.Second),
		Generations: []Generation{
			{Epoch: 2, Slot: 1, State: "active", RxOwner: true, Lanes: 2, StartedAt: day, Workers: []Worker{
				{Index: 0, PID: 20, Ready: true, Uptime: Millis(time.Minute)},
			}, Load: &Load{Flows: 7, TCP: 1}},
			{Epoch: 1, Slot: 0, State: "draining", Lanes: 2, StartedAt: day, Drain: drain, Workers: []Worker{
				{Index: 0, PID: 11, Gone: true, Uptime: Millis(2 * time.Minute), Respawns: 1, Drain: drain},
			}},
		},
		Listeners: []Listener{{
			Name: "dns", Addresses: []netip.AddrPort{netip.MustParseAddrPort("[::1]:53")}, Transport: []string{"udp", "tcp"},
			Service: "dns", Affinity: "none",
		}},
		Zones: 3,
		LastReload: &ReloadReport{
			ID: 1, OK: true, Outcome: OutcomeDone, Reason: "-", StartedAt: day, Elapsed: Millis(2 * time.Second),
			FromEpoch: 1, ToEpoch: 2, Steps: []StepTime{{StepPrepare, Millis(1500 * time.Microsecond)}},
			Commit: Millis(23 * time.Millisecond), Gap: Millis(361 * time.Microsecond), DrainStart: Load{Flows: 3, TCP: 2, Queries: 1}, DrainEnd: Load{Flows: 1},
			Handed: 1, Window: ledger, Problems: []Problem{{File: "a.zone", Line: 3, Key: "www", Message: "no TTL", Want: "want $TTL"}},
		},
		Ledger: ledger,
	}
}

// The JSON form is an interface: names, types and units stay.
func TestGoldenJSON(t *testing.T) {
	for name, v := range map[string]any{
		"status":      sampleStatus(),
		"zone":        ZoneStatus{Name: "example.com.", File: "/z", Serial: 7, Records: 12, Bytes: 4096, LoadedAt: day, Error: "e"},
		"zone-detail": sampleZone(),
		"zone-report": sampleZoneReport(),
		"line":        Line{Event: &Event{Time: day, Elapsed: 1, Step: StepWindow, Entered: true, Epoch: 2, Text: "t"}, Error: &Error{Code: CodeRefused, Message: "m"}, Done: true},
		"event":       Event{Time: day, Elapsed: 1, Step: StepWindow, Entered: true, Epoch: 2, Text: "t", Seq: 9, Kind: KindWorker, Reload: 1, Worker: new(int)},
		"plan":        samplePlan(),
		"flow":        sampleFlow(),
		"traffic":     sampleTraffic(),
		"version":     Version{Version: "v0.1.0", Revision: "abc", Go: "go1.26", API: 1},
	} {
		got, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".json")
		if *rewrite {
			if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)+"\n"); d != "" {
			t.Errorf("%s differs (-want +got), -rewrite accepts it:\n%s", file, d)
		}
	}
}

// No answer has a null where a script would loop.
func TestFilled(t *testing.T) {
	s := (&Status{Generations: []Generation{{}}, Listeners: []Listener{{}}, LastReload: &ReloadReport{}}).filled()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.NewReplacer(`"drain":null`, "", `"load":null`, "", `"standby":null`, "", `"state_file":null`, "").Replace(string(b)); strings.Contains(got, "null") {
		t.Errorf("null in %s", got)
	}
	if (*ReloadReport)(nil).filled() != nil {
		t.Error("a missing report does not stay missing")
	}
}

func TestMillis(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0"}, {time.Second, "1000"}, {361 * time.Microsecond, "0.361"}, {361499 * time.Nanosecond, "0.361"},
		{-time.Millisecond, "-1"}, {24 * time.Hour, "86400000"},
	} {
		b, err := json.Marshal(Millis(c.d))
		if err != nil || string(b) != c.want {
			t.Errorf("%v is %s, %v; want %s", c.d, b, err, c.want)
		}
		var m Millis
		if err := json.Unmarshal(b, &m); err != nil || m.Duration() != c.d.Round(time.Microsecond) {
			t.Errorf("%s is %v, %v; want %v", b, m.Duration(), err, c.d)
		}
	}
	for _, bad := range []string{`"1"`, "1e300", "-1e300", "9223372036855", "null", "{}"} {
		var m Millis
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s is read as %v", bad, m.Duration())
		}
	}
}

func TestDescribe(t *testing.T) {
	s, ms := Millis(time.Second), Millis(time.Millisecond)
	for _, c := range []struct {
		d    Drain
		want string
	}{
		{Drain{Flows: 3, Idle: 4100 * ms, DeadlineLeft: 31 * s}, "3 UDP flows, newest idle 4.1 s; deadline in 31 s"},
		{Drain{Flows: 1, Idle: 40 * ms, TCP: 1, DeadlineLeft: 9500 * ms}, "1 UDP flow, idle 0.0 s, 1 TCP connection; deadline in 9.5 s"},
		{Drain{HalfOpen: 2, Queries: 1, QUIC: 2, Unsent: 1, DeadlineLeft: s}, "2 half-open TCP connections, 1 query in flight, 2 QUIC connections, 1 byte unsent; deadline in 1.0 s"},
		{Drain{DeadlineLeft: s}, "nothing more"},
		{Drain{TCP: 2}, "2 TCP connections; handing over what is left"},
	} {
		if got := c.d.Describe(); got != c.want {
			t.Errorf("%+v is %q, want %q", c.d, got, c.want)
		}
	}
}

func TestLedger(t *testing.T) {
	set, err := counters.Format(shm.Heap(counters.RegionSize))
	if err != nil {
		t.Fatal(err)
	}
	b := set.Block(1, 0)
	read := func() Ledger {
		var s counters.Snapshot
		set.Read(&s, []counters.Live{{Slot: 1, Epoch: 1, Lanes: 1}})
		return LedgerOf(&s)
	}
	b.Add(counters.Received, 10)
	b.Add(counters.Served, 4)
	b.Add(counters.Sibling, 1)
	b.Add(counters.ForwardedTo, 1)
	b.Add(counters.ForwardedTo+3, 1)
	b.Add(counters.Dropped+counters.ID(counters.DropShort), 2)
	first := read()
	want := Ledger{
		Received: 10, Served: 4, Sibling: 1, Forwarded: 2, Dropped: map[string]uint64{"short": 2}, InHand: 1,
		RingDropped: map[string]uint64{}, TCPDropped: map[string]uint64{},
	}
	if d := cmp.Diff(want, first); d != "" {
		t.Errorf("ledger differs (-want +got):\n%s", d)
	}

	b.Add(counters.Received, 2)
	b.Add(counters.Dropped+counters.ID(counters.DropShort), 1)
	b.Add(counters.Dropped+counters.ID(counters.DropLimit), 2)
	b.Add(counters.FromSibling, 3)
	b.Add(counters.ForwardedFrom+2, 2)
	b.Add(counters.ServedRing, 4)
	b.Add(counters.DroppedRing+counters.ID(counters.DropSend), 1)
	b.Add(counters.KernelDrops, 5)
	b.Add(counters.TCPAccepted, 6)
	b.Add(counters.TCPClosed, 5)
	b.Add(counters.TCPQueries, 8)
	b.Add(counters.TCPAnswers, 7)
	b.Add(counters.DroppedTCP+counters.ID(counters.DropLimit), 1)
	want = Ledger{
		Received: 2, Dropped: map[string]uint64{"short": 1, "limit": 2}, InHand: -1,
		RingTaken: 5, RingServed: 4, RingDropped: map[string]uint64{"send": 1}, KernelDropped: 5,
		TCPAccepted: 6, TCPClosed: 5, TCPQueries: 8, TCPAnswers: 7, TCPDropped: map[string]uint64{"limit": 1},
	}
	if d := cmp.Diff(want, read().Since(first)); d != "" {
		t.Errorf("difference differs (-want +got):\n%s", d)
	}
}
