package load

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// runUDP sends until n requests have left, and returns the final report.
func runUDP(t *testing.T, c UDPConfig, n uint64) Report {
	t.Helper()
	g, err := StartUDP(c)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	await(t, func() bool { return g.Report().Sent >= n })
	return g.Stop(500 * time.Millisecond)
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("nothing came of it in 20 s")
		}
	}
}

func dns(t *testing.T, queries ...Query) *DNS {
	t.Helper()
	p, err := NewDNS(queries)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Hundreds of flows of both families, told apart by address and by port, and
// every answer accounted for by its generation.
func TestUDPExact(t *testing.T) {
	g4, g6 := serveUDP(t, "127.0.0.1", identifies(3)), serveUDP(t, "::1", identifies(4))
	r := runUDP(t, UDPConfig{Targets: []netip.AddrPort{g4, g6}, Flows: 301, Rate: 5000, Protocol: Identify{}}, 2000)
	if err := r.Exact(); err != nil {
		t.Fatal(err)
	}
	epochs := r.Epochs()
	if epochs[3]+epochs[4] != r.Sent || epochs[3] == 0 || epochs[4] == 0 {
		t.Errorf("answers by epoch: %v of %d", epochs, r.Sent)
	}
	if got := r.Astray(3); got != epochs[4] {
		t.Errorf("Astray(3) = %d, want %d", got, epochs[4])
	}
	for tag := range r.Tags {
		if want := (Tag{Epoch: tag.Epoch, Lane: 1, PID: 77, Config: "edge 1"}); tag != want {
			t.Errorf("tag %+v, want %+v", tag, want)
		}
	}
}

// What a server does wrong is found and told apart.
func TestUDPFaults(t *testing.T) {
	right := answers(NoError)
	once := func(n int, at func([]byte) [][]byte) reply {
		return func(i int, q []byte) [][]byte {
			if i == n {
				return at(q)
			}
			return right(i, q)
		}
	}
	var held []byte
	for name, c := range map[string]struct {
		server reply
		check  func(Report) bool
		says   string
	}{
		"lost":     {once(50, func([]byte) [][]byte { return nil }), func(r Report) bool { return r.Lost() == 1 }, "1 lost"},
		"twice":    {once(50, func(q []byte) [][]byte { return append(right(0, q), right(0, q)...) }), func(r Report) bool { return r.Duplicate == 1 && r.Lost() == 0 }, "1 answered twice"},
		"other id": {once(50, func(q []byte) [][]byte { a := right(0, q); a[0][0] ^= 0x80; return a }), func(r Report) bool { return r.Stray == 1 && r.Lost() == 1 }, "1 stray"},
		"rcode":    {once(50, func(q []byte) [][]byte { return answers(NXDomain)(0, q) }), func(r Report) bool { return r.Malformed == 1 }, "rcode 3, not 0"},
		"question": {once(50, func(q []byte) [][]byte { a := right(0, q); a[0][14] ^= 0x20; return a }), func(r Report) bool { return r.Malformed == 1 }, "question is not echoed"},
		"no QR":    {once(50, func(q []byte) [][]byte { return [][]byte{q} }), func(r Report) bool { return r.Malformed == 1 }, "QR is clear"},
		"out of row": {func(i int, q []byte) [][]byte {
			switch a := right(i, q); i {
			case 50:
				held = a[0]
				return nil
			case 53:
				return append(a, held)
			default:
				return a
			}
		}, func(r Report) bool { return r.Reordered == 1 && r.Exact() == nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := dns(t, Query{Name: "www.example.com", Type: 1}, Query{Name: "Mail.example.com.", Type: 15, EDNS: 1232})
			r := runUDP(t, UDPConfig{Targets: []netip.AddrPort{serveUDP(t, "127.0.0.1", c.server)}, Flows: 1, Rate: 2000, Protocol: p}, 200)
			if !c.check(r) {
				t.Errorf("report: %v; %v", r, r.Errors)
			}
			if err := r.Exact(); c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("Exact() = %v, want it to say %q", err, c.says)
			}
		})
	}
}

// Without an id in the answers, one too few and one too many still show.
func TestIdentifyFaults(t *testing.T) {
	right := identifies(1)
	r := runUDP(t, UDPConfig{
		Targets: []netip.AddrPort{serveUDP(t, "127.0.0.1", func(i int, q []byte) [][]byte {
			switch i {
			case 20:
				return append(right(i, q), right(i, q)...)
			case 50:
				return nil
			}
			return right(i, q)
		})},
		Flows: 40, Rate: 2000, Protocol: Identify{},
	}, 200)
	if r.Duplicate != 1 || r.Lost() != 1 || r.Stray != 0 {
		t.Errorf("report: %v; %v", r, r.Errors)
	}
}

