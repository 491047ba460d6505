package proxy_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/udpflow/proxy"
)

func options() proxy.Options {
	return proxy.Options{Timeout: time.Minute, Quarantine: time.Minute, Flows: 100, ClientFlows: 100}
}

// A flow has one port at its server, and other flows have others.
func TestFlowKeepsItsPort(t *testing.T) {
	r := newRig(t, options(), 1, 1)
	seen := map[netip.AddrPort]bool{}
	for i := range 3 {
		c := r.client()
		var port netip.AddrPort
		for n := range 4 {
			text := fmt.Sprint("flow ", i, " datagram ", n)
			r.send(c, text)
			got, from := r.arrived(0)
			r.want("the server has", got, text)
			if n == 0 {
				if port = from; seen[port] {
					t.Errorf("port %v has two flows", port)
				}
				seen[port] = true
			}
			r.want("port", from, port)
			r.answer(0, from, "answer to "+text)
			r.want("the client has", r.got(c), "answer to "+text)
		}
	}
	r.want("flows", r.flows(), 3)
	r.want("out", r.count(counters.ProxyOut), uint64(12))
	r.want("in", r.count(counters.ProxyIn), uint64(12))
	r.want("sent", r.count(counters.Sent), uint64(12))
}

// Datagrams of one flow in a burst keep their order, whatever their sizes; also
// the largest there is, and empty ones.
func TestBurstKeepsOrderAndSizes(t *testing.T) {
	r := newRig(t, options(), 1, 1)
	c := r.client()
	var texts []string
	for i, size := range []int{100, 100, 100, 50, 0, 100, 100, 65507, 1400, 1400, 1400, 1400, 7, 20000, 20000} {
		text := fmt.Sprintf("%03d", i)
		text = (text + strings.Repeat("x", max(size-3, 0)))[:size]
		texts = append(texts, text)
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	received := 0
	r.until("all are received", func() bool {
		received += len(r.lanes[0].receive())
		return received == len(texts)
	})
	var port netip.AddrPort
	for i, want := range texts {
		got, from := r.arrived(0)
		if port = from; got != want {
			t.Fatalf("datagram %d has %d octets, beginning with %.3q; want %d, %.3q", i, len(got), got, len(want), want)
		}
	}
	for _, text := range texts {
		r.answer(0, port, text)
		if got := r.got(c); got != text {
			t.Fatalf("an answer has %d octets, want %d", len(got), len(text))
		}
	}
}

// Answers that the kernel gives as one packet count as what they are, and reach the
// client as they were sent; so do those that come too late.
func TestAnswersInOnePacket(t *testing.T) {
	o := options()
	o.Responses = 10
	r := newRig(t, o, 1, 1)
	raw, err := r.servers[0].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 4) }), err); err != nil {
		t.Skip("SKIPPED: the kernel cuts nothing (UDP_SEGMENT, Linux 4.18): ", err)
	}
	c := r.client()
	r.send(c, "ask")
	_, port := r.arrived(0)
	r.answer(0, port, "0000111122223333444")
	for _, want := range []string{"0000", "1111", "2222", "3333", "444"} {
		r.want("the client has", r.got(c), want)
	}
	r.want("flows", r.flows(), 1)
	r.answer(0, port, "55556666777788889999one more") // of which two are too many
	for _, want := range []string{"5555", "6666", "7777", "8888", "9999"} {
		r.want("the client has", r.got(c), want)
	}
	r.want("flows", r.flows(), 0)
	r.want("in", r.count(counters.ProxyIn), uint64(12))
	r.want("late", r.count(counters.ProxyLate), uint64(2))
	r.want("sent", r.count(counters.Sent), uint64(10))
	r.answer(0, port, "00001111")
	r.until("late ones have come", func() bool { return r.count(counters.ProxyIn) == 14 })
	r.want("late", r.count(counters.ProxyLate), uint64(4))
	if text, ok := peek(t, c); ok {
		t.Errorf("the client has %q, which was late", text)
	}
}

