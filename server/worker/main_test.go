package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/grace"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/stream"
	"github.com/dnsapp/dnsapp/udpflow/flow"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// TestMain is a worker process, too: see process_test.go.
func TestMain(m *testing.M) {
	if os.Args[0] == "dnsapp" && len(os.Args) == 2 && os.Args[1] == "worker" {
		if err := Run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	runtime.GOMAXPROCS(16) // the lanes of several generations, each of which holds on to a P
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of these tests: it only ends a test that fails.
const patience = 10 * time.Second

// until polls a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// world is an instance without its supervisor: the shared memory, on the heap,
// the sockets, and the test in the supervisor's place.
type world struct {
	t       testing.TB
	dir     *directory.Directory
	blocks  *counters.Set
	secret  flow.Secret
	tables  [directory.MaxSlots]*table.Table
	wakes   [directory.MaxSlots][]int
	workers int
	lanes   int // of a worker
	gens    [directory.MaxSlots]*generation

	listeners []config.Listener
	sockets   []SocketRef
	dpdk      config.Primary // with devices, the data path is DPDK
	queues    []QueueRef

	door int // of the worker that is a process; 0: none

	warnings string // what the warnings say that are expected; "": there are none
}

const idle = 10 * time.Second // of a flow

// newWorld returns an instance whose generations have this many workers with as
// many lanes each.
func newWorld(t testing.TB, workers, lanes int) *world {
	t.Helper()
	w := &world{t: t, workers: workers, lanes: lanes, secret: flow.NewSecret()}
	var err error
	if w.dir, err = directory.Format(shm.Heap(directory.RegionSize)); err != nil {
		t.Fatal(err)
	}
	if w.blocks, err = counters.Format(shm.Heap(counters.RegionSize)); err != nil {
		t.Fatal(err)
	}
	for slot := range w.wakes {
		for range workers * lanes {
			fd, err := netio.NewWake()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			w.wakes[slot] = append(w.wakes[slot], fd)
		}
	}
	return w
}

// listen binds a listener of identify with the sockets of all lanes, and returns
// its address.
func (w *world) listen(affinity config.Affinity, tcp bool) netip.AddrPort {
	w.t.Helper()
	l := config.Listener{Name: fmt.Sprint("l", len(w.listeners)), UDP: true, TCP: tcp, Service: config.ServiceIdentify, Affinity: affinity}
	var err error
	for range 20 { // the port that UDP has may be taken for TCP
		var sockets []SocketRef
		if sockets, err = bind(w.workers*w.lanes, tcp); err != nil {
			continue
		}
		for _, s := range sockets {
			w.t.Cleanup(func() { unix.Close(s.FD) })
			s.ID, s.Listener = uint32(len(w.sockets)), len(w.listeners)
			w.sockets = append(w.sockets, s)
			l.Address = []netip.AddrPort{s.Address}
		}
		w.listeners = append(w.listeners, l)
		return l.Address[0]
	}
	w.t.Fatal(err)
	return netip.AddrPort{}
}

// bind binds the sockets of one address.
func bind(lanes int, tcp bool) (sockets []SocketRef, err error) {
	defer func() {
		if err != nil {
			for _, s := range sockets {
				unix.Close(s.FD)
			}
		}
	}()
	ap := netip.MustParseAddrPort("127.0.0.1:0")
	for lane := range lanes {
		fd, _, err := netio.BindUDP(ap)
		if err != nil {
			return sockets, err
		}
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return sockets, err
		}
		ap = netip.AddrPortFrom(ap.Addr(), uint16(sa.(*unix.SockaddrInet4).Port))
		sockets = append(sockets, SocketRef{FD: fd, Lane: lane, Address: ap})
	}
	if tcp {
		fd, err := netio.BindTCP(ap)
		if err != nil {
			return sockets, err
		}
		sockets = append(sockets, SocketRef{FD: fd, TCP: true, Address: ap})
		if err := netio.Listen(fd); err != nil {
			return sockets, err
		}
	}
	return sockets, nil
}

func (w *world) config() *config.Config {
	path := config.Sockets
	if len(w.dpdk.Devices) > 0 {
		path = config.DPDK
	}
	return &config.Config{
		Datapath: path, DPDK: w.dpdk,
		Name: "test", Workers: w.workers, Lanes: w.lanes, Listeners: w.listeners,
		DNS: config.DNS{MaxUDPSize: 1232, TCPIdle: time.Minute, TCPConnections: 100},
	}
}

// generation is one generation with workers of this process. Each has a pid of
// its own, that its answers name.
type generation struct {
	w       *world
	slot    int
	epoch   uint32
	workers []*Worker
	outlets [directory.MaxSlots]*ring.Rings
}

// open makes a generation with its workers, that may not read before the
// directory says so. Flows of these older generations, and of its own siblings,
// it can hand on.
func (w *world) open(slot int, older ...*generation) *generation {
	w.t.Helper()
	g := &generation{w: w, slot: slot, epoch: w.dir.NewEpoch()}
	var ids []uint32
	for _, s := range w.sockets {
		ids = append(ids, s.ID)
	}
	for _, q := range w.queues {
		ids = append(ids, q.ID)
	}
	if err := w.dir.Open(slot, g.epoch, w.workers, w.lanes, ids); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if w.tables[slot], err = table.Format(shm.Heap(table.RegionSize(1024)), 1024, idle, w.secret); err != nil {
		w.t.Fatal(err)
	}
	for i := range w.workers {
		g.workers = append(g.workers, w.worker(g, i))
	}
	link := func(to *generation) {
		n, bytes := w.workers*w.lanes, 256<<10
		region := shm.Heap(ring.RegionSize(n, w.workers, bytes))
		if g.outlets[to.slot], err = ring.Format(region, n, w.workers, bytes); err != nil {
			w.t.Fatal(err)
		}
		for i, o := range to.workers {
			o.rings.add(inbox{Inbox: g.outlets[to.slot].Inbox(i), region: region, epoch: g.epoch, slot: slot})
			o.wakeLanes()
		}
		for _, o := range g.workers {
			if to == g {
				continue
			}
			if err := o.peers.set(to.slot, &peer{epoch: to.epoch, table: w.tables[to.slot], rings: g.outlets[to.slot]}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if w.workers > 1 {
		link(g)
	}
	for _, o := range older {
		link(o)
	}
	for _, o := range g.workers {
		if err := o.makeLanesWith(w.blocks, g.outlets[slot]); err != nil {
			w.t.Fatal(err)
		}
	}
	w.gens[slot] = g
	w.t.Cleanup(g.end)
	return g
}

// worker makes a worker that has no lanes yet.
func (w *world) worker(g *generation, i int) *Worker {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{w}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m := &Manifest{Protocol: Protocol, Epoch: g.epoch, Slot: g.slot, Index: i, Config: w.config(), Wakes: w.wakes, Queues: w.queues}
	for _, s := range w.sockets { // each worker has descriptors of its own
		fd, err := unix.FcntlInt(uintptr(s.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		s.FD = fd
		m.Sockets = append(m.Sockets, s)
	}
	o := &Worker{
		log: log, m: m, epoch: g.epoch, slot: g.slot, index: i, dir: w.dir, view: w.dir.Worker(g.slot, i),
		table: w.tables[g.slot], rings: new(ringReader), due: make(chan struct{}, 1),
		streams: stream.NewSet(limits(m.Config), log),
	}
	o.setWakes(m)
	for slot := range w.wakes {
		o.wakes[slot].Store(&w.wakes[slot])
	}
	var err error
	o.zoneUsers = grace.New(o.wakeLanes)
	o.zones = &zoneKeeper{log: log, view: catalog.NewView(), users: o.zoneUsers}
	if o.services, err = newServices(m, g.pid(i), o.zones, nil, nil); err != nil {
		w.t.Fatal(err)
	}
	w.dir.Worker(g.slot, i).SetProcess(g.pid(i), 1)
	return o
}

// makeLanesWith is makeLanes with rings that are there already.
func (w *Worker) makeLanesWith(blocks *counters.Set, siblings *ring.Rings) error {
	inboxes := w.rings.inboxes.Load()
	if err := w.makeLanes(blocks, siblings); err != nil {
		return err
	}
	w.rings.inboxes.Store(inboxes)
	return nil
}

func (g *generation) pid(worker int) int { return int(g.epoch)*100 + worker }

// run starts the lanes.
func (g *generation) run() {
	for _, o := range g.workers {
		for _, l := range o.lanes {
			o.laneEnd.Go(func() {
				if err := l.run(); err != nil {
					g.w.t.Errorf("lane %d: %v", l.global, err)
				}
			})
		}
	}
}

// end ends the lanes, and closes what is theirs.
func (g *generation) end() {
	for _, o := range g.workers {
		o.quit.Store(true)
		o.wakeLanes()
	}
	for _, o := range g.workers {
		o.laneEnd.Wait()
		o.streams.Close()
		for _, l := range o.lanes {
			if err := l.poller.Close(); err != nil {
				g.w.t.Error(err)
			}
			if l.batch == nil { // of the data path DPDK
				continue
			}
			if err := l.batch.Close(); err != nil {
				g.w.t.Error(err)
			}
		}
		o.closeUDP()
		for _, s := range o.m.Sockets {
			if s.TCP {
				unix.Close(s.FD)
			}
		}
	}
	g.workers = nil
}

func (g *generation) wake() {
	for _, fd := range g.w.wakes[g.slot] {
		netio.Wake(fd)
	}
}

func (w *world) wakeAll() {
	for _, g := range w.gens {
		if g != nil {
			g.wake()
		}
	}
}

// boot gives the wire to the first generation.
func (w *world) boot(g *generation) {
	w.dir.SetState(g.slot, directory.Active)
	w.dir.SetOwner(g.epoch)
	w.wakeAll()
}

// lease is that of the parks of these tests: long, so that a busy machine does
// not make them lapse.
const lease = 5 * time.Second

// park parks the readers and waits for the acks of these generations.
func (w *world) park(lease time.Duration, readers ...*generation) directory.Word {
	w.t.Helper()
	word, err := w.dir.Park(mono.Millis() + uint32(lease/time.Millisecond))
	if err != nil {
		w.t.Fatal(err)
	}
	w.wakeAll()
	w.acked(word, readers...)
	return word
}

func (w *world) acked(word directory.Word, readers ...*generation) {
	w.t.Helper()
	for _, g := range readers {
		for lane := range w.workers * w.lanes {
			until(w.t, fmt.Sprintf("lane %d of epoch %d acknowledges %v", lane, g.epoch, word), func() bool { return w.dir.Ack(g.slot, lane) == word })
		}
	}
}

// handOver moves the wire from one generation to the next, which forwards the
// flows of the former if publish.
func (w *world) handOver(from, to *generation, publish bool) {
	w.t.Helper()
	if publish {
		w.publish(from)
	}
	word := w.park(lease, from)
	w.dir.SetState(to.slot, directory.Active)
	w.dir.SetState(from.slot, directory.Draining)
	if err := w.dir.Flip(word, to.epoch); err != nil {
		w.t.Fatal(err)
	}
	w.wakeAll()
}

// boundary waits until every lane of g has taken a whole turn since the call.
func (g *generation) boundary() {
	g.w.t.Helper()
	for range 3 { // of two boundaries in a row both may lie in one turn
		for lane := range g.w.workers * g.w.lanes {
			n := g.w.dir.Ask(g.slot, lane)
			g.wake()
			until(g.w.t, fmt.Sprintf("lane %d of epoch %d answers", lane, g.epoch), func() bool { return g.w.dir.Answer(g.slot, lane) == n })
		}
	}
}

// publish opens a window against g.
func (w *world) publish(g *generation) (wid uint32) {
	w.t.Helper()
	wid = w.dir.NewWindow()
	w.dir.SetWindow(g.slot, wid)
	for i := range w.workers {
		if err := w.tables[g.slot].SetHeader(i, table.Publishing, wid); err != nil {
			w.t.Fatal(err)
		}
	}
	return wid
}

// sum adds up one counter over all lanes of g.
func (g *generation) sum(id counters.ID) (n uint64) {
	for lane := range g.w.workers * g.w.lanes {
		n += g.w.blocks.Block(g.slot, lane).Load(id)
	}
	return n
}

// wantCounters checks every counter of g but bursts and those of time.
func (g *generation) wantCounters(want map[counters.ID]uint64) {
	g.w.t.Helper()
	for id := range counters.LatencyNs {
		if n := g.sum(id); id != counters.Bursts && n != want[id] {
			g.w.t.Errorf("epoch %d: counter %d is %d, want %d", g.epoch, id, n, want[id])
		}
	}
}

// client is a socket that asks.
type client struct {
	t  testing.TB
	c  *net.UDPConn
	to netip.AddrPort
}

func (w *world) client(to netip.AddrPort) *client {
	w.t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	return &client{w.t, c, to}
}

func (c *client) send() {
	c.t.Helper()
	if _, err := c.c.Write([]byte("who?")); err != nil {
		c.t.Fatal(err)
	}
}

// answer waits for an answer and returns what it says of who gave it.
func (c *client) answer() (who string) {
	c.t.Helper()
	b := make([]byte, 200)
	n, err := c.c.Read(b)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b[:n]), "\n"), " config=test")
}

func (c *client) ask() string {
	c.t.Helper()
	c.send()
	return c.answer()
}

// silent checks that no answer is there.
func (c *client) silent() {
	c.t.Helper()
	raw, err := c.c.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if n, _, err := unix.Recvfrom(int(fd), make([]byte, 200), unix.MSG_DONTWAIT); err != unix.EAGAIN {
			c.t.Errorf("%d octets came, %v", n, err)
		}
	}); err != nil {
		c.t.Fatal(err)
	}
}

// by is how the answers of a generation's first worker and lane begin.
func by(g *generation) string {
	return fmt.Sprintf("epoch=%d worker=0 lane=0 pid=%d", g.epoch, g.pid(0))
}

func epochOf(answer string) string {
	epoch, _, _ := strings.Cut(answer, " ")
	return epoch
}

func epoch(g *generation) string { return fmt.Sprintf("epoch=%d", g.epoch) }

// testWriter logs to the test, as long as that lasts. Warnings that the test does
// not expect fail it.
type testWriter struct{ w *world }

func (w testWriter) Write(b []byte) (int, error) {
	t := w.w.t
	switch line := strings.TrimSuffix(string(b), "\n"); {
	case t.Context().Err() != nil: // it ends just before the cleanups
	case w.w.warnings != "" && strings.Contains(line, w.w.warnings):
		t.Log(line)
	default:
		t.Error(line)
	}
	return len(b), nil
}
