//go:build dpdk

package primary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/eal"
	"github.com/dnsapp/dnsapp/server/exit"
)

// sweepRetry is after how long the primary looks again for what a dead process has
// left, where a living one was in the middle of something each time.
const sweepRetry = 20 * time.Millisecond

// process is the primary at work. Its methods run in the goroutine of Run, which is
// locked to the thread of EAL; others send them there by do.
type process struct {
	dir     string
	state   State
	log     *slog.Logger
	started time.Time
	work    chan func()
	end     chan struct{} // closed once it is to end
	layout  eal.Layout
	ports   []eal.Device // in the order of the Spec
	leases  map[int]*lease
	burst   *eal.Burst
	deaths  int
	mended  int
	stuck   string
}

// lease is an lcore id that a process has.
type lease struct {
	Secondary
	pidfd *os.File
}

// Run is the primary: it makes what o.Spec says, calls ready, and returns when it has
// been told to stop, or when ctx ends. Secondaries that live then go on without it.
func Run(ctx context.Context, o Order, log *slog.Logger, ready func()) error {
	runtime.LockOSThread() // for good: EAL stays bound to the thread
	lock, err := takeLock(o.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	id, err := identify(os.Getpid())
	if err != nil {
		return fmt.Errorf("finding out who I am: %w", err)
	}
	p := &process{
		dir: o.Dir, log: log, started: time.Now(), work: make(chan func()), end: make(chan struct{}),
		state:  State{Identity: id, Prefix: o.Spec.FilePrefix + "-" + strconv.Itoa(id.PID), Spec: o.Spec},
		layout: eal.Layout{Workers: o.Spec.MaxWorkers, RingSize: o.Spec.RingSize},
		leases: map[int]*lease{},
	}
	if err := p.create(); err != nil {
		return errors.Join(err, p.close())
	}
	l, err := listen(filepath.Join(o.Dir, socketName))
	if err != nil {
		return errors.Join(err, p.close())
	}
	stopServing := p.serve(l)
	defer stopServing()
	if err := p.state.write(o.Dir); err != nil {
		return errors.Join(err, p.close())
	}
	log.Info("the primary is ready", "pid", id.PID, "prefix", p.state.Prefix, "digest", o.Spec.Digest(), "ports", len(p.ports))
	ready()
	for {
		select {
		case f := <-p.work:
			f()
		case <-p.end:
			return p.close()
		case <-ctx.Done():
			close(p.end)
			return p.close()
		}
	}
}

// takeLock makes sure that dir has one primary.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the folder of the primary: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if s, serr := ReadState(dir); serr == nil && errors.Is(err, unix.EWOULDBLOCK) {
			return nil, exit.With(exit.Refused, fmt.Errorf("there is a primary in %s already, pid %d; dnsappctl primary status shows it", dir, s.PID))
		}
		return nil, fmt.Errorf("locking %s: %w; is another primary starting?", filepath.Join(dir, lockName), err)
	}
	return f, nil
}

// create makes everything that the Spec says.
func (p *process) create() error {
	spec := &p.state.Spec
	cpus, err := eal.CPUs()
	if err != nil {
		return err
	}
	o := eal.Options{
		Primary: true, CPUs: cpus, Prefix: p.state.Prefix, HugeDir: spec.Hugepages, Memory: spec.Memory, Log: "error", PCI: spec.pci(),
	}
	for _, d := range spec.Devices {
		if !d.PCI() {
			o.Virtual = append(o.Virtual, d.Device)
			o.OneMemory = o.OneMemory || strings.HasPrefix(d.Device, "net_virtio_user")
		}
	}
	if err := eal.Init(o); err != nil {
		return fmt.Errorf("%w (hugepages in %s: %d MB are wanted)", err, spec.Hugepages, spec.Memory)
	}
	removeStale(spec.FilePrefix)
	if err := eal.Create(spec.Mbufs, spec.MbufSize, p.layout); err != nil {
		return err
	}
	p.burst = eal.NewBurst()
	for _, d := range spec.Devices {
		port, err := eal.PortByName(d.EAL())
		if err != nil {
			return fmt.Errorf("dpdk.devices[%s]: %w", d.Name, err)
		}
		if err := port.Start(d.Queues, d.Descriptors, d.MTU); err != nil {
			return fmt.Errorf("dpdk.devices[%s]: %w", d.Name, err)
		}
		p.ports = append(p.ports, port)
	}
	return nil
}

// close leaves EAL. While secondaries live it closes nothing under them: the end of
// the process is then no more to them than its death.
func (p *process) close() error {
	err := removeState(p.dir)
	if n := p.living(); n > 0 {
		p.log.Warn("the primary ends, and secondaries go on without it: nobody repairs what they leave", "secondaries", n)
		return err
	}
	if p.burst == nil { // there is no EAL
		return err
	}
	for _, d := range p.ports {
		err = errors.Join(err, d.Close())
	}
	dir := eal.RuntimeDir()
	err = errors.Join(err, eal.Close(), os.RemoveAll(dir))
	return errors.Join(err, removeMemory(p.state.Spec.Hugepages, p.state.Prefix))
}

// removeMemory removes the files of the hugepages of a prefix: they hold the pages.
func removeMemory(dir, prefix string) error {
	files, err := filepath.Glob(filepath.Join(dir, prefix+"map_*"))
	for _, f := range files {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}

// removeStale removes the folders that killed primaries of this family have left
// under EAL's runtime folder, and whose processes have all gone. EAL itself removes
// their hugepages when it starts.
func removeStale(family string) {
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(eal.RuntimeDir()), family+"-*")) // the pattern is good
	for _, dir := range dirs {
		pids, _ := filepath.Glob(filepath.Join(dir, "mp_socket_*"))
		pids = append(pids, strings.TrimPrefix(filepath.Base(dir), family+"-"))
		alive := false
		for _, name := range pids {
			name = strings.TrimPrefix(filepath.Base(name), "mp_socket_")
			name, _, _ = strings.Cut(name, "_")
			pid, err := strconv.Atoi(name)
			alive = alive || err == nil && unix.Kill(pid, 0) == nil
		}
		if !alive {
			_ = os.RemoveAll(dir) // it does no harm where it is
		}
	}
}

// living is how many secondaries there are.
func (p *process) living() int {
	n := 0
	for _, l := range p.leases {
		if !l.Dead {
			n++
		}
	}
	return n
}

// live are the lcore ids of the secondaries whose mbufs are theirs.
func (p *process) live() []int {
	var ids []int
	for id, l := range p.leases {
		if !l.Dead {
			ids = append(ids, id)
		}
	}
	return ids
}

// errEnded is what is answered to those who come too late.
var errEnded = errors.New("the primary is ending")

// do runs f in the goroutine of Run, and returns when it is done.
func (p *process) do(f func() error) error {
	done := make(chan error, 1)
	select {
	case p.work <- func() { done <- f() }:
		return <-done
	case <-p.end:
		return errEnded
	}
}

// listen binds the socket. Under the lock, so one that is there is stale.
func listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing a stale socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("binding the socket of the primary: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("binding the socket of the primary: %w", err)
	}
	return l, nil
}
