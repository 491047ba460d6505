package auth

import (
	"net/netip"
	"time"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/querylog"
)

// LogTo makes the lane log the queries that s chooses.
func (l *Lane) LogTo(s *querylog.Sampler) { l.log = s }

// LogAnswer logs the query over TCP that Answer answered last, if it is its turn.
func (l *Lane) LogAnswer(client netip.AddrPort, size int) {
	r := l.log.Begin()
	if r == nil {
		return
	}
	r.IP, r.Port, r.TCP = client.Addr().As16(), client.Port(), true
	l.single.record(r, l.rcode, size)
	l.log.Commit()
}

// record fills in what the query and its answer were.
func (w *item) record(r *querylog.Record, rcode wire.RCODE, size int) {
	r.Time, r.Rcode, r.Size, r.NameLen = time.Now().UnixNano(), uint16(rcode), uint16(size), 0
	if w.query.Question {
		r.Type, r.Class = uint16(w.query.QType), uint16(w.query.QClass)
		r.NameLen = uint8(copy(r.Name[:], w.query.Name.Bytes()))
	}
}
