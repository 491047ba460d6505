package trace

import (
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/udpflow/ring"
)

// Record is one datagram or frame, as it was copied. Its data lies in the ring and
// is valid until the next call of Release; the process that wrote it may
// change it meanwhile.
type Record struct {
	Time     int64          // mono ns
	Src, Dst burst.Endpoint // Valid iff not Frame
	Data     []byte         // the payload, or the frame, at most the snap length of it
	Length   int            // octets that it had, at least len(Data)
	Sent     bool           // by the server; else it was received
	Frame    bool
}

// Source is the watcher's end of what one process traces. It belongs to one
// goroutine.
type Source struct {
	region *shm.Region
	lanes  []sourceLane
	counts []*counts
}

type sourceLane struct {
	c    *ring.Consumer
	upTo uint64 // what is read in this look
	next Record // Valid iff more
	more bool
}

// NewSource returns the watcher's end of r, which it takes over.
func NewSource(r *shm.Region) (*Source, error) {
	rings, list, err := attach(r)
	if err != nil {
		return nil, err
	}
	s := &Source{region: r, counts: list}
	for i := range rings.Lanes() {
		s.lanes = append(s.lanes, sourceLane{c: rings.Consumer(i, 0)})
	}
	return s, nil
}

// Look begins to read what is there now.
func (s *Source) Look() {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.upTo = l.c.Tail()
		l.advance()
	}
}

func (l *sourceLane) advance() {
	var p burst.Packet
	var m ring.Meta
	if l.more = l.c.Next(l.upTo, &p, &m); !l.more {
		return
	}
	l.next = Record{
		Time: m.Rx, Src: p.Remote, Dst: p.Local, Data: p.Payload, Length: max(int(p.IfIndex), len(p.Payload)),
		Sent: p.Socket == sentDatagram || p.Socket == sentFrame, Frame: p.Socket == receivedFrame || p.Socket == sentFrame,
	}
}

// Peek returns the oldest record of this look that was not taken, nil if there is none.
func (s *Source) Peek() *Record {
	if i := s.oldest(); i >= 0 {
		return &s.lanes[i].next
	}
	return nil
}

func (s *Source) oldest() int {
	at := -1
	for i := range s.lanes {
		if s.lanes[i].more && (at < 0 || s.lanes[i].next.Time < s.lanes[at].next.Time) {
			at = i
		}
	}
	return at
}

// Take passes over the record of Peek.
func (s *Source) Take() {
	if i := s.oldest(); i >= 0 {
		s.lanes[i].advance()
	}
}

// Release ends a look: what was read makes room.
func (s *Source) Release() {
	for i := range s.lanes {
		s.lanes[i].c.Release()
	}
}

// Counts returns how many records there were so far, and how many more the rings
// had no room for.
func (s *Source) Counts() (copied, dropped uint64) {
	for _, c := range s.counts {
		copied += c.Copied.Load()
		dropped += c.Dropped.Load()
	}
	for i := range s.lanes {
		dropped += s.lanes[i].c.Damaged()
	}
	return copied, dropped
}

// Close unmaps the region.
func (s *Source) Close() error { return s.region.Close() }
