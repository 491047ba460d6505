package zone

import (
	"bytes"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// MatchKind is how a name is found in a zone (RFC 1034 4.3.2, RFC 4592 4.1,
// RFC 6672 3.2).
type MatchKind uint8

// The kinds of match.
const (
	Exact      MatchKind = iota // the name has a node
	Wildcard                    // it has none, and a wildcard covers it
	Delegation                  // it is at or below a zone cut
	Redirect                    // it is below a DNAME
	NoName                      // it does not exist
)

// Match is the result of a lookup.
type Match struct {
	Kind MatchKind
	// Node is the name's own (Exact), the wildcard, the cut, the owner of the
	// DNAME, or the closest encloser (NoName).
	Node Node
}

// Candidate returns the node that the first slot with this hash names, or None
// if there is none. It touches nothing but slots; Lookup then checks the node.
func (z *Zone) Candidate(hash uint64) Ref {
	for i := range uint64(z.probes) {
		s := u64(z.slots, int((hash+i)&z.slotMask)*slotSize)
		if s == 0 {
			return None
		}
		if s>>32 == hash>>32 {
			return Ref(s)
		}
	}
	return None
}

// Touch reads from the node at r and from the cache line behind it, where its
// RRsets are, so that a batch can have many cache misses under way at once. The
// result means nothing.
func (z *Zone) Touch(r Ref) byte {
	at, last := int(r)*refUnit, len(z.arena)-1
	return z.arena[min(at, last)] + z.arena[min(at+64, last)]
}

// find returns the node of the name with this hash.
func (z *Zone) find(hash uint64, name []byte) Ref {
	for i := range uint64(z.probes) {
		s := u64(z.slots, int((hash+i)&z.slotMask)*slotSize)
		if s == 0 {
			return None
		}
		if s>>32 == hash>>32 && z.has(Ref(s), name) {
			return Ref(s)
		}
	}
	return None
}

// has reports whether the node at r has this name.
func (z *Zone) has(r Ref, name []byte) bool {
	at := int(r) * refUnit
	return int(z.arena[at+nodeNameLen]) == len(name) &&
		bytes.Equal(z.arena[at+nodeName:at+nodeName+len(name)], name)
}

// Lookup finds name, which must be at or below the origin. hint is what
// Candidate returned for its hash.
func (z *Zone) Lookup(name *wire.Name, hint Ref) Match {
	ref := hint
	if ref == None || !z.has(ref, name.Bytes()) {
		ref = z.find(name.Hash(0), name.Bytes())
	}
	if ref != None {
		n := z.node(ref)
		switch {
		case n.fl&(flagCut|flagsHidden) == 0:
			return Match{Exact, n}
		case n.fl&flagsHidden != 0:
			return z.covered(n)
		}
		return Match{Delegation, n}
	}

	// The closest encloser is the longest suffix that exists (RFC 4592 3.3.1);
	// the origin always does.
	for i := 1; i <= name.Labels()-z.labels; i++ {
		ref := z.find(name.Hash(i), name.Suffix(i))
		if ref == None {
			continue
		}
		n := z.node(ref)
		switch {
		case n.fl&flagsHidden != 0:
			return z.covered(n)
		case n.fl&flagCut != 0:
			return Match{Delegation, n}
		case n.fl&flagDNAME != 0:
			return Match{Redirect, n}
		}
		if w := Ref(u32(z.arena, n.at+nodeWildcard)); w != None {
			return Match{Wildcard, z.node(w)}
		}
		return Match{NoName, n}
	}
	return Match{NoName, z.node(z.apex)}
}

// covered returns the match of a name at or below the hidden node n.
func (z *Zone) covered(n Node) Match {
	cover := z.node(Ref(u32(z.arena, n.at+nodeCover)))
	if n.fl&flagBelow != 0 {
		return Match{Delegation, cover}
	}
	return Match{Redirect, cover}
}
