package control

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sampleTraffic has every field set.
func sampleTraffic() *Traffic {
	drain := &Drain{Flows: 3, Idle: Millis(time.Second), DeadlineLeft: Millis(time.Minute)}
	drain.Reason = drain.Describe()
	return &Traffic{
		Name: "edge-1", Time: day, Uptime: Millis(time.Hour), Step: StepDrain, Reload: 2, Elapsed: Millis(time.Second),
		Total: Counts{Received: 9, Served: 4, Sibling: 1, Forwarded: 2, Dropped: 2, Ring: 3, KernelDropped: 5, Accepted: 6, Messages: 8},
		Generations: []GenerationTraffic{
			{Epoch: 2, State: "active", RxOwner: true, Workers: 2, Ready: 1, Load: &Load{Flows: 1, TCP: 2}, Counts: Counts{Received: 5}},
			{Epoch: 1, State: "draining", Workers: 2, Ready: 2, Drain: drain, Counts: Counts{Ring: 3}},
		},
		Recent: []Event{{Time: day, Seq: 9, Kind: KindDrain, Epoch: 1, Step: StepDrain, Text: "is asked what it still serves"}},
	}
}

func TestTraffic(t *testing.T) {
	want := sampleTraffic()
	c := client(t, serve(t, &fakeBackend{load: func(context.Context) (*Traffic, error) { return want, nil }}))
	got, err := c.Traffic(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("traffic differs (-want +got):\n%s", d)
	}
	j, err := json.Marshal((&Traffic{}).filled())
	if err != nil || strings.Contains(string(j), "null") {
		t.Errorf("%s, %v", j, err)
	}
}

// Since takes every count into account.
func TestCountsSince(t *testing.T) {
	now := sampleTraffic().Total
	if d := cmp.Diff(Counts{}, now.Since(now)); d != "" {
		t.Errorf("since itself (-want +got):\n%s", d)
	}
	if d := cmp.Diff(now, now.Since(Counts{})); d != "" {
		t.Errorf("since nothing (-want +got):\n%s", d)
	}
}
