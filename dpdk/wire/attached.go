//go:build dpdk

package wire

import (
	"fmt"
	"time"

	"github.com/dnsapp/dnsapp/dpdk/eal"
	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/packet"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

var _ = [1]struct{}{}[eal.MaxBurst-burst.Max] // a burst of one is a burst of the other

// attached is the Wire of a secondary.
type attached struct {
	layout  eal.Layout
	lcore   int
	devices []Device
	ports   []uint16 // by device
	device  [eal.MaxPorts]int
	queues  []Queue
	poller  *eal.Poller
	sends   []eal.Ring // that others have for this one to send
	frames  []eal.Ring // that others have given
	in      *eal.Burst // what was received last
	spare   *eal.Burst // to be sent in
	relayed *eal.Burst
	single  *eal.Burst
	out     []*sender // by device
	way     Way
	lost    int
}

// spareLow is how many buffers are taken from the pool at once.
const spareLow = eal.MaxBurst / 2

// Attach joins the devices by a lease of the primary. The calling goroutine is locked
// to its thread, for good, and a process attaches once.
func Attach(lease *primary.Lease) (Wire, error) {
	cpus, err := eal.CPUs()
	if err != nil {
		return nil, err
	}
	o := eal.Options{Lcore: lease.Lcore, CPUs: cpus, Prefix: lease.Prefix, HugeDir: lease.Hugepages, PCI: lease.PCI, Log: "error"}
	if err := eal.Init(o); err != nil {
		return nil, err
	}
	w := &attached{
		lcore: lease.Lcore, poller: eal.NewPoller(),
		in: eal.NewBurst(), spare: eal.NewBurst(), relayed: eal.NewBurst(), single: eal.NewBurst(),
	}
	if w.layout, err = eal.Attach(lease.Lcore); err != nil {
		return nil, err
	}
	for i, name := range lease.Devices {
		d, err := eal.PortByName(name)
		if err != nil {
			return nil, err
		}
		d.Link()
		if len(d.MAC) != len(header.MAC{}) {
			return nil, fmt.Errorf("device %s has no link address", name)
		}
		w.devices = append(w.devices, Device{Name: name, MAC: header.MAC(d.MAC), MTU: d.MTU, Queues: d.Queues})
		w.ports = append(w.ports, d.Port)
		w.device[d.Port] = i
		w.out = append(w.out, &sender{w: w, device: i, out: eal.NewBurst()})
	}
	for other := 1; other <= w.layout.Lcores(); other++ {
		if other == w.lcore {
			continue
		}
		w.sends = append(w.sends, w.layout.Ring(eal.Sends, other, w.lcore))
		w.frames = append(w.frames, w.layout.Ring(eal.Frames, other, w.lcore))
	}
	w.Watch(nil)
	for _, r := range w.frames { // they were for a worker of the past
		for r.Pull(w.in) > 0 {
			w.in.Free()
		}
	}
	return w, nil
}

// Devices implements Wire.
func (w *attached) Devices() []Device { return w.devices }

// Watch implements Wire.
func (w *attached) Watch(queues []Queue) {
	w.queues = append(w.queues[:0], queues...)
	var of []eal.Queue
	for _, q := range queues {
		of = append(of, eal.Queue{Port: w.ports[q.Device], Index: uint16(q.Index)})
	}
	w.poller.Watch(of, append(w.sends[:len(w.sends):len(w.sends)], w.frames...))
}

// Receive implements Wire.
func (w *attached) Receive(frames []packet.Frame, spin, sleep time.Duration, wake int) (n, device int, ringing bool) {
	w.in.Recycle(w.spare)
	n, q, ringing := w.poller.Poll(w.in, spin, sleep, wake)
	if n == 0 {
		return 0, 0, ringing
	}
	for i := range n {
		frames[i].Data, frames[i].Checked = w.in.Data(i), 0
	}
	return n, w.queues[q].Device, ringing
}

// Pull implements Wire.
func (w *attached) Pull(f func(device int, frame []byte)) {
	w.in.Recycle(w.spare)
	for _, r := range w.frames {
		for r.Pull(w.in) > 0 {
			for i := range w.in.N {
				f(w.device[w.in.Port(i)], w.in.Data(i))
			}
			w.in.Free()
		}
	}
}

// Give implements Wire.
func (w *attached) Give(device int, frame []byte, to Peer) bool {
	if !w.copy(frame) {
		return false
	}
	w.spare.SetPort(w.spare.N-1, w.ports[device])
	w.single.Take(w.spare)
	pushed := w.layout.Ring(eal.Frames, w.lcore, w.layout.Lcore(to.Slot, to.Worker)).Push(w.single)
	w.single.Free()
	return pushed == 1
}

// copy copies a frame into the last spare buffer, where there is one and it fits.
func (w *attached) copy(frame []byte) bool {
	room := w.room()
	if len(room) < len(frame) {
		return false
	}
	w.spare.Resize(w.spare.N-1, copy(room, frame))
	return true
}

// room is the last spare buffer, nil where there is none.
func (w *attached) room() []byte {
	if w.spare.N == 0 && !w.spare.Alloc(spareLow) && !w.spare.Alloc(1) {
		return nil
	}
	return w.spare.Buffer(w.spare.N - 1)
}

// Tx implements Wire.
func (w *attached) Tx(device int) packet.Tx { return w.out[device] }

// SetWay implements Wire.
func (w *attached) SetWay(way Way) { w.way = way }

// Relay implements Wire.
func (w *attached) Relay() {
	if w.way.kind == held {
		return
	}
	for _, r := range w.sends {
		for r.Pull(w.relayed) > 0 {
			w.sort()
		}
	}
}

// sort gives what is to be relayed to the devices that it is for, in its order.
func (w *attached) sort() {
	for w.relayed.N > 0 {
		n, port := 1, w.relayed.Port(0)
		for n < w.relayed.N && w.relayed.Port(n) == port {
			n++
		}
		s := w.out[w.device[port]]
		s.out.AppendFirst(w.relayed, n)
		if s.out.N == eal.MaxBurst {
			s.flush()
		}
	}
}

// Flush implements Wire.
func (w *attached) Flush() (lost int) {
	for _, s := range w.out {
		s.flush()
	}
	lost, w.lost = w.lost, 0
	return lost
}

// Close implements Wire.
func (w *attached) Close() {
	w.Flush()
	for _, s := range w.out {
		s.out.Free()
	}
	for _, b := range []*eal.Burst{w.in, w.spare, w.relayed, w.single} {
		b.Free()
	}
}

// sender sends by one device. It implements packet.Tx.
type sender struct {
	w      *attached
	device int
	out    *eal.Burst
}

// Reserve implements packet.Tx.
func (s *sender) Reserve() []byte {
	if s.out.N == eal.MaxBurst { // the way was none
		s.flush()
		if s.out.N == eal.MaxBurst {
			return nil
		}
	}
	return s.w.room()
}

// Commit implements packet.Tx.
func (s *sender) Commit(n int) {
	i := s.w.spare.N - 1
	s.w.spare.Resize(i, n)
	s.w.spare.SetPort(i, s.w.ports[s.device])
	s.out.Take(s.w.spare)
	if s.out.N == eal.MaxBurst {
		s.flush()
	}
}

// flushTries is how often a device is asked again that has no room for a moment.
const flushTries = 64

// flush sends what is there by the way that is set.
func (s *sender) flush() {
	if s.out.N == 0 {
		return
	}
	w := s.w
	switch w.way.kind {
	case held:
		return
	case byQueue:
		q := eal.Queue{Port: w.ports[s.device], Index: uint16(w.way.num)}
		for try := 0; s.out.N > 0 && try < flushTries; try++ {
			q.Send(s.out)
		}
	case byPeer:
		w.layout.Ring(eal.Sends, w.lcore, w.layout.Lcore(w.way.peer.Slot, w.way.peer.Worker)).Push(s.out)
	}
	w.lost += s.out.N
	s.out.Free()
}
