package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/test/load"
)

// The listeners of the crash matrix: queries that nobody records, and flows.
// Both answer with the id of the query and with who has answered.
var (
	dnsAt        = []netip.AddrPort{dns4, dns6}
	keptAt       = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5301"), netip.MustParseAddrPort("[::1]:5301")}
	keptListener = fmt.Sprintf("  - {name: kept, address: [\"%v\", \"%v\"], transport: [udp], service: dns, affinity: flow}\n", keptAt[0], keptAt[1])
)

// request is one request of a flow.
type request struct {
	sent, answered time.Time // answered is zero: it was not
	by             load.Tag
}

// recorder is a protocol that notes what became of each request.
type recorder struct {
	load.Protocol
	mu    sync.Mutex // guards flows
	flows map[int]map[uint32]request
}

func (r *recorder) AppendRequest(b []byte, flow int, seq uint32) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flows[flow] == nil {
		r.flows[flow] = make(map[uint32]request)
	}
	r.flows[flow][seq] = request{sent: time.Now()}
	return r.Protocol.AppendRequest(b, flow, seq)
}

func (r *recorder) Check(answer []byte, flow int, seq uint32) (load.Tag, error) {
	tag, err := r.Protocol.Check(answer, flow, seq)
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.flows[flow][seq]
	q.answered, q.by = time.Now(), tag
	r.flows[flow][seq] = q
	return tag, err
}

// identifier is a protocol that finds out later whose an answer was.
type identifier interface {
	identify(t load.Tag) load.Tag
}

// answers returns the answered requests of each flow in the order in which they
// were sent.
func (r *recorder) answers() [][]request {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, later := r.Protocol.(identifier)
	var all [][]request
	for _, flow := range slices.Sorted(maps.Keys(r.flows)) {
		var list []request
		for _, seq := range slices.Sorted(maps.Keys(r.flows[flow])) {
			if q := r.flows[flow][seq]; !q.answered.IsZero() {
				if later {
					q.by = id.identify(q.by)
				}
				list = append(list, q)
			}
		}
		all = append(all, list)
	}
	return all
}

// servers returns the processes that answer the flows, the one of the most
// flows first.
func (r *recorder) servers() []int {
	count := make(map[int]int)
	for _, flow := range r.answers() {
		if len(flow) > 0 {
			count[flow[len(flow)-1].by.PID]++
		}
	}
	return slices.SortedFunc(maps.Keys(count), func(a, b int) int { return count[b] - count[a] })
}

// longestWait is how long a request waited, of those answered after since.
func longestWait(flows [][]request, since time.Time) (longest time.Duration) {
	for _, flow := range flows {
		for _, q := range flow {
			if q.answered.After(since) {
				longest = max(longest, q.answered.Sub(q.sent))
			}
		}
	}
	return longest
}

// returns reports a flow that goes back to a process which it had left: two
// have read its datagrams at the same time.
func returns(flow []request) error {
	var left []int
	for i, q := range flow {
		if i > 0 && flow[i-1].by.PID != q.by.PID {
			left = append(left, flow[i-1].by.PID)
		}
		if slices.Contains(left, q.by.PID) {
			return fmt.Errorf("request %d was answered by process %d, later ones than those of another process before it: %v", i, q.by.PID, append(left, q.by.PID))
		}
	}
	return nil
}

// moved reports a flow of a process that was left alone, yet answered by another.
func moved(flow []request, touched int) error {
	if len(flow) == 0 {
		return errors.New("a flow had no answer at all")
	}
	home := flow[0].by
	for i, q := range flow {
		if q.by != home && home.PID != touched {
			return fmt.Errorf("request %d of a flow of %+v was answered by %+v", i, home, q.by)
		}
	}
	return nil
}

// tracked is a load whose every request is known.
type tracked struct {
	*load.UDP
	*recorder
}

// track starts a load and waits until each flow has been answered.
func (x *crash) track(name string, at []netip.AddrPort, flows, rate int) {
	x.t.Helper()
	p, err := load.NewDNS([]load.Query{generationQuery})
	if err != nil {
		x.t.Fatal(err)
	}
	x.record(name, load.UDPConfig{Targets: at, Flows: flows, Rate: rate, Protocol: p})
	awaitAnswers(x.t, x.flows[name].UDP, uint64(3*flows))
}

// record starts a load whose requests are noted.
func (x *crash) record(name string, c load.UDPConfig) {
	x.t.Helper()
	f := &tracked{recorder: &recorder{Protocol: c.Protocol, flows: make(map[int]map[uint32]request)}}
	c.Protocol = f.recorder
	f.UDP = startFlows(x.t, c)
	x.flows[name] = f
}

