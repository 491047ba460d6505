package packet

import (
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/header"
)

// Headroom is the space that Output needs before a payload, bytes.
const Headroom = 72

// MaxFrame returns the longest frame that a layer makes with this MTU, bytes.
func MaxFrame(mtu int) int { return mtu + header.LinkMax }

// Verdict is what becomes of a frame or a datagram. Each gets one.
type Verdict uint8

// The verdicts. Input gives the first seven and Dropped, Output the last four and
// Transmit.
const (
	Deliver  Verdict = iota // a datagram for a service: Payload, Remote, Local, Link
	ToKernel                // Data is for the kernel
	Error                   // an ICMP error about the flow (UDP, Local, Remote): see Fault
	Held                    // a fragment, copied
	Consumed                // read, and there is nothing more to do
	Transmit                // send Data (of a frame) or Frame (of a datagram)
	Waits                   // copied until the next hop is known
	Split                   // sent in fragments through Tx
	Dropped                 // Drop says why
	NumVerdicts
)

var verdictNames = [NumVerdicts]string{"deliver", "to_kernel", "error", "held", "consumed", "transmit", "waits", "split", "dropped"}

// String returns the verdict as tests and logs name it.
func (v Verdict) String() string { return verdictNames[v] }

// Checked is what a device found out about a received frame's checksums. Where it
// says nothing, the layer looks.
type Checked uint8

// The bits of Checked.
const (
	GoodIP Checked = 1 << iota
	GoodUDP
	Bad // one is wrong
)

// Frame is a received frame and what is in it.
type Frame struct {
	// Data is the frame. Up to its capacity it is the layer's to write to until
	// Input returns.
	Data    []byte
	Checked Checked

	// What Input says.

	Verdict Verdict
	Drop    counters.Reason // with Dropped
	Share   bool            // an ARP or NDP frame for Learn of the other layers on this link; Data is as it came
	ECN     uint8           // with Deliver: ECN bits (RFC 3168)
	Link    header.Link     // how it came
	Payload []byte          // with Deliver: valid until the next Input
	Remote  burst.Endpoint  // with Deliver and Error
	Local   burst.Endpoint  // with Deliver and Error
	Fault   Fault           // with Error
}

// FaultKind is a kind of ICMP error.
type FaultKind uint8

// The kinds.
const (
	PortUnreachable FaultKind = iota
	HostUnreachable           // or its network, or it is forbidden
	TooBig                    // MTU says what would fit
	ParameterProblem
	TimeExceeded
)

// Fault is what an ICMP error says of a datagram that we had sent. Whoever knows
// the flow judges whether it is believed.
type Fault struct {
	Kind       FaultKind
	Type, Code uint8
	MTU        int    // with TooBig; 0 where an old router does not say
	Pointer    uint32 // with ParameterProblem
}

// Datagram is a datagram to be sent.
type Datagram struct {
	Buf    []byte // Headroom bytes, then N of payload; the layer writes to the headroom
	N      int
	Local  burst.Endpoint
	Remote burst.Endpoint
	Link   header.Link // how the query came; the zero Link: by route and neighbour
	ECN    uint8
	DF     bool // rather drop it than fragment it, here or (IPv4) on the way

	// What Output says.

	Verdict Verdict
	Drop    counters.Reason // with Dropped
	Frame   []byte          // with Transmit: part of Buf
	Offload bool            // with Transmit: the device must complete the checksums
	L2, L3  uint8           // with Offload: header lengths, bytes
}

// Tx takes the frames that a layer makes by itself. One frame is under way at a
// time: Reserve, then Commit or, to forget it, another Reserve.
type Tx interface {
	// Reserve returns room for a frame of MaxFrame bytes, nil where there is none.
	Reserve() []byte

	// Commit sends the first n bytes of what Reserve returned.
	Commit(n int)
}

// Stats are the counters of a layer. Only its own goroutine may read them.
type Stats struct {
	In      uint64 // frames
	InBy    [NumVerdicts]uint64
	Dropped [counters.NumReasons]uint64 // frames, also those held as fragments and given up later

	Out        uint64 // datagrams
	OutBy      [NumVerdicts]uint64
	OutDropped [counters.NumReasons]uint64

	Made       uint64 // frames given to Tx
	NoRoom     uint64 // frames that Tx had no room for
	Errors     uint64 // of Made, ICMP errors
	Limited    uint64 // ICMP errors not sent for being too many
	Conflicts  uint64 // another host used one of our addresses
	Duplicates uint64 // addresses found taken before they were used
	Unresolved uint64 // frames that waited for a neighbour in vain
}
