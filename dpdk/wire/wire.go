package wire

import (
	"time"

	"github.com/dnsapp/dnsapp/server/packet"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// Device is a device as workers use it.
type Device struct {
	Name   string // EAL's
	MAC    header.MAC
	MTU    int
	Queues int
}

// Queue names a receive queue: a device, by its number in Devices, and the queue.
type Queue struct{ Device, Index int }

// Peer is a worker of a generation, by the slot of that.
type Peer struct{ Slot, Worker int }

// Way is how frames leave. The zero Way is none: they wait, as many as fit.
type Way struct {
	kind wayKind
	num  int
	peer Peer
}

type wayKind uint8

const (
	held wayKind = iota
	byQueue
	byPeer
)

// ByQueue is the way over queue i of each device, for the rx owner.
func ByQueue(i int) Way { return Way{kind: byQueue, num: i} }

// ByPeer is the way over another worker, of the rx owner.
func ByPeer(p Peer) Way { return Way{kind: byPeer, peer: p} }

// Wire is a worker's part of the devices. Everything is called from the goroutine,
// locked to its thread, that called Attach.
type Wire interface {
	// Devices are numbered in the order of the configuration.
	Devices() []Device

	// Watch says which queues Receive looks at from now on.
	Watch(queues []Queue)

	// Receive fills the Data of frames, of which there are burst.Max, from the first
	// queue that has packets, and returns how many and of which device. Where none
	// has any it goes on looking for spin, and then sleeps for at most sleep, or until
	// wake, an eventfd, is written to. ringing says that there is something for Relay
	// or Pull.
	Receive(frames []packet.Frame, spin, sleep time.Duration, wake int) (n, device int, ringing bool)

	// Pull calls f with each frame that peers have given.
	Pull(f func(device int, frame []byte))

	// Give copies a frame to a worker, and reports whether that has room.
	Give(device int, frame []byte, to Peer) bool

	// Tx returns what sends by a device. A frame leaves with Flush at the latest.
	Tx(device int) packet.Tx

	// SetWay says how frames leave from now on.
	SetWay(w Way)

	// Relay sends, by the way that is set, what peers have for it to send.
	Relay()

	// Flush sends what is left. It returns how many frames were lost since the last
	// Flush, relayed ones included: their device, or their peer, took no more.
	Flush() (lost int)

	// Close gives all buffers back.
	Close()
}