// A flow ends with the last of its answers, and its port is taken again only
// when it has rested.
func TestResponsesEndFlow(t *testing.T) {
	o := options()
	o.Responses, o.Quarantine = 2, 2*time.Second // of which a tenth counts here
	r := newRig(t, o, 1, 1)
	c := r.client()
	r.send(c, "one")
	_, first := r.arrived(0)
	r.send(c, "two")
	r.arrived(0)
	for n := range 3 {
		r.answer(0, first, fmt.Sprint(n))
		r.got(c)
		r.want("flows", r.flows(), 1)
	}
	r.answer(0, first, "3")
	r.got(c)
	r.want("flows", r.flows(), 0)
	r.send(c, "three")
	_, second := r.arrived(0)
	if second == first {
		t.Errorf("a new flow has the port %v of the last one at once", first)
	}
	r.answer(0, second, "4")
	r.answer(0, second, "5")
	r.until("the flow has ended", func() bool { return r.flows() == 0 })
	began := time.Now()
	r.until("a port has rested", func() bool { return time.Since(began) > o.Quarantine/10+2*time.Millisecond })
	r.send(c, "four")
	if _, third := r.arrived(0); third != first {
		t.Errorf("a new flow has the port %v, not the one that has rested longest, %v", third, first)
	}
}

// A client has as many answers as were asked for, also when more come in one burst.
func TestMoreAnswersThanAskedFor(t *testing.T) {
	o := options()
	o.Responses = 1
	r := newRig(t, o, 1, 1)
	c := r.client()
	r.send(c, "question")
	_, port := r.arrived(0)
	for n := range 3 {
		r.answer(0, port, fmt.Sprint(n))
	}
	r.want("the answer", r.got(c), "0")
	r.until("the others have come", func() bool { return r.count(counters.ProxyIn) == 3 })
	r.want("late", r.count(counters.ProxyLate), uint64(2))
	r.want("flows", r.flows(), 0)
	if text, ok := peek(t, c); ok {
		t.Errorf("the client has %q, too", text)
	}
}

// late plays a server that answers when the flow has ended, and returns whether
// the next client had that answer.
func late(t *testing.T, quarantine time.Duration) bool {
	t.Helper()
	o := options()
	o.Timeout, o.Quarantine = 50*time.Millisecond, quarantine
	r := newRig(t, o, 1, 1)
	a, b := r.client(), r.client()
	r.send(a, "from a")
	_, port := r.arrived(0)
	r.until("the flow of a has ended", func() bool { return r.flows() == 0 })
	r.send(b, "from b")
	_, its := r.arrived(0)
	r.answer(0, port, "to a")
	r.until("the late answer has come", func() bool { return r.count(counters.ProxyIn) == 1 })
	text, astray := peek(t, b)
	if astray {
		r.want("b has", text, "to a")
		r.want("port", its, port)
		return true
	}
	r.want("late", r.count(counters.ProxyLate), uint64(1))
	if _, ok := peek(t, a); ok {
		t.Error("the client of an ended flow has an answer")
	}
	return false
}

// What a server answers late reaches no other client. Without the quarantine it
// does: the test can fail.
func TestLateAnswersReachNobody(t *testing.T) {
	if late(t, time.Minute) {
		t.Error("a late answer has reached another client")
	}
	if !late(t, 0) {
		t.Error("without a quarantine a late answer has reached nobody: this test shows nothing")
	}
}

// lateOfKilled plays a server that answers when the worker of the flow has been
// killed and another has got its port, and returns whether that one's client had
// the answer.
func lateOfKilled(t *testing.T, quarantine time.Duration) bool {
	t.Helper()
	o := options()
	o.Quarantine = quarantine
	r := newRig(t, o, 2, 1)
	a, b := r.clientAt(r.lanes[0]), r.clientAt(r.lanes[1])
	r.send(a, "from a")
	_, port := r.arrived(0)
	r.lanes[0].kill()
	r.lanes[1].next = port
	r.send(b, "from b")
	_, its := r.arrived(0)
	r.answer(0, port, "to a")
	r.until("the late answer has come", func() bool { return r.count(counters.ProxyIn) == 1 })
	if text, astray := peek(t, b); astray {
		r.want("b has", text, "to a")
		r.want("port", its, port)
		return true
	}
	r.want("late", r.count(counters.ProxyLate), uint64(1))
	r.answer(0, its, "to b")
	r.want("b has", r.got(b), "to b")
	return false
}

