package control

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/exit"
)

// sampleZone has every field set.
func sampleZone() *ZoneDetail {
	return &ZoneDetail{
		ZoneStatus: ZoneStatus{Name: "example.com.", File: "/z", Serial: 7, Records: 12, Bytes: 4096, LoadedAt: day, Error: "e"},
		Nodes:      9, Types: []TypeCount{{"A", 11}, {"SOA", 1}}, Files: []ZoneFile{{"/z", 99, day}}, Content: "abc",
		Queries:  ZoneQueries{UDP: 5, TCP: 6, NXDomain: 2, Truncated: 1},
		Warnings: []Problem{{File: "/z", Line: 3, Message: "m"}}, WarningsDropped: 4,
		Problems: []Problem{{File: "/z", Line: 5, Key: "example.com.", Message: "m"}},
	}
}

// sampleZoneReport has every field set.
func sampleZoneReport() *ZoneReport {
	return &ZoneReport{
		ID: 3, OK: true, Reason: "r", StartedAt: day, Elapsed: Millis(time.Second), Compile: Millis(900 * time.Millisecond), Swap: Millis(100 * time.Millisecond),
		Checked: 9, Changed: 2, Same: 1, Failed: 1, Workers: 4,
		Zones:    []ZoneChange{{Name: "example.com.", OldSerial: 1, Serial: 2, OldRecords: 3, Records: 4}},
		Problems: []Problem{{File: "/z", Line: 5, Key: "example.org.", Message: "m"}},
	}
}

func TestZone(t *testing.T) {
	want := sampleZone()
	c := client(t, serve(t, &fakeBackend{zone: func(_ context.Context, name string) (*ZoneDetail, error) {
		if name != "a&b=c.example." {
			return nil, Refuse("zone %s is not served", name)
		}
		return want, nil
	}}))
	got, err := c.Zone(testContext(t), "a&b=c.example.")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("zone differs (-want +got):\n%s", d)
	}
	if _, err := c.Zone(testContext(t), "x."); exit.Of(err) != exit.Refused {
		t.Errorf("unknown zone: %v", err)
	}
	if _, err := c.Zone(testContext(t), ""); exit.Of(err) != exit.Usage {
		t.Errorf("no name: %v", err)
	}
}

// The names reach the supervisor, events and report the client, also with an
// error.
func TestReloadZones(t *testing.T) {
	want := sampleZoneReport()
	c := client(t, serve(t, &fakeBackend{renew: func(_ context.Context, names []string, emit func(Event)) (*ZoneReport, error) {
		emit(Event{Text: strings.Join(names, " ")})
		if len(names) > 0 {
			return want, &Error{Code: CodeFailed, Message: "m", Problems: want.Problems}
		}
		return want, nil
	}}))
	for _, names := range [][]string{nil, {"a.", "b."}} {
		var seen []string
		got, err := c.ReloadZones(testContext(t), ZoneReloadRequest{Names: names}, func(e Event) { seen = append(seen, e.Text) })
		if (err != nil) != (names != nil) || err != nil && exit.Of(err) != exit.Failed {
			t.Errorf("%v: error %v", names, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v: report differs (-want +got):\n%s", names, d)
		}
		if !slices.Equal(seen, []string{strings.Join(names, " ")}) {
			t.Errorf("%v: events %q", names, seen)
		}
	}
}

// A zone reload that takes longer than the client waits goes on.
func TestReloadZonesTimeout(t *testing.T) {
	c := client(t, serve(t, &fakeBackend{renew: func(ctx context.Context, _ []string, emit func(Event)) (*ZoneReport, error) {
		emit(Event{Step: StepSteady, Text: "3 of 9 read"})
		<-ctx.Done()
		return nil, ctx.Err()
	}}))
	_, err := c.ReloadZones(testContext(t), ZoneReloadRequest{Timeout: Millis(time.Millisecond)}, func(Event) {})
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeDraining || !strings.Contains(e.Message, "3 of 9 read") {
		t.Errorf("error %v", err)
	}
}

// No answer has a null where a script would loop.
func TestZonesFilled(t *testing.T) {
	for _, v := range []any{(&ZoneDetail{}).filled(), (&ZoneReport{}).filled()} {
		if b, err := json.Marshal(v); err != nil || strings.Contains(string(b), "null") {
			t.Errorf("%s, %v", b, err)
		}
	}
	if (*ZoneReport)(nil).filled() != nil {
		t.Error("a missing report does not stay missing")
	}
}
