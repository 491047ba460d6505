package e2e

import (
	"net"
	"testing"
	"time"
)

// A listener comes and goes by reload, while the others serve on undisturbed.
func TestListenerAddedAndRemoved(t *testing.T) {
	const extra = "127.0.0.1:5311"
	with := settings{workers: 2, reload: "{udp_idle: 500ms}"}
	without := with
	with.more = "  - {name: extra, address: [\"" + extra + "\"], service: identify, affinity: flow}\n"
	s := start(t, without.yaml(), zoneFiles())
	p := startProbe(t)

	s.write("dnsapp.yaml", with.yaml())
	s.reload("--wait", "commit")
	for _, network := range []string{"udp", "tcp"} {
		if tag := whoAnswers(t, network, extra); tag.Epoch != s.epoch() {
			t.Errorf("%s: the new listener is served by %+v", network, tag)
		}
	}
	// The probe's flows of identify keep the old generation alive.
	p.who.Stop(time.Second)
	s.awaitSteady()

	s.write("dnsapp.yaml", without.yaml())
	s.reload()
	if c, err := net.DialTimeout("tcp", extra, answerTimeout); err == nil {
		c.Close()
		t.Error("the removed listener still accepts")
	}
	if pc, err := net.ListenPacket("udp", extra); err != nil {
		t.Errorf("the address of the removed listener is not free: %v", err)
	} else {
		pc.Close()
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
}