// The ports of a worker that was killed rest, too, whoever gets them. Without the
// quarantine a late answer goes astray: the test can fail.
func TestLateAnswersOfKilledReachNobody(t *testing.T) {
	if lateOfKilled(t, time.Minute) {
		t.Error("a late answer has reached another client")
	}
	if !lateOfKilled(t, 0) {
		t.Error("without a quarantine a late answer has reached nobody: this test shows nothing")
	}
}

// A port that has rested is fresh to the next worker.
func TestRestedPortIsFresh(t *testing.T) {
	o := options()
	o.Responses, o.Quarantine = 1, time.Second
	r := newRig(t, o, 2, 1)
	r.send(r.client(), "one")
	_, port := r.arrived(0)
	r.answer(0, port, "1")
	r.until("the socket was closed", func() bool { return len(r.lanes[0].fds) == 0 })
	r.lanes[1].next = port
	r.send(r.clientAt(r.lanes[1]), "two")
	_, its := r.arrived(0)
	r.want("port", its, port)
}

// After so many datagrams the next one is a new flow, and the old one still has
// its answers.
func TestRequests(t *testing.T) {
	o := options()
	o.Requests, o.Responses = 2, 1
	r := newRig(t, o, 1, 2)
	c := r.client()
	var ports []netip.AddrPort
	for n := range 4 {
		r.send(c, fmt.Sprint(n))
		_, from := r.arrived(n / 2) // in turn
		ports = append(ports, from)
	}
	if ports[0] != ports[1] || ports[2] != ports[3] || ports[0] == ports[2] {
		t.Errorf("ports %v", ports)
	}
	r.want("flows", r.flows(), 2)
	for n := range 4 {
		r.answer(n/2, ports[n], fmt.Sprint("answer ", n))
		r.want("the client has", r.got(c), fmt.Sprint("answer ", n))
	}
	r.want("flows", r.flows(), 0)
}

// A flow that is silent ends, one that only its server keeps alive does not.
func TestTimeout(t *testing.T) {
	o := options()
	o.Timeout = time.Second // no stall of the machine is as long
	r := newRig(t, o, 1, 1)
	a, b := r.client(), r.client()
	r.send(a, "a")
	_, mine := r.arrived(0)
	r.send(b, "b")
	r.arrived(0)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	r.until("the silent flow has ended", func() bool {
		select {
		case <-tick.C:
			r.answer(0, mine, "still here")
		default:
		}
		return r.flows() == 1
	})
	r.until("the other one is answered", func() bool { _, ok := peek(t, a); return ok })
	r.until("both have ended", func() bool { return r.flows() == 0 })
	r.want("ended", r.count(counters.ProxyEnded), uint64(2))
}

// Limits refuse new flows, not those there are.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		flows, client int
		why           counters.Reason
	}{
		"in total":   {2, 100, counters.DropLimit},
		"one client": {100, 2, counters.DropClientLimit},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Flows, o.ClientFlows = c.flows, c.client
			r := newRig(t, o, 1, 1)
			first := r.client()
			r.send(first, "1")
			r.send(r.client(), "2")
			r.want("dropped", r.send(r.client(), "3"), c.why)
			r.want("dropped", r.send(first, "4"), counters.NotDropped)
			for _, want := range []string{"1", "2", "4"} {
				got, _ := r.arrived(0)
				r.want("the server has", got, want)
			}
		})
	}
}

// The limit of a client is one for all lanes, and its flows that have ended do not
// count.
func TestLimitOfClientOverLanes(t *testing.T) {
	o := options()
	o.ClientFlows, o.Responses = 3, 1
	r := newRig(t, o, 3, 1)
	var ports []netip.AddrPort
	for _, l := range r.lanes {
		r.want("dropped", r.send(r.clientAt(l), "in"), counters.NotDropped)
		_, port := r.arrived(0)
		ports = append(ports, port)
	}
	for _, l := range r.lanes {
		r.want("dropped", r.send(r.clientAt(l), "over"), counters.DropClientLimit)
	}
	r.want("flows", r.flows(), 3)
	r.answer(0, ports[1], "the end")
	r.until("a flow has ended", func() bool { return r.flows() == 2 })
	r.want("dropped", r.send(r.clientAt(r.lanes[0]), "in"), counters.NotDropped)
	r.want("dropped", r.send(r.clientAt(r.lanes[1]), "over"), counters.DropClientLimit)
}

