package auth

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// DefaultMaxUDPSize is the largest UDP answer unless configured otherwise: what
// crosses nearly every path unfragmented (RFC 9715).
const DefaultMaxUDPSize = 1232

// Options configure an Engine.
type Options struct {
	MaxUDPSize int  // octets, at least 512; 0: DefaultMaxUDPSize
	Minimal    bool // no authority and additional data beyond what an answer needs

	Version    string // answer to TXT CH version.bind and version.server; "": REFUSED
	Identity   string // answer to TXT CH id.server and hostname.bind, and NSID (RFC 5001); "": REFUSED and none
	Generation string // answer to TXT CH generation.dnsapp; "": REFUSED

	// TCPIdle is the idle time-out that clients which ask are told (RFC 7828),
	// a multiple of 100 ms; 0: they are told nothing.
	TCPIdle time.Duration
}

// Engine is what the lanes of one process share. It is safe for concurrent use.
type Engine struct {
	zones   atomic.Pointer[zone.Set]
	counts  *counters.Zones // nil: zones are not counted
	maxUDP  int
	minimal bool
	chaos   []chaosName
	// options are the EDNS options of an answer, in wire form, by whether clients
	// shall leave and by what was asked for: bit 0 NSID, bit 1 keepalive.
	options [2][4][]byte
	leave   atomic.Bool
}

// New returns an engine that has no zones yet and refuses every query.
func New(o Options) *Engine {
	e := &Engine{maxUDP: o.MaxUDPSize, minimal: o.Minimal}
	if e.maxUDP == 0 {
		e.maxUDP = DefaultMaxUDPSize
	}
	e.maxUDP = min(max(e.maxUDP, wire.MinUDPSize), wire.MaxMessage)
	e.addChaos(o.Version, "version.bind.", "version.server.")
	e.addChaos(o.Identity, "id.server.", "hostname.bind.")
	e.addChaos(o.Generation, "generation.dnsapp.")
	for leave := range e.options {
		for i := range e.options[leave] {
			opts := &e.options[leave][i]
			if i&1 != 0 && o.Identity != "" {
				*opts = appendOption(*opts, wire.OptionNSID, []byte(o.Identity))
			}
			if i&2 != 0 && o.TCPIdle > 0 {
				tenths := min(o.TCPIdle/(100*time.Millisecond), 1<<16-1)
				if leave == 1 {
					tenths = 0
				}
				*opts = appendOption(*opts, wire.OptionKeepalive, binary.BigEndian.AppendUint16(nil, uint16(tenths)))
			}
		}
	}
	return e
}

// Leave makes every answer over TCP ask clients that understand it to close
// their connection when they have all answers (keepalive time-out 0, RFC 7828
// 3.4), until Stay.
func (e *Engine) Leave() { e.leave.Store(true) }

// Stay takes Leave back.
func (e *Engine) Stay() { e.leave.Store(false) }

func appendOption(dst []byte, code uint16, data []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, code)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(data)))
	return append(dst, data...)
}

// SetZones makes the lanes answer from s, each from its next burst or message
// on. The regions of the former set must stay mapped until every lane has
// passed such a boundary.
func (e *Engine) SetZones(s *zone.Set) { e.zones.Store(s) }

// Zones returns the present set, nil if there never was one.
func (e *Engine) Zones() *zone.Set { return e.zones.Load() }

// CountZones makes the lanes count the queries for each zone, too. It is called
// before there are any.
func (e *Engine) CountZones(z *counters.Zones) { e.counts = z }

// NewLane returns a lane that counts in block.
func (e *Engine) NewLane(block *counters.Block) *Lane {
	return &Lane{e: e, block: block}
}

// chaosName is a name of class CH and the RDATA of its TXT record.
type chaosName struct {
	name  []byte
	rdata []byte
}

func (e *Engine) addChaos(text string, names ...string) {
	if text == "" {
		return
	}
	var rdata []byte
	for rest := text; rest != ""; {
		n := min(len(rest), 255)
		rdata = append(append(rdata, byte(n)), rest[:n]...)
		rest = rest[n:]
	}
	for _, n := range names {
		name, err := wire.AppendName(nil, []byte(n), nil)
		if err != nil {
			panic("auth: " + err.Error()) // the names are our own literals
		}
		e.chaos = append(e.chaos, chaosName{name, rdata})
	}
}
