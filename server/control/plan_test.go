package control

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/exit"
)

// samplePlan has every field set.
func samplePlan() *Plan {
	return &Plan{
		Accepted: true, ConfigFile: "/etc/dnsapp/dnsapp.yaml", FromEpoch: 3, After: "the reload in progress",
		Problems: []Problem{{File: "a.zone", Line: 3, Message: "no TTL"}},
		Changes:  []Change{{Key: "log.level", Old: "info", New: "debug"}},
		Zones:    []ZonePlan{{Name: "a.", File: "a.zone", New: true, Changed: true, Error: true, Serial: 2, Records: 4, OldSerial: 1, OldRecords: 3}},
		Kept:     7, Warnings: []Problem{{File: "b.zone", Line: 9, Message: "TTLs differ"}},
		Drain: &DrainPlan{Load: &Load{Flows: 3, TCP: 2}, Idle: Millis(400 * time.Millisecond), UDPIdle: Millis(10 * time.Second), AtLeast: Millis(9600 * time.Millisecond), AtMost: Millis(90 * time.Second)},
	}
}

func TestPlan(t *testing.T) {
	want := samplePlan()
	b := &fakeBackend{plan: func(context.Context) (*Plan, error) { return want, nil }}
	c := client(t, serve(t, b))
	got, err := c.Plan(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("plan differs (-want +got):\n%s", d)
	}
	if err := got.Err(); err != nil {
		t.Errorf("an accepted plan has the error %v", err)
	}
	got.Accepted = false
	err = got.Err()
	wantError(t, err, CodeRefused, "a reload would be refused", "a.zone:3: no TTL")
	if exit.Of(err) != exit.Refused {
		t.Errorf("exit code is %d", exit.Of(err))
	}

	j, err := json.Marshal((&Plan{}).filled())
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.ReplaceAll(string(j), `"drain":null`, ""); strings.Contains(s, "null") {
		t.Errorf("null in %s", s)
	}
}

func TestDrainForecast(t *testing.T) {
	ms, s := Millis(time.Millisecond), Millis(time.Second)
	for _, c := range []struct {
		d       DrainPlan
		timeout time.Duration
		least   Millis
		want    string
	}{
		{DrainPlan{Load: &Load{}}, time.Minute, 0, "nothing to finish"},
		{DrainPlan{Load: &Load{Flows: 12, TCP: 3}, Idle: 400 * ms, UDPIdle: 10 * s}, 90 * time.Second, 9600 * ms,
			"12 UDP flows, newest idle 0.4 s, 3 TCP connections; 9.6 s at least, 90 s at most"},
		{DrainPlan{Load: &Load{Flows: 1}, Idle: 10 * s, UDPIdle: 10 * s}, time.Minute, 0, "1 UDP flow, newest idle 10 s; 60 s at most"},
		{DrainPlan{Load: &Load{Flows: 1}, Idle: 0, UDPIdle: 10 * s}, 2 * time.Second, 2 * s, "1 UDP flow, newest idle 0.0 s; 2.0 s at least, 2.0 s at most"},
		{DrainPlan{Load: &Load{TCP: 1}, UDPIdle: 10 * s}, time.Minute, 0, "1 TCP connection; 60 s at most"},
		{DrainPlan{Load: &Load{TCP: 1}}, 0, 0, "1 TCP connection; not waited for"},
		{DrainPlan{UDPIdle: 10 * s}, time.Minute, 0, "not counted: the flow table is too large, or the generation is changing hands; 60 s at most"},
	} {
		c.d.Forecast(c.timeout)
		if c.d.AtLeast != c.least || c.d.AtMost.Duration() != c.timeout {
			t.Errorf("%s: at least %v, at most %v", c.want, c.d.AtLeast.Duration(), c.d.AtMost.Duration())
		}
		if got := c.d.Describe(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestChange(t *testing.T) {
	for want, c := range map[string]Change{
		"a: 1 -> 2":              {Key: "a", Old: "1", New: "2"},
		"zones[b.]: added {x}":   {Key: "zones[b.]", New: "{x}"},
		"zones[b.]: removed {x}": {Key: "zones[b.]", Old: "{x}"},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