// With as many sockets as there may be, flows are refused until one has ended.
func TestSocketsRunOut(t *testing.T) {
	o := options()
	o.Flows, o.ClientFlows, o.Responses, o.Quarantine = 1000, 1000, 1, 0
	r := newRig(t, o, 2, 1)
	for n := range rigSockets {
		r.want("dropped", r.send(r.clientAt(r.lanes[n%2]), "in"), counters.NotDropped)
	}
	for n := range 5 {
		r.want("dropped", r.send(r.clientAt(r.lanes[n%2]), "over"), counters.DropNoPort)
	}
	r.want("told", len(r.short), 5)
	r.want("told first", r.short[0], error(unix.EMFILE))
	_, port := r.arrived(0) // of lane 0
	r.answer(0, port, "the end")
	r.until("a flow has ended", func() bool { return r.flows() == rigSockets-1 })
	r.want("dropped", r.send(r.client(), "in"), counters.NotDropped)
}

// A server that is silent where answers are expected counts as failing, one that
// need not answer does not.
func TestSilentServer(t *testing.T) {
	for responses, out := range []bool{false, true} {
		o := options()
		o.Responses, o.Timeout = responses, 100*time.Millisecond
		o.Passive = backend.Passive{MaxFails: 2, Timeout: time.Minute}
		r := newRig(t, o, 1, 1)
		for range 2 {
			r.want("out", r.region.Server(0).Out(mono.Millis()), false)
			r.send(r.client(), "anybody there?")
			r.until("the flow has ended", func() bool { return r.flows() == 0 })
		}
		r.want(fmt.Sprint("out, with responses ", responses), r.region.Server(0).Out(mono.Millis()), out)
	}
}

// A server that there is no way to counts as failing.
func TestNoRouteToServer(t *testing.T) {
	o := options()
	o.Passive = backend.Passive{MaxFails: 1, Timeout: time.Minute}
	r := newRig(t, o, 1, 2)
	r.lanes[0].dialError = unix.ENETUNREACH
	r.want("dropped", r.send(r.client(), "first"), counters.DropNoPort)
	r.lanes[0].dialError = nil
	for range 3 {
		r.send(r.client(), "next")
		r.arrived(1)
	}
}

// What is refused is in no flow table: after a reload it would go to a generation
// that drains.
func TestRefusedIsNotRecorded(t *testing.T) {
	for why, c := range map[counters.Reason]struct {
		limit  func(o *proxy.Options)
		happen func(r *rig)
	}{
		counters.DropLimit:       {limit: func(o *proxy.Options) { o.Flows = 1 }},
		counters.DropClientLimit: {limit: func(o *proxy.Options) { o.ClientFlows = 1 }},
		counters.DropNoServer:    {happen: func(r *rig) { r.region.Server(0).SetDown() }},
		counters.DropNoPort:      {happen: func(r *rig) { r.lanes[0].dialError = unix.EADDRNOTAVAIL }},
	} {
		t.Run(why.String(), func(t *testing.T) {
			o := options()
			o.Recorded = true
			if c.limit != nil {
				c.limit(&o)
			}
			r := newRig(t, o, 1, 1)
			first, second := r.client(), r.client()
			r.want("dropped", r.send(first, "in"), counters.NotDropped)
			if c.happen != nil {
				c.happen(r)
			}
			r.want("dropped", r.send(second, "over"), why)
			for c, want := range map[*net.UDPConn]bool{first: true, second: false} {
				_, alive := r.table.Find(r.hash(c), mono.Millis())
				r.want("recorded", alive, want)
			}
		})
	}
}

