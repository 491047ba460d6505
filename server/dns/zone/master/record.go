package master

import "github.com/dnsapp/dnsapp/server/dns/wire"

// Record is a resource record. Its slices are valid until the next one is read.
type Record struct {
	Owner []byte // uncompressed wire form, case as written
	Type  wire.Type
	Class wire.Class
	TTL   uint32 // seconds; up to 2^32-1, though RFC 2181 8 allows 2^31-1 only
	RData []byte // uncompressed wire form
	Pos   Pos
}

// Pos is a place in the files of a zone.
type Pos struct {
	File uint16 // as Source.Open numbered it; 0 is the first
	Line uint32 // from 1; 0: the zone as a whole
}

// Handler takes what a file holds.
type Handler struct {
	// Record takes one record. Its error ends the reading and is returned.
	Record func(*Record) error
	// Errorf and Warnf take what is wrong with the file.
	Errorf func(Pos, string, ...any)
	Warnf  func(Pos, string, ...any)
	// Open returns the content of a file that is included and its number for
	// Pos. nil refuses $INCLUDE.
	Open func(path string) (data []byte, file uint16, err error)
	// Done, if it is there, is told from time to time that the first octets of a
	// large file will not be looked at again.
	Done func(file uint16, octets int)
}
