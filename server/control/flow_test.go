package control

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sampleFlow has every field set.
func sampleFlow() *FlowAnswer {
	return &FlowAnswer{
		Transport: "udp", Remote: netip.MustParseAddrPort("192.0.2.7:4711"),
		Flows: []Flow{{
			Local: netip.MustParseAddrPort("192.0.2.1:53"), Listener: "dns", Service: "dns", Affinity: "flow", Reader: 2,
			Owner:   &FlowOwner{Epoch: 1, State: "draining", Worker: 3, PID: 99, Age: Millis(12 * time.Millisecond), Packets: 255, AtLeast: true},
			Verdict: "forwarded to worker 3 of epoch 1",
			Rules:   []FlowRule{{Rule: 3, Epoch: 1, Decides: true, Reached: true, Text: "alive there"}},
			State:   "ESTABLISHED",
		}},
	}
}

func TestExplainFlow(t *testing.T) {
	want := sampleFlow()
	asked := make(chan FlowQuery, 1)
	c := client(t, serve(t, &fakeBackend{flow: func(_ context.Context, q FlowQuery) (*FlowAnswer, error) {
		asked <- q
		return want, nil
	}}))
	for _, q := range []FlowQuery{
		{Transport: "udp", Remote: netip.MustParseAddrPort("192.0.2.7:4711")},
		{Transport: "tcp", Remote: netip.MustParseAddrPort("[fe80::1%eth0]:4711"), Local: netip.MustParseAddrPort("[fe80::2]:53")},
	} {
		got, err := c.ExplainFlow(testContext(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if seen := <-asked; seen != q {
			t.Errorf("the backend was asked %+v, not %+v", seen, q)
		}
		if d := cmp.Diff(want, got, cmpAddrPort); d != "" {
			t.Errorf("answer differs (-want +got):\n%s", d)
		}
	}
	j, err := json.Marshal((&FlowAnswer{Flows: []Flow{{}}}).filled())
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.ReplaceAll(string(j), `"owner":null`, ""); strings.Contains(s, "null") {
		t.Errorf("null in %s", s)
	}
}