// One-shot flows: each asks once, then the group falls silent by itself.
func TestUDPOnce(t *testing.T) {
	g, err := StartUDP(UDPConfig{
		Targets: []netip.AddrPort{serveUDP(t, "127.0.0.1", identifies(1))}, Flows: 300, Rate: 3000, Protocol: Identify{}, Once: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	await(t, func() bool { return g.Report().Answered == 300 })
	if r := g.Stop(0); r.Sent != 300 || r.Exact() != nil {
		t.Errorf("report: %v: %v", r, r.Exact())
	}
}

// Nobody listens: all is lost, and Stop returns when the grace is over.
func TestUDPGraceIsBounded(t *testing.T) {
	r := runUDP(t, UDPConfig{Targets: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}, Flows: 2, Rate: 1000, Protocol: Identify{}}, 100)
	if r.Lost() != r.Sent || r.Exact() == nil {
		t.Errorf("report: %v", r)
	}
}

// A rate that cannot be made is skipped and admitted, not made up for later.
func TestUDPFallsBehind(t *testing.T) {
	g, err := StartUDP(UDPConfig{Targets: []netip.AddrPort{serveUDP(t, "127.0.0.1", identifies(1))}, Flows: 1, Rate: 1e9, Protocol: Identify{}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	await(t, func() bool { return g.Report().Skipped > 0 })
	r := g.Stop(0)
	if !r.Behind() || !strings.Contains(r.String(), "FELL BEHIND") {
		t.Errorf("report: %v", r)
	}
	if r.Offered != r.Sent+r.Skipped {
		t.Errorf("offered %d, sent %d and skipped %d", r.Offered, r.Sent, r.Skipped)
	}
}

// The generator's own full queue is not the server's loss.
func TestUDPOwnDropsAreNamed(t *testing.T) {
	r := Report{Sent: 10, Answered: 9, KernelDrops: 1}
	if err := r.Exact(); err == nil || !strings.Contains(err.Error(), "1 dropped by the generator's own kernel queue") {
		t.Errorf("Exact() = %v", err)
	}
}

func runTCP(t *testing.T, c TCPConfig, n uint64) Report {
	t.Helper()
	g, err := StartTCP(c)
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { r := g.Report(); return r.Sent+r.Refused >= n })
	return g.Stop(500 * time.Millisecond)
}

func TestTCP(t *testing.T) {
	p := dns(t, Query{Name: "www.example.com", Type: 1})
	for name, c := range map[string]struct {
		perConn   int // of the client
		closes    int // server, after so many
		cut       bool
		connected func(r Report) bool
		exact     bool
	}{
		"persistent":           {0, 0, false, func(r Report) bool { return r.Connected == 3 && r.ServerClose == 0 }, true},
		"connection per query": {1, 0, false, func(r Report) bool { return r.Connected == r.Sent && r.ServerClose == 0 }, true},
		"ten a connection":     {10, 0, false, func(r Report) bool { return r.Connected >= r.Sent/10 && r.Connected <= r.Sent/10+3 }, true},
		"server closes":        {0, 20, false, func(r Report) bool { return r.ServerClose > 0 && r.Connected > 3 }, true},
		"server cuts off":      {0, 20, true, func(r Report) bool { return r.CutOff > 0 && r.Lost() >= r.CutOff }, false},
	} {
		t.Run(name, func(t *testing.T) {
			target := serveTCP(t, c.closes, c.cut, answers(NoError))
			r := runTCP(t, TCPConfig{Targets: []netip.AddrPort{target}, Clients: 3, Rate: 600, PerConn: c.perConn, Protocol: p}, 150)
			if !c.connected(r) {
				t.Errorf("report: %v", r)
			}
			if err := r.Exact(); (err == nil) != c.exact {
				t.Errorf("Exact() = %v", err)
			}
		})
	}
}

// A client that is asked to go takes a new connection, and loses nothing.
func TestTCPLeavesWhenAsked(t *testing.T) {
	target := serveTCP(t, 0, false, func(n int, q []byte) [][]byte {
		a := append([]byte(nil), q...)
		a[2] = 0x80
		timeout := byte(10)
		if n%20 == 0 {
			timeout = 0
		}
		a[len(a)-5], a[len(a)-1] = 6, 2 // RDLEN and option length: now with a time-out
		return [][]byte{append(a, 0, timeout)}
	})
	p := dns(t, Query{Name: "www.example.com", Type: 1, EDNS: 1232, Keepalive: true})
	r := runTCP(t, TCPConfig{Targets: []netip.AddrPort{target}, Clients: 3, Rate: 600, Protocol: p}, 200)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	if r.Connected < 9 || r.ServerClose != 0 {
		t.Errorf("report: %v", r)
	}
}

func TestTCPRefused(t *testing.T) {
	r := runTCP(t, TCPConfig{Targets: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:9")}, Clients: 2, Rate: 100, Protocol: Identify{}}, 10)
	if r.Refused == 0 || r.Sent != 0 || r.Exact() == nil {
		t.Errorf("report: %v", r)
	}
}

// A TXT answer of class CH tells the generation, by id.
func TestDNSTag(t *testing.T) {
	p := dns(t, Query{Name: "generation.dnsapp", Type: 16, Class: 3})
	text := "epoch=9 worker=1 lane=0 pid=5 config=c"
	server := func(_ int, q []byte) [][]byte {
		a := append([]byte(nil), q...)
		a[2], a[7] = 0x84, 1
		a = append(a, 0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, byte(len(text)+1), byte(len(text)))
		return [][]byte{append(a, text...)}
	}
	r := runUDP(t, UDPConfig{Targets: []netip.AddrPort{serveUDP(t, "127.0.0.1", server)}, Flows: 5, Rate: 1000, Protocol: p}, 50)
	if err := r.Exact(); err != nil {
		t.Fatal(err)
	}
	if n := r.Tags[Tag{9, 1, 0, 5, "c"}]; n != r.Sent {
		t.Errorf("tags: %v", r.Tags)
	}
}

func TestParseTagRefuses(t *testing.T) {
	for _, s := range []string{
		"", "epoch=1", "epoch=1 worker=0 lane=0 pid=1", "epoch= worker=0 lane=0 pid=1 config=x",
		"epoch=-1 worker=0 lane=0 pid=1 config=x", "worker=0 epoch=1 lane=0 pid=1 config=x", "epoch=4294967296 worker=0 lane=0 pid=1 config=x",
	} {
		if tag, err := ParseTag([]byte(s)); err == nil {
			t.Errorf("ParseTag(%q) = %+v", s, tag)
		}
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	for i := range 1000 {
		h.Add(time.Duration(i) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: 999 * time.Microsecond} {
		if got := h.Quantile(q); got < want || got > want+want/16 {
			t.Errorf("quantile %v is %v, want %v within a sixteenth", q, got, want)
		}
	}
	h.Add(-1)
	h.Add(1<<63 - 1)
	earlier := h
	h.Add(time.Second)
	h.Add(time.Second)
	if d := h.Since(&earlier); d.Count() != 2 || d.Quantile(0) < time.Second {
		t.Errorf("%d durations from %v on were added since", d.Count(), d.Quantile(0))
	}
	if h.Quantile(1) < 1<<62 {
		t.Errorf("the longest duration reads %v", h.Quantile(1))
	}
}

// A closed-loop run counts what is answered, what is wrong and what is lost, with
// one flow for each socket and with many.
func TestSaturation(t *testing.T) {
	for _, flows := range []int{0, 3} {
		target := serveUDP(t, "127.0.0.1", func(n int, q []byte) [][]byte {
			switch {
			case n == 500:
				return nil
			case n%100 == 99:
				return answers(NXDomain)(n, q)
			}
			return answers(NoError)(n, q)
		})
		var began, ended bool
		r, err := Saturation{
			Target: target, Sockets: 2, Queries: []Query{{Name: "a.example", Type: 1}, {Name: "b.example", Type: 1}}, Flows: flows,
			Length: 10 * lostAfter, Begin: func() { began = true }, End: func() { ended = true },
		}.Run()
		if err != nil {
			t.Fatal(err)
		}
		if !began || !ended || r.Answered < 500 || r.Elapsed < 10*lostAfter {
			t.Errorf("%d flows: %+v, began %v, ended %v", flows, r, began, ended)
		}
		// What a busy machine delays beyond lostAfter is lost, too: the counts are at
		// least those of the server.
		if r.Wrong < r.Answered/200 || r.Wrong > r.Answered/50 {
			t.Errorf("%d flows: %d wrong answers of %d, want one in a hundred", flows, r.Wrong, r.Answered)
		}
		if r.Lost == 0 {
			t.Errorf("%d flows: no query was lost, want 1", flows)
		}
	}
	if _, err := (Saturation{Flows: MaxFlows + 1}).Run(); err == nil {
		t.Error("more flows than there are addresses were accepted")
	}
}

// The flows of a closed-loop run come from as many addresses, in turn.
func TestSaturationSources(t *testing.T) {
	const flows = 300
	var mu sync.Mutex
	asked := map[netip.AddrPort]int{}
	target := serveClients(t, "127.0.0.1", func(_ int, client netip.AddrPort, q []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		asked[client]++
		return answers(NoError)(0, q)
	})
	r, err := Saturation{
		Target: target, Sockets: 1, Queries: []Query{{Name: "a.example", Type: 1}}, Flows: flows,
		Length: 10 * lostAfter, Begin: func() {}, End: func() {},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	low, high := int(r.Answered), 0
	for _, n := range asked {
		low, high = min(low, n), max(high, n)
	}
	if len(asked) != flows || high-low > 1 {
		t.Errorf("%d clients have asked between %d and %d times, want %d in turn", len(asked), low, high, flows)
	}
}
