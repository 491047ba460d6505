package querylog

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone/master"
)

// maxLine bounds a line: a name of 255 octets takes four times that as text, and
// its backslashes are escaped once more.
const maxLine = 8*wire.MaxName + 512

// timeFormat is RFC 3339 with microseconds, in UTC.
const timeFormat = "2006-01-02T15:04:05.000000Z"

// appendLine appends the line of r.
func appendLine(b []byte, r *Record, tail string) []byte {
	b = append(b, `{"time":"`...)
	b = time.Unix(0, r.Time).UTC().AppendFormat(b, timeFormat)
	b = append(b, `","client":"`...)
	b = netip.AddrFrom16(r.IP).Unmap().AppendTo(b)
	b = append(b, `","port":`...)
	b = strconv.AppendUint(b, uint64(r.Port), 10)
	if r.TCP {
		b = append(b, `,"transport":"tcp"`...)
	} else {
		b = append(b, `,"transport":"udp"`...)
	}
	if r.NameLen > 0 {
		b = append(b, `,"name":"`...)
		b = appendName(b, r.Name[:r.NameLen])
		b = append(b, `","type":"`...)
		b = append(b, master.TypeName(wire.Type(r.Type))...)
		b = append(b, `","class":"`...)
		b = appendClass(b, r.Class)
		b = append(b, '"')
	}
	b = append(b, `,"rcode":"`...)
	b = appendRcode(b, r.Rcode)
	b = append(b, `","size":`...)
	b = strconv.AppendUint(b, uint64(r.Size), 10)
	return append(b, tail...)
}

// lineTail is the end of every line of a process.
func lineTail(epoch uint32, worker int) string {
	return `,"epoch":` + strconv.FormatUint(uint64(epoch), 10) + `,"worker":` + strconv.Itoa(worker) + "}\n"
}

// appendName appends a name as text within a JSON string. As text it is printable
// ASCII, so there are two characters to escape.
func appendName(b, name []byte) []byte {
	from := len(b)
	b = wire.AppendText(b, name)
	for i := from; i < len(b); i++ {
		if b[i] == '"' || b[i] == '\\' {
			b = append(b, 0)
			copy(b[i+1:], b[i:])
			b[i] = '\\'
			i++
		}
	}
	return b
}

func appendClass(b []byte, class uint16) []byte {
	switch class {
	case 1:
		return append(b, "IN"...)
	case 3:
		return append(b, "CH"...)
	case 255:
		return append(b, "ANY"...)
	}
	return strconv.AppendUint(append(b, "CLASS"...), uint64(class), 10)
}

func appendRcode(b []byte, rcode uint16) []byte {
	if name := counters.RcodeName(counters.RcodeBucket(rcode)); name != "other" {
		return append(b, name...)
	}
	return strconv.AppendUint(append(b, "RCODE"...), uint64(rcode), 10)
}
