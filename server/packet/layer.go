package packet

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/packet/fragment"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/packet/neighbour"
	"github.com/dnsapp/dnsapp/server/packet/route"
)

// Address is an address of ours.
type Address struct {
	IP   netip.Addr
	VLAN uint16 // 0 untagged

	// Detect asks whether somebody has the address before it is used, for one
	// second after Own (RFC 4862 5.4, RFC 5227 with one probe). A generation that
	// takes over from another must not: the address is in use, by us.
	Detect bool
}

// Neighbour is a neighbour that is never asked for.
type Neighbour struct {
	IP   netip.Addr
	VLAN uint16
	MAC  header.MAC
}

// Config is what a Layer is made of. Zero limits get the defaults.
type Config struct {
	MAC        header.MAC
	MTU        int // of IP packets, 552 .. 65535; at least 1280 with IPv6
	Addresses  []Address
	Routes     []route.Route // prefixes on the link, and gateways
	Neighbours []Neighbour
	Kernel     bool // the kernel takes what is not served
	Offload    bool // the device completes checksums of what Output gives out
	Routers    bool // solicit IPv6 routers, and use them where no route leads
	ErrorRate  int  // ICMP errors sent in a second; default 100
	EchoRate   int  // echo requests answered in a second; default 1000
	Fragments  fragment.Config
	Table      neighbour.Config
	Paths      int // path MTUs kept; default 4096
}

// withDefaults returns c with its zero limits filled in.
func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.ErrorRate, 100)
	def(&c.EchoRate, 1000)
	def(&c.Paths, 4096)
	def(&c.Fragments.Memory, 4<<20)
	def(&c.Fragments.PerSource, 256<<10)
	def(&c.Fragments.Done, 1<<20)
	if c.Fragments.Timeout == 0 {
		c.Fragments.Timeout = 30e9
	}
	def(&c.Table.Neighbours, 1024)
	def(&c.Table.Waiting, 256)
	def(&c.Table.PerWaiting, 16)
	c.Table.Frame = MaxFrame(c.MTU)
	return c
}

// AddressState is how far an address is in use.
type AddressState uint8

// The states.
const (
	Tentative AddressState = iota // being asked for: not used
	Preferred                     // used
	Taken                         // somebody else has it: not used
)

// local is an address of ours.
type local struct {
	hi, lo uint64 // the address as two words
	ip     [16]byte
	vlan   uint16
	v6     bool
	state  AddressState
	detect bool
	asked  int64 // when Detect's probe went, 0 not yet
	ports  [1 << 16 / 64]uint64
}

func (a *local) serves(port uint16) bool { return a.ports[port>>6]&(1<<(port&63)) != 0 }

// Layer is the hosts' side of one link for one lane. It is for one goroutine.
type Layer struct {
	Stats Stats

	cfg      Config
	mac      header.MAC
	now      int64
	tx       Tx
	owner    bool
	locals   []local
	index    []int32 // open addressing over locals, -1 free
	shift    uint
	routes   *route.Table
	paths    *route.PathMTU
	table    *neighbour.Table
	frags    *fragment.Reassembler
	errors   bucket
	echoes   bucket
	announce int64 // when the second announcement is due, 0 never
	defended int64 // last announcement for a conflict
	router   router
	scratch  []byte // a frame that is to wait
	id       uint64 // the last identification, of answers that are not cut
}

// New returns a layer that owns nothing and listens on nothing.
func New(cfg Config, tx Tx) (*Layer, error) {
	cfg = cfg.withDefaults()
	if cfg.MTU < route.MinMTU4 || cfg.MTU > 65535 {
		return nil, fmt.Errorf("packet: MTU is %d: give %d to 65535", cfg.MTU, route.MinMTU4)
	}
	if cfg.MAC.Group() || cfg.MAC == (header.MAC{}) {
		return nil, fmt.Errorf("packet: link address %x is no host's: give the device's own", cfg.MAC)
	}
	if cfg.ErrorRate < 0 || cfg.EchoRate < 0 || cfg.Paths < 0 {
		return nil, fmt.Errorf("packet: a limit is negative (errors %d, echoes %d, paths %d): give 0 for the default", cfg.ErrorRate, cfg.EchoRate, cfg.Paths)
	}
	l := &Layer{
		cfg: cfg, mac: cfg.MAC, tx: tx, paths: route.NewPathMTU(cfg.Paths), scratch: make([]byte, MaxFrame(cfg.MTU)),
		id: rand.Uint64(), errors: newBucket(cfg.ErrorRate), echoes: newBucket(cfg.EchoRate),
	}
	var err error
	if l.routes, err = route.New(cfg.Routes); err != nil {
		return nil, fmt.Errorf("packet: %w", err)
	}
	if l.table, err = neighbour.New(cfg.Table, (*effects)(l)); err != nil {
		return nil, fmt.Errorf("packet: %w", err)
	}
	if l.frags, err = fragment.New(cfg.Fragments, &l.Stats.Dropped); err != nil {
		return nil, fmt.Errorf("packet: %w", err)
	}
	for _, n := range cfg.Neighbours {
		if n.MAC.Group() || !l.table.Set(neighbour.Key{IP: n.IP.As16(), VLAN: n.VLAN}, n.MAC) {
			return nil, fmt.Errorf("packet: neighbour %v at %x: give a host's link address, and fewer than %d neighbours", n.IP, n.MAC, cfg.Table.Neighbours)
		}
	}
	return l, l.addresses()
}