// complain notes something that is wrong.
func (x *crash) complain(format string, args ...any) {
	x.wrong = append(x.wrong, fmt.Errorf(format, args...))
}

// judge checks every request.
func (x *crash) judge() {
	x.t.Helper()
	total := x.total()
	touched := 0
	if x.target != nil {
		touched = x.target.Pid
	}
	for name, f := range x.flows {
		flows := f.answers()
		x.outage = max(x.outage, longestWait(flows, x.at))
		for _, flow := range flows {
			if err := returns(flow); err != nil {
				x.complain("two readers: %s: %v", name, err)
			}
			if name == "queries" || name == "flows" && (x.when == atT4 || x.when == atT5) { // not kept
				continue
			}
			if err := moved(flow, touched); err != nil {
				x.complain("%s: %v", name, err)
			}
		}
	}
	if total.Duplicate+total.Stray+total.Malformed != 0 {
		x.complain("not every answer is right, and the only one: %v", errors.Join(total.Errors...))
	}
	if x.spared && total.Lost() != 0 {
		x.complain("%d were lost", total.Lost())
	}
}

// total returns the reports of all flows in one.
func (x *crash) total() (total load.Report) {
	for _, r := range x.reports {
		total.Add(r)
	}
	return total
}

// balance checks the ledger against what was sent: what a worker had in hand
// when it was killed is all that can be missing, and the ledger says so, but for
// what it had read and not counted yet.
func (x *crash) balance() {
	x.t.Helper()
	total := x.total()
	const burst = 64 // of one lane
	l := x.status().Ledger
	rings := int64(l.RingTaken) - int64(l.RingServed) - int64(sum(l.RingDropped))
	inHand := l.InHand + rings
	unread := int64(total.Sent) - int64(l.Received) - int64(l.KernelDropped)
	lost := int64(total.Lost())
	away := int64(0)
	if x.away != nil {
		away = x.away()
	}
	if got := l.Served + l.Sibling + l.Forwarded + sum(l.Dropped); int64(got)+l.InHand != int64(l.Received) {
		x.complain("the ledger does not add up: %+v", l)
	}
	if lost != 0 || inHand != 0 || unread != 0 {
		x.t.Logf("lost %d: in hand %d, read and not counted %d, away %d", lost, inHand, unread, away)
	}
	if inHand < 0 || inHand > burst || unread < 0 || unread > burst || away < 0 || away > burst || lost > inHand+unread+away || sum(l.Dropped)+sum(l.RingDropped)+l.KernelDropped != 0 {
		x.complain("%d of %d were lost, ledger %+v", lost, total.Sent, l)
	}
	if x.spared && (inHand != 0 || away != 0) {
		x.complain("in hand, or away (%d), though no worker was killed: %+v", away, l)
	}
}

// stallMeter measures for how long this machine keeps a thread from running
// that is due.
type stallMeter struct {
	done    chan struct{}
	longest chan time.Duration
}

func startStallMeter() *stallMeter {
	m := &stallMeter{done: make(chan struct{}), longest: make(chan time.Duration, 1)}
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		last, longest := time.Now(), time.Duration(0)
		for {
			select {
			case <-m.done:
				m.longest <- longest
				return
			case <-tick.C:
				now := time.Now()
				longest = max(longest, now.Sub(last)-time.Millisecond)
				last = now
			}
		}
	}()
	return m
}

func (m *stallMeter) stop() time.Duration {
	close(m.done)
	return <-m.longest
}

// What the matrix looks for it would see.
func TestMatrixJudges(t *testing.T) {
	flow := func(pids ...int) (list []request) {
		for _, pid := range pids {
			list = append(list, request{by: load.Tag{PID: pid, Epoch: uint32(pid)}})
		}
		return list
	}
	if err := returns(flow(1, 1, 2, 2, 3)); err != nil {
		t.Errorf("a flow that goes from one to the next: %v", err)
	}
	if returns(flow(1, 2, 1, 2)) == nil {
		t.Error("two readers at once are not seen")
	}
	if err := moved(flow(1, 1, 2), 1); err != nil {
		t.Errorf("a flow of the victim: %v", err)
	}
	if moved(flow(1, 1, 2), 3) == nil || moved(nil, 3) == nil {
		t.Error("a flow that has moved, or that nobody serves, is not seen")
	}
	began := time.Now()
	waited := []request{{sent: began, answered: began.Add(time.Second)}, {sent: began, answered: began.Add(3 * time.Second)}}
	if got := longestWait([][]request{waited}, began.Add(2*time.Second)); got != 3*time.Second {
		t.Errorf("the longest wait was %v, not 3s", got)
	}
}
