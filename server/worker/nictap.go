package worker

import (
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/tap"
)

// tapEnd is a lane's end of the TAP device by which the kernel has a part in a device.
// Every lane of the owner of the wire writes to it; the one that reads the first queue
// of the device reads it, and no other: so frames of the kernel keep their order, and a
// TAP device has a reader whenever the device has.
type tapEnd struct {
	tap.Port
	reading bool // it is in the poller
	ready   bool // it may have frames
}

// openTAPs makes the ends of the TAP devices of so many devices.
func (n *nic) openTAPs(devices int) {
	n.taps = make([]*tapEnd, devices)
	for i, fd := range n.lane.worker.m.TAPs {
		if fd != 0 && i < devices {
			n.taps[i] = &tapEnd{Port: tap.Port{FD: fd}}
		}
	}
}

// watchTAPs puts the TAP devices into the poller that this lane is to read, and takes
// the others out.
func (n *nic) watchTAPs() {
	for i, t := range n.taps {
		if t == nil {
			continue
		}
		want := false
		for _, q := range n.reading {
			want = want || q.Device == i && q.Index == 0
		}
		if want == t.reading {
			continue
		}
		var err error
		if want {
			err = n.lane.poller.Add(t.FD, int32(i))
		} else {
			err = n.lane.poller.Remove(t.FD)
		}
		// What came meanwhile raised no event here.
		t.reading, t.ready = want, want
		if err != nil {
			n.lane.log.Error("a TAP device is not watched", "lane", n.lane.global, "error", err)
		}
	}
}

// fromKernel sends what the kernel wants to be sent, a burst of it, and reports whether
// there was any.
func (n *nic) fromKernel() (any bool) {
	if n.parked {
		return false
	}
	looked := false
	for device, t := range n.taps {
		if t == nil || !t.reading {
			continue
		}
		if !looked { // the poller says which have frames
			n.lane.poller.Ready(n.lane.mark)
			looked = true
		}
		if t.ready && n.fromTAP(device, t) {
			any = true
		}
	}
	return any
}

func (n *nic) fromTAP(device int, t *tapEnd) (any bool) {
	tx := n.tx[device]
	for range burst.Max {
		room := tx.Reserve()
		if room == nil {
			return any // it waits in the device
		}
		length, err := t.Read(room)
		if err != nil {
			if skipped, ok := n.lost.Now(); ok {
				n.lane.log.Error("the kernel's part in a device", "lane", n.lane.global, "error", err, "not_logged", skipped)
			}
		}
		if length == 0 {
			t.ready = false
			return any
		}
		tx.Commit(length)
		any = true
	}
	return true
}

// tellKernel gives the kernel an answer about neighbours, which may be to a question of
// its own. Questions it does not get: the layer answers them.
func (n *nic) tellKernel(device int, frame []byte) {
	if t := n.taps[device]; t != nil && header.Advertisement(frame) {
		t.Write(frame)
	}
}
