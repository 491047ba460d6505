package worker

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/netio"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// process is a worker in a process of its own, and what its supervisor has.
type process struct {
	*spawn.Process
	link   *Link
	stderr int // file in memory
	t      *testing.T
}

// shared moves a world into memory that processes share.
func (w *world) shared() (dir, blocks, flows *shm.Region) {
	w.t.Helper()
	region := func(name string, size int) *shm.Region {
		r, err := shm.Create(name, size)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { r.Close() })
		return r
	}
	dir, blocks, flows = region("directory", directory.RegionSize), region("counters", counters.RegionSize), region("flows", table.RegionSize(1024))
	var err error
	if w.dir, err = directory.Format(dir); err != nil {
		w.t.Fatal(err)
	}
	if w.blocks, err = counters.Format(blocks); err != nil {
		w.t.Fatal(err)
	}
	if _, err = table.Format(flows, 1024, idle, w.secret); err != nil {
		w.t.Fatal(err)
	}
	return dir, blocks, flows
}

// start starts the worker of slot 0 with what change makes of its manifest.
func (w *world) start(t *testing.T, change func(m *Manifest)) *process {
	t.Helper()
	dir, blocks, flows := w.shared()
	m := &Manifest{Protocol: Protocol, Epoch: w.dir.NewEpoch(), Config: w.config()}
	var files []int
	add := func(fd int) int {
		files = append(files, fd)
		return FirstFD + len(files) - 1
	}
	zones, err := catalog.New(1, nil).Region()
	if err != nil {
		t.Fatal(err)
	}
	defer zones.Close()
	zoneCounts, err := shm.Create("counters:zones", counters.ZonesSize)
	if err != nil {
		t.Fatal(err)
	}
	defer zoneCounts.Close()
	if _, err := counters.FormatZones(zoneCounts); err != nil {
		t.Fatal(err)
	}
	m.ZoneCounters = add(zoneCounts.Fd())
	m.Directory, m.Counters, m.Tables[0], m.Catalog = add(dir.Fd()), add(blocks.Fd()), add(flows.Fd()), add(zones.Fd())
	for _, fd := range w.wakes[0] {
		m.Wakes[0] = append(m.Wakes[0], add(fd))
	}
	var ids []uint32
	for _, s := range w.sockets {
		s.FD = add(s.FD)
		m.Sockets = append(m.Sockets, s)
		ids = append(ids, s.ID)
	}
	if err := w.dir.Open(0, m.Epoch, w.workers, w.lanes, ids); err != nil {
		t.Fatal(err)
	}
	if w.door > 0 {
		m.Door = add(w.door)
	}
	change(m)
	manifest, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(manifest)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	p := &process{t: t, stderr: memfd(t, "stderr", "")}
	if p.link, err = NewLink(pair[0]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.link.Close() })
	p.Process, err = spawn.Start(spawn.Command{
		Args: []string{"worker"}, Files: append([]int{p.stderr, p.stderr, p.stderr, pair[1], manifest}, files...), Env: []string{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Signal(unix.SIGKILL)
		_, _ = p.Wait() // an error says that the test has waited
	})
	return p
}

// ended waits for the end of the process.
func (p *process) ended() (status syscall.WaitStatus, said string) {
	p.t.Helper()
	status, err := p.Wait()
	if err != nil {
		p.t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, err := unix.Pread(p.stderr, b, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	return status, string(b[:n])
}

// A worker process makes itself from its manifest, says that it is ready, serves
// by the directory, obeys, and ends well.
func TestProcess(t *testing.T) {
	w := newWorld(t, 1, 2)
	ap := w.listen(config.AffinityFlow, true)
	p := w.start(t, func(*Manifest) {})
	if err := p.link.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if m, _, err := p.link.Receive(); err != nil || m.Op != OpReady {
		t.Fatalf("%+v, %v", m, err)
	}
	g := &generation{w: w, slot: 0, epoch: 1}
	if !w.dir.Worker(0, 0).IsReady(1, p.PID) {
		t.Error("ready without a READY word")
	}
	w.gens[0] = g
	w.boot(g)
	for range 20 {
		if who := w.client(ap).ask(); epochOf(who) != "epoch=1" || !strings.HasSuffix(who, " pid="+strconv.Itoa(p.PID)) {
			t.Errorf("answered by %s", who)
		}
	}
	w.dial(ap.String())
	if n := g.sum(counters.Served); n != 20 {
		t.Errorf("%d are counted", n)
	}
	if err := p.link.Send(Message{Op: OpQuit}); err != nil {
		t.Fatal(err)
	}
	if status, said := p.ended(); status != 0 || said != "" {
		t.Errorf("it ended by %s and said:\n%s", spawn.Describe(status), said)
	}
}

// What makes no sense ends the worker before it is ready, with a reason.
func TestProcessRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Manifest)
		want   string
	}{
		"another protocol":       {func(m *Manifest) { m.Protocol = 0 }, "protocol 0"},
		"no directory":           {func(m *Manifest) { m.Directory = 1 }, "directory: "},
		"counters for directory": {func(m *Manifest) { m.Directory = m.Counters }, "attaching directory: "},
		"directory for counters": {func(m *Manifest) { m.Counters = m.Directory }, "counters"},
		"no flow table":          {func(m *Manifest) { m.Tables[0] = 0 }, "no flow table"},
		"another's flow table":   {func(m *Manifest) { m.Tables[0] = m.Counters }, "flow table of slot 0"},
		"no catalog":             {func(m *Manifest) { m.Catalog = m.Counters }, "catalog"},
		"counters for zones":     {func(m *Manifest) { m.ZoneCounters = m.Counters }, "zone counters"},
		"no eventfds":            {func(m *Manifest) { m.Wakes[0] = nil }, "no eventfd for lane 0"},
		"an unknown service":     {func(m *Manifest) { m.Config.Listeners[0].Service = "none" }, `no service "none"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1)
			w.listen(config.AffinityFlow, false)
			p := w.start(t, c.change)
			if m, _, err := p.link.Receive(); err == nil {
				t.Errorf("it said %+v", m)
			}
			status, said := p.ended()
			if status.ExitStatus() != 1 || !strings.Contains(said, c.want) || strings.Contains(said, "goroutine ") {
				t.Errorf("it ended by %s and said:\n%s", spawn.Describe(status), said)
			}
		})
	}
}

// A worker outlives its supervisor.
func TestProcessOutlivesItsSupervisor(t *testing.T) {
	w := newWorld(t, 1, 1)
	ap := w.listen(config.AffinityFlow, false)
	p := w.start(t, func(*Manifest) {})
	if _, _, err := p.link.Receive(); err != nil {
		t.Fatal(err)
	}
	p.link.Close()
	w.dir.SetState(0, directory.Active)
	w.dir.SetOwner(1)
	for _, fd := range w.wakes[0] {
		netio.Wake(fd)
	}
	if who := w.client(ap).ask(); epochOf(who) != "epoch=1" {
		t.Errorf("answered by %s", who)
	}
}
