package worker

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
	"github.com/dnsapp/dnsapp/udpflow/table"
)

// peer is another generation, as far as the lanes hand flows on to it: older ones
// that drain, and a newer one that has had to give the wire back.
type peer struct {
	epoch   uint32
	table   *table.Table
	rings   *ring.Rings // to its workers
	regions []*shm.Region

	lanes int  // that use it; guarded by peers.mu
	gone  bool // no lane is to use it any more; guarded by peers.mu
}

// peers is what a worker has of other generations. Lanes look at it when slots of
// the directory have changed, and never while they serve.
type peers struct {
	mu     sync.Mutex
	bySlot [directory.MaxSlots]*peer // guarded by mu
}

// set puts p, or nil for none, into slot. What was there is unmapped as soon as no
// lane uses it.
func (ps *peers) set(slot int, p *peer) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	old := ps.bySlot[slot]
	ps.bySlot[slot] = p
	if old == nil {
		return nil
	}
	old.gone = true
	return old.settle()
}

// has reports whether the peer in slot is the generation with this epoch.
func (ps *peers) has(slot int, epoch uint32) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.bySlot[slot] != nil && ps.bySlot[slot].epoch == epoch
}

// settle unmaps a peer that nobody uses and nobody will. peers.mu is held.
func (p *peer) settle() error {
	if !p.gone || p.lanes > 0 {
		return nil
	}
	return p.unmap()
}

func (p *peer) unmap() (err error) {
	for _, r := range p.regions {
		err = errors.Join(err, r.Close())
	}
	p.regions = nil
	return err
}

// meet has lane l use the peers of its worker as they are now.
func (w *Worker) meet(l *lane) {
	ps := &w.peers
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for slot, p := range ps.bySlot {
		had := l.peers[slot]
		if had == p {
			continue
		}
		if had != nil {
			l.split.Forget(slot)
			had.lanes--
			if err := had.settle(); err != nil {
				l.log.Error("unmapping a generation that is gone", "slot", slot, "error", err)
			}
		}
		if p != nil {
			l.split.Know(slot, p.epoch, p.table, outlets(p.rings, l.global))
			p.lanes++
		}
		l.peers[slot] = p
	}
}

// outlets returns the sending ends of a lane, by worker.
func outlets(r *ring.Rings, lane int) []*ring.Producer {
	all := make([]*ring.Producer, r.Workers())
	for i := range all {
		all[i] = r.Producer(lane, i)
	}
	return all
}

// openPeers maps what the manifest has of other generations, and returns the rings
// to this worker's siblings, nil if it has none.
func (w *Worker) openPeers() (siblings *ring.Rings, err error) {
	for _, ref := range w.m.Rings {
		switch {
		case ref.Producer != w.slot: // see makeLanes
		case ref.Consumer == w.slot:
			if _, siblings, err = mapRings(ref.FD); err != nil {
				return nil, fmt.Errorf("rings to siblings: %w", err)
			}
		case w.m.Tables[ref.Consumer] != 0:
			p, err := w.newPeer(w.m.Epochs[ref.Consumer], w.m.Tables[ref.Consumer], ref.FD)
			if err == nil {
				err = w.peers.set(ref.Consumer, p)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return siblings, nil
}

// newPeer maps the flow table of a generation and the rings to it. It takes the
// descriptors over, also on error.
func (w *Worker) newPeer(epoch uint32, tableFD, ringsFD int) (*peer, error) {
	p := &peer{epoch: epoch}
	fail := func(err error) (*peer, error) {
		return nil, fmt.Errorf("epoch %d: %w", epoch, errors.Join(err, p.unmap()))
	}
	r, err := shm.Map(tableFD)
	if err != nil {
		return fail(errors.Join(err, unix.Close(tableFD), unix.Close(ringsFD)))
	}
	p.regions = append(p.regions, r)
	if p.table, err = table.Attach(r); err != nil {
		return fail(errors.Join(err, unix.Close(ringsFD)))
	}
	if r, p.rings, err = mapRings(ringsFD); err != nil {
		return fail(err)
	}
	p.regions = append(p.regions, r)
	if n := w.m.Config.Workers * w.m.Config.Lanes; p.rings.Lanes() < n {
		return fail(fmt.Errorf("its rings are for %d lanes, there are %d: %w", p.rings.Lanes(), n, shm.ErrLayout))
	}
	return p, nil
}

// addInbox makes the worker read the rings in the region behind fd, which the
// lanes of another generation, or of its own, fill. It takes fd over, also on
// error.
func (w *Worker) addInbox(slot int, epoch uint32, fd int) error {
	r, rings, err := mapRings(fd)
	if err != nil {
		return fmt.Errorf("rings from epoch %d: %w", epoch, err)
	}
	if w.index >= rings.Workers() {
		return errors.Join(fmt.Errorf("rings from epoch %d are for %d workers: %w", epoch, rings.Workers(), shm.ErrLayout), r.Close())
	}
	w.rings.add(inbox{Inbox: rings.Inbox(w.index), region: r, epoch: epoch, slot: slot})
	return nil
}

// mapRings maps the rings behind fd, which it takes over, also on error.
func mapRings(fd int) (*shm.Region, *ring.Rings, error) {
	r, err := shm.Map(fd)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	rings, err := ring.Attach(r)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, rings, nil
}
