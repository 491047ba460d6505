// Package counters keeps the numbers that every test and every operator judges
// the server by, in a region that outlives the processes that count.
//
// Invariant: an exported counter never goes backwards, over reloads, crashes
// and respawns, and
//
//	received = served + sibling + forwarded + dropped(reason)
//
// holds exactly, except after a SIGKILL, where at most one burst a lane is
// missing on the right (InHand).
//
// Each (slot, worker, lane) owns one block, which only that lane's process
// writes. When a generation is gone (and not before: pidfd says so), Fold moves
// its blocks into a carry block. There are two carry blocks and one sequence
// word that says which of them counts, so a crash in a fold repeats nothing.
package counters

import "sync/atomic"

// Reason says why a datagram, or a message on a stream, got no answer.
type Reason uint8

// The reasons. They index the counter block: append only, and raise Layout.
const (
	NotDropped      Reason = iota
	DropShort              // shorter than a DNS header (RFC 1035 4.1.1)
	DropNotQuery           // QR=1: an answer, never answered (avoids loops)
	DropRingFull           // the forward ring of the owner was full
	DropNoSocket           // the draining worker lacks the socket to answer from
	DropTooLarge           // does not fit a forward record
	DropSend               // the kernel refused the answer (buffer full, no route)
	DropNoService          // no service for this listener in this generation
	DropOwnerGone          // its owner died with the packet in hand
	DropLimit              // over a configured limit
	DropInternal           // a bug was caught and logged
	DropTruncated          // datagram cut by our receive buffer
	DropBadEndpoint        // source address or port that cannot be answered
	DropClientLimit        // over a configured limit for one client
	DropNoServer           // no server of the backend takes new flows
	DropNoPort             // no socket towards the backend: ports or descriptors are used up
	DropToServer           // the kernel refused it towards the backend
	DropMalformed          // a frame whose lengths or fields contradict each other or the RFC
	DropChecksum           // a wrong IP, UDP or ICMP checksum
	DropNotLocal           // a frame for another link address, VLAN or IP address
	DropProtocol           // a protocol that is not served, and no kernel to take it
	DropNoListener         // no listener on this UDP port, and no kernel to take it
	DropOption             // an IP option or extension header that is refused
	DropFragment           // a fragment that is a duplicate or contradicts its datagram
	DropFragOverlap        // a fragment of a datagram whose fragments overlap (RFC 5722)
	DropFragLimit          // a fragment over the memory for reassembly
	DropFragTimeout        // a fragment whose datagram was not complete in time
	DropNoRoute            // an answer to an address without a route
	DropNeighbour          // an answer whose next hop does not resolve, or too many wait for it
	DropNoBuffer           // no free frame
	NumReasons
)

// reasonNames are the metric labels of the reasons.
var reasonNames = [NumReasons]string{
	"none", "short", "not_query", "ring_full", "no_socket", "too_large", "send", "no_service",
	"owner_gone", "limit", "internal", "truncated", "bad_endpoint", "client_limit",
	"no_server", "no_port", "to_server",
	"malformed", "checksum", "not_local", "protocol", "no_listener", "option", "fragment", "frag_overlap", "frag_limit",
	"frag_timeout", "no_route", "neighbour", "no_buffer",
}

// String returns the reason as the metrics and reports name it.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// ID names one counter of a block.
type ID uint16

// The plain counters of a block, one per lane. The ledger of the package
// comment is over Received, Served, Sibling, ForwardedTo and Dropped.
const (
	Received         ID = iota // datagrams read from the wire
	Served                     // of them, given to the service here and answered or consumed
	Sibling                    // of them, handed to another worker of this generation
	Sent                       // answers the kernel took
	RxBytes                    // UDP payload read
	TxBytes                    // UDP payload sent
	Bursts                     // receive calls that returned at least one datagram
	KernelDrops                // datagrams the kernel dropped on our sockets (SO_RXQ_OVFL)
	NotRecorded                // flows served without a table entry (table full)
	FromSibling                // datagrams taken from a sibling's ring
	ServedRing                 // datagrams from rings (sibling and forwarded) answered or consumed here
	TakenBack                  // datagrams taken back from the ring of a dead owner
	TCPAccepted                // connections accepted
	TCPClosed                  // connections ended, for whatever reason
	TCPAcceptFailed            // attempts to accept one that failed for want of descriptors or memory
	TCPQueries                 // messages (DNS) or lines (identify) read from streams
	TCPAnswers                 // answers written to streams
	QueriesLogged              // lines of the query log
	QueriesNotLogged           // queries that were to be logged and could not: queue full, or the file took nothing
	ProxyFlows                 // flows that a proxy began
	ProxyEnded                 // of them, those that have ended
	ProxyOut                   // datagrams sent to servers
	ProxyIn                    // datagrams read from servers: answers sent, late ones, and those not sent
	ProxyLate                  // of them, those that came after their flow had ended
	ProxyUnsent                // of them, those that the kernel refused towards the client
	ProxyHandoffs              // datagrams handed to the lane of the worker that has their flow
	ProxyHandoffLost           // of them, those that it could not pass on
	ProxyErrors                // ICMP errors of servers
	ForwardedTo                // [NumSlots] datagrams handed to the draining generation in that slot
	_                          //
	_                          //
	_                          //
	ForwardedFrom              // [NumSlots] datagrams taken from the rings of the generation in that slot
	_                          //
	_                          //
	_                          //
	Dropped                    // [NumReasons] datagrams read from the wire without an answer
)