// A server that does not listen is refused to the client, counts as failing, and
// gets no more flows; with nobody left the client is refused at once.
func TestRefusedByServer(t *testing.T) {
	o := options()
	o.Passive = backend.Passive{MaxFails: 1, Timeout: time.Minute}
	r := newRig(t, o, 1, 2)
	r.servers[0].Close()
	c := r.client()
	r.send(c, "to the dead one")
	r.until("ICMP has come", func() bool { return r.count(counters.ProxyErrors) > 0 })
	r.want("clients refused", len(r.refused), 1)
	r.want("its port", int(r.refused[0].Port), c.LocalAddr().(*net.UDPAddr).Port)
	r.want("out", r.region.Server(0).Out(mono.Millis()), true)
	for n := range 3 {
		r.send(r.client(), fmt.Sprint(n))
		got, _ := r.arrived(1)
		r.want("the other server has", got, fmt.Sprint(n))
	}
	r.region.Server(1).SetDown()
	r.want("dropped", r.send(r.client(), "nobody"), counters.DropNoServer)
	r.want("clients refused", len(r.refused), 2)
}

// A drained server keeps its flows and gets no new one; a disabled one loses them.
func TestOrders(t *testing.T) {
	r := newRig(t, options(), 1, 2)
	c := r.client()
	r.send(c, "first")
	r.arrived(0)
	r.region.Server(0).SetOrder(backend.Draining)
	for range 3 {
		r.send(r.client(), "new")
		r.arrived(1)
	}
	r.send(c, "old")
	got, _ := r.arrived(0)
	r.want("the drained server has", got, "old")
	r.region.Server(0).SetOrder(backend.Disabled)
	r.send(c, "moved")
	got, _ = r.arrived(1)
	r.want("the other server has", got, "moved")
	r.want("flows at the disabled server", r.region.Flows(0), 0)
	r.want("flows at the other one", r.region.Flows(1), 4)
}

// The first datagram of a flow says who the client is.
func TestProxyProtocol(t *testing.T) {
	o := options()
	o.ProxyProtocol = true
	r := newRig(t, o, 1, 1)
	c := r.client()
	r.send(c, "hello")
	got, _ := r.arrived(0)
	client, asked := c.LocalAddr().(*net.UDPAddr), r.lanes[0].addr
	want := []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x12\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01")
	want = binary.BigEndian.AppendUint16(want, uint16(client.Port))
	want = binary.BigEndian.AppendUint16(want, asked.Port())
	r.want("the server has", got, string(want)+"hello")
	r.send(c, "again")
	got, _ = r.arrived(0)
	r.want("the server has", got, "again")
}

// A datagram that reaches another lane than its flow's goes there.
func TestHandoff(t *testing.T) {
	r := newRig(t, options(), 3, 1)
	c := r.client()
	r.send(c, "one")
	_, port := r.arrived(0)
	// The same flow at another lane, as after a change of the lanes: it is given
	// what has come for it.
	if _, err := c.Write([]byte("two")); err != nil {
		t.Fatal(err)
	}
	from, other := r.lanes[0], r.lanes[2]
	for deadline := time.Now().Add(patience); ; {
		if _, err := from.batch.Recv(from.udp, &from.in); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was received")
		}
	}
	from.in.Now = mono.Now()
	other.Handler(0).ServeBurst(&from.in)
	r.want("handed over", other.block.Load(counters.ProxyHandoffs), uint64(1))
	for _, l := range r.lanes {
		l.turn()
	}
	got, its := r.arrived(0)
	r.want("the server has", got, "two")
	r.want("port", its, port)
	r.want("flows", r.flows(), 1)
}

// The datagrams of flows that are there cost no allocation, in either direction.
func TestNoAllocations(t *testing.T) {
	r := newRig(t, options(), 1, 1)
	c := r.client()
	r.send(c, "first")
	_, port := r.arrived(0)
	l := r.lanes[0]
	payload := []byte("datagram")
	into := make([]byte, 100)
	if n := testing.AllocsPerRun(200, func() {
		for range 4 {
			if _, err := c.Write(payload); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 {
			l.receive()
		}
		for range 4 {
			if _, _, err := r.servers[0].ReadFromUDPAddrPort(into); err != nil {
				t.Fatal(err)
			}
			if _, err := r.servers[0].WriteToUDPAddrPort(payload, port); err != nil {
				t.Fatal(err)
			}
		}
		l.turn()
		for range 4 {
			if _, err := c.Read(into); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations for four round trips", n)
	}
}
