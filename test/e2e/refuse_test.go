package e2e

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/test/load"
)

// What cannot be done is refused with one clear error, and disturbs nothing: the
// generation, its processes and its answers stay as they are.
func TestReloadRefused(t *testing.T) {
	good := settings{workers: 2, reload: "{udp_idle: 1s}"}
	s := start(t, good.yaml(), zoneFiles())
	taken, err := net.ListenPacket("udp", "127.0.0.1:5301")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	takenTCP, err := net.Listen("tcp", "127.0.0.1:5302")
	if err != nil {
		t.Fatal(err)
	}
	defer takenTCP.Close()

	changed := func(f func(*settings)) string {
		c := good
		f(&c)
		return c.yaml()
	}
	listener := func(text string) string {
		return changed(func(c *settings) { c.more = "  - " + text + "\n" })
	}
	cases := []struct {
		name   string
		config string
		zone   string // "": the good one
		says   string
	}{
		{"unknown key", changed(func(c *settings) { c.top = "colour: red" }), "", "colour"},
		{"syntax", "name: [\n", "", "dnsapp.yaml:"},
		{"number for a duration", changed(func(c *settings) { c.reload = "{udp_idle: 5}" }), "", "reload.udp_idle"},
		{"bad address", listener(`{name: x, address: ["127.0.0.1"], service: identify}`), "", "listeners[2].address"},
		{"missing zone file", changed(func(c *settings) { c.zone = "nowhere.zone" }), "", "nowhere.zone"},
		{"broken zone", good.yaml(), "$ORIGIN example.com.\n@ 300 SOA ns1 admin 1 1 1 1 1\n@ 300 NS ns1\nns1 300 A 192.0.2.999\n", "example.com.zone:4"},
		{"taken UDP port", listener(`{name: x, address: ["127.0.0.1:5301"], transport: [udp], service: identify}`), "", "127.0.0.1:5301"},
		{"taken TCP port", listener(`{name: x, address: ["127.0.0.1:5302"], transport: [tcp], service: identify}`), "", "127.0.0.1:5302"},
		{"address that is not ours", listener(`{name: x, address: ["192.0.2.7:53"], service: identify}`), "", "192.0.2.7:53"},
		{"another user", changed(func(c *settings) { c.top = "user: root" }), "", "user"},
	}

	epoch, pids := s.epoch(), s.workers()
	p := startProbe(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			s.write("dnsapp.yaml", c.config)
			if c.zone != "" {
				s.write("example.com.zone", c.zone)
			}
			out, errs, code := s.tryCtl("reload")
			s.write("dnsapp.yaml", good.yaml())
			s.write("example.com.zone", zone(1))
			text := strings.TrimSpace(string(errs))
			t.Logf("%s", text)
			if code != 3 {
				t.Errorf("code %d, want 3; it printed:\n%s%s", code, out, errs)
			}
			if !strings.Contains(text, c.says) {
				t.Errorf("the error does not name %q", c.says)
			}
			if n := strings.Count(text, "\n"); n > 1 { // below the first line, one for each problem
				t.Errorf("one mistake makes %d lines", n+1)
			}
			if got := s.epoch(); got != epoch {
				t.Errorf("epoch %d, was %d", got, epoch)
			}
			if got := s.workers(); !slices.Equal(got, pids) {
				t.Errorf("workers %v, were %v", got, pids)
			}
		})
	}
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	if n := r.Astray(epoch); n != 0 {
		t.Errorf("%d answers came from another generation", n)
	}
	if got := s.processes(); len(got) != 1+len(pids) {
		t.Errorf("processes %v: more than the supervisor and its workers %v", got, pids)
	}

	// And after all that the right configuration is taken.
	s.reload()
	if got := s.epoch(); got <= epoch {
		t.Errorf("epoch %d after a good reload, was %d", got, epoch)
	}
}

// With overlap: refuse a reload that finds every slot taken is refused, by name.
func TestReloadBeyondSlotsRefused(t *testing.T) {
	s := start(t, settings{reload: "{udp_idle: 10s, overlap: refuse}"}.yaml(), zoneFiles())
	var flows []*load.UDP
	var reloads []*reloading
	for range directory.MaxSlots - 1 {
		g := identify(t, 10, 100)
		awaitAnswers(t, g, 20)
		r := s.startReload()
		r.awaitCommit()
		flows, reloads = append(flows, g), append(reloads, r)
	}
	_, errs, code := s.tryCtl("reload")
	if code != 3 || !strings.Contains(string(errs), "reload.overlap: epoch 1 is still draining") {
		t.Errorf("code %d, want 3 and the epoch that drains: %s", code, errs)
	}
	for i, g := range flows {
		report := g.Stop(time.Second)
		if err := report.Exact(); err != nil {
			t.Error(err)
		}
		if n := report.Astray(uint32(i + 1)); n != 0 {
			t.Errorf("%d answers to flows of epoch %d came from others", n, i+1)
		}
	}
	for _, r := range reloads {
		r.wait()
	}
}

// `dnsapp check` reports every mistake of a file at once, each with its line.
func TestCheck(t *testing.T) {
	s := newServer(t, settings{top: "colour: red", reload: "{udp_idle: 5}", zone: "nowhere.zone"}.yaml(), nil)
	out, code := s.run("check", "-c", s.config)
	if code != 1 {
		t.Errorf("code %d, want 1", code)
	}
	for _, word := range []string{"colour", "reload.udp_idle", "nowhere.zone"} {
		found := false
		for line := range strings.Lines(out) {
			found = found || strings.Contains(line, word) && strings.Contains(line, "dnsapp.yaml:")
		}
		if !found {
			t.Errorf("no line names the file and %q:\n%s", word, out)
		}
	}
	s.write("dnsapp.yaml", settings{}.yaml())
	s.write("example.com.zone", zone(1))
	if out, code := s.run("check", "-c", s.config); code != 0 {
		t.Errorf("code %d for a good configuration:\n%s", code, out)
	}
}