// The ranges that follow Dropped.
const (
	NumSlots   = 4
	NumTypes   = 24 // query type buckets, see TypeBucket
	NumRcodes  = 13 // rcode buckets, see RcodeBucket
	NumLatency = 20 // latency buckets, see LatencyBound

	DroppedRing ID = Dropped + ID(NumReasons)     // [NumReasons] datagrams taken from rings without an answer
	DroppedTCP  ID = DroppedRing + ID(NumReasons) // [NumReasons] messages read from streams without an answer
	Queries     ID = DroppedTCP + ID(NumReasons)  // [Transport][NumTypes][NumRcodes] DNS answers
	LatencyNs   ID = Queries + ID(NumTransports)*NumTypes*NumRcodes
	Latency     ID = LatencyNs + ID(NumTransports)*ID(NumClasses) // [Transport][Class][NumLatency+1]; the last is the overflow
	numCounters ID = Latency + ID(NumTransports)*ID(NumClasses)*(NumLatency+1)
)

// Transport is how a query came in.
type Transport uint8

// The transports that have counters.
const (
	UDP Transport = iota
	TCP
	NumTransports
)

// String returns the metric label of t.
func (t Transport) String() string {
	if t == TCP {
		return "tcp"
	}
	return "udp"
}

// typeBuckets are the query types that are counted by name, in bucket order;
// every other type shares the last bucket.
var typeBuckets = [NumTypes]struct {
	code uint16
	name string
}{
	{1, "A"}, {28, "AAAA"}, {2, "NS"}, {5, "CNAME"}, {6, "SOA"}, {12, "PTR"}, {15, "MX"}, {16, "TXT"},
	{33, "SRV"}, {35, "NAPTR"}, {39, "DNAME"}, {43, "DS"}, {44, "SSHFP"}, {46, "RRSIG"}, {47, "NSEC"},
	{48, "DNSKEY"}, {52, "TLSA"}, {64, "SVCB"}, {65, "HTTPS"}, {251, "IXFR"}, {252, "AXFR"}, {255, "ANY"},
	{257, "CAA"}, {0, "other"},
}

var typeIndex = func() (t [258]uint8) {
	for i := range t {
		t[i] = NumTypes - 1
	}
	for i, b := range typeBuckets[:NumTypes-1] {
		t[b.code] = uint8(i)
	}
	return t
}()

// TypeBucket returns the bucket that counts queries of this type.
func TypeBucket(qtype uint16) int {
	if int(qtype) < len(typeIndex) {
		return int(typeIndex[qtype])
	}
	return NumTypes - 1
}

// TypeName returns the metric label of a bucket of TypeBucket.
func TypeName(bucket int) string { return typeBuckets[bucket].name }

var rcodeNames = [NumRcodes]string{
	"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
	"NOTAUTH", "NOTZONE", "BADVERS", "other",
}

// RcodeBucket returns the bucket that counts answers with this (extended)
// rcode.
func RcodeBucket(rcode uint16) int {
	switch {
	case rcode <= 10:
		return int(rcode)
	case rcode == 16:
		return 11
	}
	return 12
}

// RcodeName returns the metric label of a bucket of RcodeBucket.
func RcodeName(bucket int) string { return rcodeNames[bucket] }

// QueryID returns the counter of DNS answers by transport, type and rcode.
func QueryID(t Transport, qtype, rcode uint16) ID {
	return Queries + (ID(t)*NumTypes+ID(TypeBucket(qtype)))*NumRcodes + ID(RcodeBucket(rcode))
}

// Block is the counters of one lane. Its methods are safe for concurrent use;
// only processes of the owning (slot, worker, lane) may add.
type Block struct {
	w [blockWords]atomic.Uint64
}

// blockWords rounds a block up to a whole number of pages, so that no two
// lanes share a cache line and an unused block costs no memory.
const blockWords = (int(numCounters) + 511) / 512 * 512

// BlockSize is the size of a Block in bytes.
const BlockSize = blockWords * 8

// Add adds n to counter id.
func (b *Block) Add(id ID, n uint64) {
	if n != 0 {
		b.w[id].Add(n)
	}
}

// Load returns counter id.
func (b *Block) Load(id ID) uint64 { return b.w[id].Load() }
