package master

import (
	"bytes"
	"runtime"
	"sync"
)

// A large file is read in pieces, on several processors. Where a piece starts is
// a guess (at a line that seems to state an owner, but may be in the middle of a
// quoted string), and so is what holds there (the origin and TTL of where
// the file has been read to). So a piece is first read into a list of what it
// would hand out. When its turn comes, and what was guessed is so, the list is
// handed out; if it is not, the piece is read again. What comes out is what
// reading in one go gives: the order of everything and all line numbers included.

// cutting says how files are cut into pieces.
type cutting struct {
	size    int // octets of a piece; a file of at most two is read in one go
	readers int // that read pieces ahead; 0: none does
	// overrun is how far a piece that is read ahead may go on behind its end to
	// finish its last record, in octets.
	overrun int
}

// cuts returns the cutting for this machine. The list of a piece should stay in
// the cache of a processor.
func cuts() cutting {
	c := cutting{size: 256 << 10, overrun: 64 << 10}
	if n := runtime.GOMAXPROCS(0); n > 1 {
		c.readers = n
	}
	return c
}

// parse reads the file to its end.
func (p *parser) parse() {
	switch {
	case len(p.data) <= 2*p.cut.size:
		p.parseTo(len(p.data))
	case p.cut.readers == 0:
		for p.going() {
			p.parseTo(p.cutAt(p.scanner.pos + p.cut.size))
			p.done()
		}
	default:
		p.parsePieces()
	}
}

// going reports whether there is something left to read.
func (p *parser) going() bool { return p.err == nil && !p.stop && p.scanner.pos < len(p.data) }

// done says how far the text has been read for good.
func (p *parser) done() {
	if p.h.Done != nil {
		p.lastTok, p.lastTyp = nil, nil // it may be in the text
		p.h.Done(p.file, p.scanner.pos)
	}
}

// cutAt returns the first offset behind at where a piece may start.
func (p *parser) cutAt(at int) int {
	for at < len(p.data) {
		n := bytes.IndexByte(p.data[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		if at < len(p.data) && class[p.data[at]] == ordinary && p.data[at] != '$' {
			return at
		}
	}
	return len(p.data)
}

// parsePieces is parse with others that read ahead.
func (p *parser) parsePieces() {
	// What a file says of itself, such as its $TTL, it says at its start.
	p.parseTo(p.cutAt(p.cut.size / 8))
	window := 2 * p.cut.readers
	work, spare := make(chan *piece, window), make([]*piece, window)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(work)
	for i := range spare {
		spare[i] = newPiece()
	}
	for range p.cut.readers {
		wg.Go(func() {
			for c := range work {
				c.read()
			}
		})
	}
	var queue []*piece // in the order of the file
	next, line := p.scanner.pos, p.line
	for p.going() {
		for len(spare) > 0 && next < len(p.data) {
			c := spare[len(spare)-1]
			spare = spare[:len(spare)-1]
			c.guess(p, next, line)
			line += uint32(bytes.Count(p.data[next:c.end], []byte{'\n'}))
			next = c.end
			queue = append(queue, c)
			work <- c
		}
		c := queue[0]
		queue = queue[1:]
		<-c.ready
		if p.agrees(c) {
			p.take(c)
		}
		p.parseTo(c.end) // all of it, or from a directive on, or nothing
		p.done()
		spare = append(spare, c)
	}
}

// piece is a part of a file, and what reading it ahead has given.
type piece struct {
	p     parser // after read: as it is behind the piece, or before a directive in it
	entry parser // as it was guessed to be before
	end   int    // where the next piece starts
	limit int    // of the text that p may see
	log   log
	h     Handler // into log
	ready chan struct{}
}

func newPiece() *piece {
	c := &piece{ready: make(chan struct{}, 1)}
	c.h = Handler{Record: c.log.record, Errorf: c.log.errorf, Warnf: c.log.warnf}
	return c
}

// guess makes c the piece that starts at this offset and line, with what holds
// where p is.
func (c *piece) guess(p *parser, at int, line uint32) {
	c.end = p.cutAt(at + p.cut.size)
	c.limit = min(c.end+p.cut.overrun, len(p.data))
	c.log.reset()
	c.entry = parser{
		scanner: scanner{data: p.data, pos: at, line: line}, h: &c.h, file: p.file, path: p.path, level: p.level,
		origin: p.origin, owner: c.p.owner[:0], ttl: p.ttl, hasTTL: p.hasTTL, dollar: p.dollar, rdata: c.p.rdata[:0], ahead: true,
	}
}

// read reads the piece.
func (c *piece) read() {
	c.p = c.entry
	c.p.data = c.p.data[:c.limit]
	c.p.parseTo(c.end)
	c.ready <- struct{}{}
}

// agrees reports whether c was read as p would read it.
func (p *parser) agrees(c *piece) bool {
	return c.entry.scanner.pos == p.scanner.pos && c.entry.line == p.line &&
		(c.p.scanner.pos < c.limit || c.limit == len(p.data)) && !c.p.needsOwner &&
		bytes.Equal(c.entry.origin, p.origin) && c.entry.dollar == p.dollar &&
		(!c.p.needsTTL || c.entry.ttl == p.ttl && c.entry.hasTTL == p.hasTTL)
}

// take hands out what c holds, and brings p to where c ended.
func (p *parser) take(c *piece) {
	p.err = c.log.replay(p.h, p.file)
	p.scanner.pos, p.line = c.p.scanner.pos, c.p.line
	if c.p.ownOwner {
		p.owner, p.moved = append(p.owner[:0], c.p.owner...), false
	}
	if c.p.ownTTL {
		p.ttl, p.hasTTL = c.p.ttl, c.p.hasTTL
	}
}
