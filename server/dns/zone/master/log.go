package master

import (
	"bytes"
	"fmt"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// log is what a Handler is told, to be told to another one later.
type log struct {
	events []event
	octets []byte
}

// event is one call of a Handler.
type event struct {
	owner    uint32 // in octets
	data     uint32 // RDATA or text, in octets
	size     uint32 // of the same
	line     uint32
	ttl      uint32
	typ      wire.Type
	class    wire.Class
	ownerLen uint8
	kind     eventKind
}

type eventKind uint8

const (
	isRecord eventKind = iota
	isError
	isWarning
)

func (l *log) reset() { l.events, l.octets = l.events[:0], l.octets[:0] }

func (l *log) record(r *Record) error {
	e := event{
		line: r.Pos.Line, ttl: r.TTL, typ: r.Type, class: r.Class, size: uint32(len(r.RData)), ownerLen: uint8(len(r.Owner)),
	}
	if n := len(l.events); n > 0 && bytes.Equal(l.owner(&l.events[n-1]), r.Owner) {
		e.owner = l.events[n-1].owner
	} else {
		e.owner = uint32(len(l.octets))
		l.octets = append(l.octets, r.Owner...)
	}
	e.data = uint32(len(l.octets))
	l.octets = append(l.octets, r.RData...)
	l.events = append(l.events, e)
	return nil
}

func (l *log) owner(e *event) []byte { return l.octets[e.owner : e.owner+uint32(e.ownerLen)] }

func (l *log) errorf(pos Pos, format string, args ...any) { l.text(isError, pos, format, args) }

func (l *log) warnf(pos Pos, format string, args ...any) { l.text(isWarning, pos, format, args) }

func (l *log) text(kind eventKind, pos Pos, format string, args []any) {
	at := len(l.octets)
	l.octets = fmt.Appendf(l.octets, format, args...)
	l.events = append(l.events, event{kind: kind, line: pos.Line, data: uint32(at), size: uint32(len(l.octets) - at)})
}

// replay tells h what l was told of a file. The error is that of h.Record, which
// ends it.
func (l *log) replay(h *Handler, file uint16) error {
	var r Record
	for i := range l.events {
		e := &l.events[i]
		pos, data := Pos{file, e.line}, l.octets[e.data:e.data+e.size]
		switch e.kind {
		case isError:
			h.Errorf(pos, "%s", data)
		case isWarning:
			h.Warnf(pos, "%s", data)
		default:
			r = Record{Owner: l.owner(e), Type: e.typ, Class: e.class, TTL: e.ttl, RData: data, Pos: pos}
			if err := h.Record(&r); err != nil {
				return err
			}
		}
	}
	return nil
}
