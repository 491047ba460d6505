//go:build dpdk

package primary

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/eal"
)

// stuckReason is what Status.Stuck says.
const stuckReason = "a process was killed while it held a lock of EAL, so no other can attach"

// lease gives a process the lcore id of a worker, until it dies.
func (p *process) lease(r LeaseRequest) (*Lease, error) {
	if r.Slot < 0 || r.Slot >= eal.Slots || r.Worker < 0 || r.Worker >= p.layout.Workers {
		return nil, fmt.Errorf("there is no worker %d of slot %d; dpdk.max_workers is %d", r.Worker, r.Slot, p.layout.Workers)
	}
	pidfd, err := openPidfd(r.PID)
	if err != nil {
		return nil, err
	}
	out := &Lease{
		Lcore: p.layout.Lcore(r.Slot, r.Worker), Prefix: p.state.Prefix, Hugepages: p.state.Spec.Hugepages, PCI: p.state.Spec.pci(),
	}
	for _, d := range p.ports {
		out.Devices = append(out.Devices, d.Name)
	}
	err = p.do(func() error {
		if p.stuck != "" {
			return errors.New(p.stuck)
		}
		if old := p.leases[out.Lcore]; old != nil {
			if old.Dead {
				return fmt.Errorf("what pid %d has left as worker %d of slot %d is still being cleared; ask again", old.PID, r.Worker, r.Slot)
			}
			return fmt.Errorf("worker %d of slot %d is pid %d, which lives", r.Worker, r.Slot, old.PID)
		}
		id, err := identify(r.PID)
		if err != nil {
			return fmt.Errorf("process %d: %w", r.PID, err)
		}
		p.leases[out.Lcore] = &lease{Secondary{Identity: id, Lcore: out.Lcore, Slot: r.Slot, Worker: r.Worker, Since: time.Now()}, pidfd}
		return nil
	})
	if err != nil {
		pidfd.Close()
		return nil, err
	}
	go p.watch(pidfd, out.Lcore)
	return out, nil
}

// openPidfd returns a descriptor of a process that the netpoller takes.
func openPidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watching process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// watch waits, without a thread, until the process has died, and has it swept.
func (p *process) watch(pidfd *os.File, lcore int) {
	defer pidfd.Close()
	raw, err := pidfd.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
		})
	}
	if err != nil {
		p.log.Error("watching a secondary: it is not swept when it dies", "lcore", lcore, "error", err)
		return
	}
	_ = p.do(func() error { p.died(p.leases[lcore]); return nil }) // an error: the primary ends, too
}

// died repairs the rings of a process that is gone, and sweeps its mbufs.
func (p *process) died(l *lease) {
	l.Dead = true
	p.deaths++
	p.log.Info("a secondary has died", "pid", l.PID, "lcore", l.Lcore, "slot", l.Slot, "worker", l.Worker)
	for other := 1; other <= p.layout.Lcores(); other++ {
		living := p.leases[other] != nil && !p.leases[other].Dead
		for _, purpose := range []eal.Purpose{eal.Frames, eal.Sends} {
			out, in := p.layout.Ring(purpose, l.Lcore, other), p.layout.Ring(purpose, other, l.Lcore)
			eal.RepairRing(out, true, !living)
			eal.RepairRing(in, !living, true)
			if !living {
				p.empty(out)
				p.empty(in)
			}
		}
	}
	if !eal.LocksFree() {
		p.stuck = stuckReason
		p.log.Error(stuckReason+"; those who live go on. Start dnsapp again with a new primary", "pid", l.PID)
	}
	p.sweep(l)
}

// empty frees what is in a ring that nobody has an end of.
func (p *process) empty(r eal.Ring) {
	for r.Pull(p.burst) > 0 {
		p.burst.Free()
	}
}

// sweep gives back what a dead process has left, and then its lcore id. Where somebody
// who lives is in the middle of something each time, it does so later.
func (p *process) sweep(l *lease) {
	a, err := eal.TakeAudit(p.live(), true)
	if err != nil {
		if !errors.Is(err, eal.ErrBusy) {
			p.log.Error("sweeping a dead secondary", "lcore", l.Lcore, "error", err)
		}
		time.AfterFunc(sweepRetry, func() {
			_ = p.do(func() error { p.sweep(l); return nil }) // an error: the primary ends
		})
		return
	}
	delete(p.leases, l.Lcore)
	p.mended += a.Astray
	p.log.Info("a dead secondary is swept", "pid", l.PID, "lcore", l.Lcore, "mbufs", a.Astray, "stack", a.Stack)
	if a.Duplicate > 0 {
		p.log.Error("mbufs are in two places at once: this is a bug, please report it", "mbufs", a.Duplicate)
	}
}
