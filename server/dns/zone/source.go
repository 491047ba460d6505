package zone

import (
	"bytes"
	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// parse calls add for every record of data.
func (s *source) parse(origin, data []byte, add func(*Record) error) error {
	zp := dns.NewZoneParser(bytes.NewReader(data), wire.Text(origin), s.diags.files[0])
	zp.SetDefaultTTL(3600)
	zp.SetIncludeAllowed(true)
	buf := make([]byte, 70000)
	for rr, ok := zp.Next(); ok; rr, ok = zp.Next() {
		n, err := dns.PackRR(rr, buf, 0, nil, false)
		if err != nil {
			s.diags.errorf(Pos{}, "%v", err)
			continue
		}
		ol := wire.NameLen(buf)
		rec := Record{Owner: buf[:ol], Type: wire.Type(rr.Header().Rrtype), Class: wire.Class(rr.Header().Class), TTL: rr.Header().Ttl, RData: buf[ol+10 : n]}
		if err := add(&rec); err != nil {
			return err
		}
	}
	if err := zp.Err(); err != nil {
		s.diags.errorf(Pos{}, "%v", err)
	}
	return nil
}
