package route

// The least path MTUs that are believed. IPv6 has none below 1280 (RFC 8201 4);
// for IPv4 a smaller one is most likely forged, and 552 is what Linux believes.
const (
	MinMTU4 = 552
	MinMTU6 = 1280
)

// pathTime is how long a reported MTU counts, nanoseconds (RFC 8201 5.3).
const pathTime = int64(600e9)

type path struct {
	mtu   int
	until int64
}

// PathMTU keeps what was reported of the paths to destinations. It is for one
// goroutine.
type PathMTU struct {
	max   int
	paths map[[16]byte]path
}

// NewPathMTU returns an empty table of at most size destinations.
func NewPathMTU(size int) *PathMTU {
	return &PathMTU{max: size, paths: make(map[[16]byte]path, size)}
}

// Len returns how many destinations have an entry.
func (p *PathMTU) Len() int { return len(p.paths) }

// Get returns the MTU of the path to ip, at most link.
func (p *PathMTU) Get(ip *[16]byte, link int, now int64) int {
	if len(p.paths) == 0 {
		return link
	}
	e, ok := p.paths[*ip]
	if !ok || now >= e.until {
		return link
	}
	return min(e.mtu, link)
}

// Report lowers the MTU of the path to ip; it never raises it. It reports whether
// it was believed. Whoever calls it has checked that the report quotes a packet
// that was ours.
func (p *PathMTU) Report(ip *[16]byte, mtu, link int, v6 bool, now int64) bool {
	if v6 && mtu < MinMTU6 {
		return false
	}
	mtu = max(mtu, MinMTU4)
	if mtu >= p.Get(ip, link, now) {
		return false
	}
	if _, known := p.paths[*ip]; !known && len(p.paths) >= p.max {
		for victim := range p.paths { // any: an entry comes back with the next report
			delete(p.paths, victim)
			break
		}
	}
	p.paths[*ip] = path{mtu, now + pathTime}
	return true
}
