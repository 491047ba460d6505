package table

import "github.com/dnsapp/dnsapp/server/mono"

// entry is word 1 of a slot: last_ms:32 | worker:16 | packets:8 | flags:8. It is
// never 0 in a slot that was used, for packets is at least 1.
//
// Ages compare signed. Two processes read the same instant up to a millisecond
// apart, so a stamp may lie ahead of now; unsigned, that would read as very old
// and a live flow would be stolen. A stamp further ahead than maxAheadMs is 24.8
// to 49.7 days old, not in the future.
type entry uint64

const (
	claimFlag entry = 1 << iota // a claimer is between its two swaps
	freeFlag                    // removed or swept
)

const (
	maxAheadMs = 5_000  // a stamp further ahead than this is old
	claimMs    = 60_000 // a CLAIM older than this was left by a dead writer
	onceMs     = 2      // an entry of one packet may be evicted from this age on
	maxPackets = 255    // packets saturate
)

// newEntry returns the entry of a flow that worker serves, on its first packet.
func newEntry(now uint32, worker int) entry {
	return entry(now)<<32 | entry(worker)<<16 | 1<<8
}

func (e entry) last() uint32   { return uint32(e >> 32) }
func (e entry) worker() int    { return int(uint16(e >> 16)) }
func (e entry) packets() uint8 { return uint8(e >> 8) }
func (e entry) claimed() bool  { return e&claimFlag != 0 }
func (e entry) freed() bool    { return e&freeFlag != 0 }

// younger reports whether e was stamped at most ms ago: whether its signed age is
// within -maxAheadMs..ms. Both ends are one comparison this way.
func (e entry) younger(now, ms uint32) bool {
	return now-e.last()+maxAheadMs <= ms+maxAheadMs
}

// alive reports whether e is the entry of a flow that had a packet within idle
// milliseconds. A worker that cannot be is damage, and not alive.
func (e entry) alive(now, idle uint32) bool {
	const notAlive = 0xff | (0xffff&^(MaxWorkers-1))<<16 // any flag, any worker too large
	return e&notAlive == 0 && e.younger(now, idle)
}

// claimable reports whether nobody lives in a slot with the entry e: it was never
// used, removed, has aged, or its claimer died.
func (e entry) claimable(now, idle uint32) bool {
	if e.claimed() {
		return !e.younger(now, claimMs)
	}
	return e == 0 || !e.alive(now, idle)
}

// once reports whether e, which is alive, has seen one packet only and is old
// enough to be evicted.
func (e entry) once(now uint32) bool {
	return e.packets() <= 1 && mono.Age(now, e.last()) >= onceMs
}

// refreshed returns e after another packet at now. It is e itself where neither
// the stamp nor the count would change.
func (e entry) refreshed(now uint32) entry {
	if mono.Age(now, e.last()) > 0 {
		e = e&(1<<32-1) | entry(now)<<32
	}
	if e.packets() < maxPackets {
		e += 1 << 8
	}
	return e
}

// withWorker returns e owned by worker.
func (e entry) withWorker(worker int) entry {
	return e&^(0xffff<<16) | entry(worker)<<16
}
