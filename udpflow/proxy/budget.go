package proxy

// Refusals by ICMP that a lane sends: one a millisecond, and so many at once.
const refusalBurst = 100

// budget bounds how often something is done: once a millisecond.
type budget struct {
	left int32
	at   uint32 // mono.Millis of the last look
}

// take reports whether it may be done once more.
func (b *budget) take(now uint32) bool {
	if d := int32(now - b.at); d > 0 {
		b.left = min(b.left+min(d, refusalBurst), refusalBurst)
		b.at = now
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}