// addresses makes the table of local addresses.
func (l *Layer) addresses() error {
	size := 8
	l.shift = 64 - 3
	for size < 4*len(l.cfg.Addresses) {
		size *= 2
		l.shift--
	}
	l.index = make([]int32, size)
	for i := range l.index {
		l.index[i] = -1
	}
	l.locals = make([]local, len(l.cfg.Addresses))
	for i, a := range l.cfg.Addresses {
		v6 := a.IP.Is6()
		switch {
		case !a.IP.IsValid() || a.IP.Is4In6() || a.IP.IsMulticast() || a.IP.IsUnspecified() || a.IP.IsLoopback():
			return fmt.Errorf("packet: %v is no host's address", a.IP)
		case a.VLAN > 4094:
			return fmt.Errorf("packet: %v: VLAN %d: give 0 (untagged) to 4094", a.IP, a.VLAN)
		case v6 && l.cfg.MTU < route.MinMTU6:
			return fmt.Errorf("packet: %v with an MTU of %d: IPv6 needs at least %d (RFC 8200 5)", a.IP, l.cfg.MTU, route.MinMTU6)
		}
		ip := a.IP.As16()
		hi, lo := words(ip[:])
		if l.lookup(hi, lo) != nil {
			return fmt.Errorf("packet: %v is given twice: keep one", a.IP)
		}
		l.locals[i] = local{hi: hi, lo: lo, ip: ip, vlan: a.VLAN, v6: v6, state: Preferred, detect: a.Detect}
		if a.Detect {
			l.locals[i].state = Tentative
		}
		h := l.hash(hi, lo)
		for l.index[h] >= 0 {
			h = (h + 1) & uint64(len(l.index)-1)
		}
		l.index[h] = int32(i)
	}
	return nil
}

// words returns an address as two words.
func words(ip []byte) (hi, lo uint64) {
	return binary.BigEndian.Uint64(ip), binary.BigEndian.Uint64(ip[8:])
}

// mappedWord is the middle of an IPv4-mapped address.
const mappedWord = 0xffff << 32

func (l *Layer) hash(hi, lo uint64) uint64 { return (hi*3 ^ lo) * 0x9e3779b97f4a7c15 >> l.shift }

// lookup returns the local address, nil where it is none of ours.
func (l *Layer) lookup(hi, lo uint64) *local {
	for h := l.hash(hi, lo); l.index[h] >= 0; h = (h + 1) & uint64(len(l.index)-1) {
		if a := &l.locals[l.index[h]]; a.lo == lo && a.hi == hi {
			return a
		}
	}
	return nil
}

func (l *Layer) find(ip *[16]byte) *local { return l.lookup(words(ip[:])) }

// State returns the state of an address; ok is false where it is none of ours.
func (l *Layer) State(ip netip.Addr) (s AddressState, ok bool) {
	as16 := ip.As16()
	a := l.find(&as16)
	if a == nil {
		return 0, false
	}
	return a.state, true
}

// Listen begins to deliver datagrams to the UDP ports first .. last of ip; the
// unspecified address stands for all of its family.
func (l *Layer) Listen(ip netip.Addr, first, last uint16) error {
	return l.listen(ip, first, last, true)
}

// Unlisten ends it.
func (l *Layer) Unlisten(ip netip.Addr, first, last uint16) error {
	return l.listen(ip, first, last, false)
}

func (l *Layer) listen(ip netip.Addr, first, last uint16, on bool) error {
	as16 := ip.As16()
	found := false
	for i := range l.locals {
		a := &l.locals[i]
		if a.ip != as16 && !(ip.IsUnspecified() && a.v6 == ip.Is6()) {
			continue
		}
		found = true
		for p := int(first); p <= int(last); p++ {
			if on {
				a.ports[p>>6] |= 1 << (p & 63)
			} else {
				a.ports[p>>6] &^= 1 << (p & 63)
			}
		}
	}
	if !found {
		return fmt.Errorf("packet: listening on %v: it is none of our addresses: add it to them", ip)
	}
	return nil
}

// Check returns an error where the ledger of the package comment does not hold.
func (l *Layer) Check() error {
	s := &l.Stats
	in := s.InBy[Deliver] + s.InBy[ToKernel] + s.InBy[Error] + s.InBy[Consumed] + s.InBy[Transmit] + l.frags.Merged + uint64(l.frags.Pending())
	out := s.OutBy[Transmit] + s.OutBy[Waits] + s.OutBy[Split]
	for r := range counters.NumReasons {
		in += s.Dropped[r]
		out += s.OutDropped[r]
	}
	if in != s.In || out != s.Out {
		return fmt.Errorf("packet: %d frames in and %d accounted for, %d datagrams out and %d accounted for", s.In, in, s.Out, out)
	}
	return nil
}

// Pending returns the fragments held, and the frames that wait for a neighbour.
func (l *Layer) Pending() (fragments, waiting int) { return l.frags.Pending(), l.table.Waiting() }

// PathMTUs returns to how many destinations a smaller MTU than the link's is known.
func (l *Layer) PathMTUs() int { return l.paths.Len() }

// Neighbour returns what is known of a neighbour.
func (l *Layer) Neighbour(ip netip.Addr, vlan uint16) (header.MAC, neighbour.State) {
	mac, s, _ := l.table.Get(neighbour.Key{IP: ip.As16(), VLAN: vlan})
	return mac, s
}

// bucket limits a rate: as many in a second as it was made for, also at once.
type bucket struct {
	each int64 // ns for one
	full int64 // when everything that was spent is back
}

func newBucket(rate int) bucket { return bucket{each: int64(1e9) / int64(rate)} }

func (b *bucket) take(now int64) bool {
	at := max(b.full, now) + b.each
	if at > now+int64(1e9) {
		return false
	}
	b.full = at
	return true
}
