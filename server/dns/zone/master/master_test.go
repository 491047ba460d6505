package master

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

var testOrigin = []byte("\x01z\x00")

// parsed is what a text gives: records in presentation form by the oracle, and
// "line: reason" of what is wrong.
type parsed struct {
	records, errs, warnings []string
}

func parseText(tb testing.TB, text string, files map[string]string) parsed {
	tb.Helper()
	var p parsed
	count := 0
	at := func(pos Pos) string { return fmt.Sprintf("%d:%d: ", pos.File, pos.Line) }
	err := Parse([]byte(text), "dir/zone", testOrigin, &Handler{
		Record: func(r *Record) error {
			p.records = append(p.records, recordText(tb, r))
			return nil
		},
		Errorf: func(pos Pos, f string, args ...any) { p.errs = append(p.errs, at(pos)+fmt.Sprintf(f, args...)) },
		Warnf:  func(pos Pos, f string, args ...any) { p.warnings = append(p.warnings, at(pos)+fmt.Sprintf(f, args...)) },
		Open: func(path string) ([]byte, uint16, error) {
			count++
			if text, ok := files[path]; ok {
				return []byte(text), uint16(count), nil
			}
			return nil, 0, fmt.Errorf("no file %s", path)
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// recordText returns the record as the oracle prints it, "owner TTL type data".
func recordText(tb testing.TB, r *Record) string {
	tb.Helper()
	b := append([]byte(nil), r.Owner...)
	b = append(b, byte(r.Type>>8), byte(r.Type), byte(r.Class>>8), byte(r.Class), byte(r.TTL>>24), byte(r.TTL>>16), byte(r.TTL>>8), byte(r.TTL), byte(len(r.RData)>>8), byte(len(r.RData)))
	rr, n, err := dns.UnpackRR(append(b, r.RData...), 0)
	if err != nil || n != len(b)+len(r.RData) {
		tb.Fatalf("the oracle refuses %x of type %d: %v", r.RData, r.Type, err)
	}
	return fmt.Sprintf("%s %d %s %s", rr.Header().Name, r.TTL, dns.Type(r.Type), strings.TrimPrefix(rr.String(), rr.Header().String()))
}

func expect(t *testing.T, text string, want ...string) {
	t.Helper()
	p := parseText(t, text, nil)
	if !slices.Equal(p.records, want) || len(p.errs) > 0 {
		t.Errorf("%s\ngot  %q\nwant %q\nerrors %q", text, p.records, want, p.errs)
	}
}

func expectError(t *testing.T, text string, place string, words string) {
	t.Helper()
	p := parseText(t, text, nil)
	if len(p.errs) == 0 || !strings.HasPrefix(p.errs[0], place+": ") || !strings.Contains(p.errs[0], words) {
		t.Errorf("%s\nerrors %q, want %q at %s; records %q", text, p.errs, words, place, p.records)
	}
}

// TXT strings, $INCLUDE, $GENERATE: the texts that new parsers get wrong.
func TestPitfall20MasterFiles(t *testing.T) {
	const ttl = "$TTL 9\n"
	expect(t, ttl+`a TXT "x""y"`, `a.z. 9 TXT "x" "y"`)
	expect(t, ttl+`a TXT x y "" "a;b(c)"`, `a.z. 9 TXT "x" "y" "" "a;b(c)"`)
	expect(t, ttl+`a TXT \"x\" \; a\ b \065\255`, `a.z. 9 TXT "\"x\"" ";" "a b" "A\255"`)
	expect(t, ttl+"a TXT ( x ; comment ) \"\n y )\n", `a.z. 9 TXT "x" "y"`)
	expectError(t, ttl+`a TXT \256`, "0:2", "escape")
	expectError(t, ttl+`a TXT \25`, "0:2", "escape")
	expectError(t, ttl+`a TXT "`+strings.Repeat("x", 256)+`"`, "0:2", "256 octets")
	expectError(t, ttl+`a TXT "open`, "0:2", "not closed")
	expectError(t, ttl+"a TXT \"open\nb A 192.0.2.1\n", "0:2", "not closed")
	expectError(t, ttl+"a TXT x\nb A ( 192.0.2.1\n\n", "0:3", "parentheses")

	files := map[string]string{"dir/sub/inc one": "in A 192.0.2.2\n   A 192.0.2.3\n$ORIGIN deep\n@ A 192.0.2.4\n$TTL 5\nt A 192.0.2.5\n"}
	for _, c := range []struct{ line, origin string }{
		{`$INCLUDE "sub/inc one"`, "z."}, {`$INCLUDE sub/inc\032one o`, "o.z."}, {`$INCLUDE sub/inc\ one o. ; comment`, "o."},
	} {
		p := parseText(t, ttl+"a A 192.0.2.1\n"+c.line+"\n  A 192.0.2.6\nb A 192.0.2.7\n", files)
		want := []string{"a.z. 9 A 192.0.2.1", "in." + c.origin + " 9 A 192.0.2.2", "in." + c.origin + " 9 A 192.0.2.3", "deep." + c.origin + " 9 A 192.0.2.4",
			"t.deep." + c.origin + " 5 A 192.0.2.5", "a.z. 9 A 192.0.2.6", "b.z. 9 A 192.0.2.7"}
		if !slices.Equal(p.records, want) || len(p.errs) > 0 {
			t.Errorf("%s: %q, want %q, errors %q", c.line, p.records, want, p.errs)
		}
	}
	loop := parseText(t, "$INCLUDE zone", map[string]string{"dir/zone": "$INCLUDE zone"})
	if len(loop.errs) != 1 || !strings.Contains(loop.errs[0], "deep") {
		t.Errorf("include loop: %q", loop.errs)
	}
	p := parseText(t, "$INCLUDE f\na 1 A 192.0.2.1", map[string]string{"dir/f": "$TTL 1\nx A bad\n"})
	if len(p.errs) != 1 || !strings.HasPrefix(p.errs[0], "1:2: ") {
		t.Errorf("error in an included file: %q", p.errs)
	}

	expect(t, ttl+`$GENERATE 1-5/2 h$ A 10.0.0.$`, "h1.z. 9 A 10.0.0.1", "h3.z. 9 A 10.0.0.3", "h5.z. 9 A 10.0.0.5")
	expect(t, ttl+`$GENERATE 9-10 h${0,3} CNAME x${1,4,x}.${-8,0,o}`, "h009.z. 9 CNAME x000a.1.z.", "h010.z. 9 CNAME x000b.2.z.")
	expect(t, ttl+`$GENERATE 1-1 \$.$$ 7 IN TXT "${30,0,X}" \\`, `$.$.z. 7 TXT "1F" "\\"`)
	expect(t, ttl+`$GENERATE 258-258 ${0,0,n} PTR ${0,7,N}`, "2.0.1.z. 9 PTR 2.0.1.0.z.")
	expect(t, ttl+"$GENERATE 1-1 g A 10.0.0.$ ; $ { comment\n  A 10.0.0.9\n", "g.z. 9 A 10.0.0.1", "g.z. 9 A 10.0.0.9")
	for _, bad := range []string{"1 h A 10.0.0.1", "2-1 h$ A 10.0.0.1", "1-2/0 h$ A 10.0.0.1", "1-2 h${x} A 10.0.0.1", "1-2 h${0,1,q} A 10.0.0.1", "1-2 h${0 A 10.0.0.1", "1-2", "1-2 h$", "1-2 h$ A 10.0.0", "0-99999999 h$ A 10.0.0.1"} {
		if p := parseText(t, ttl+"$GENERATE "+bad, nil); len(p.errs) == 0 || !strings.HasPrefix(p.errs[0], "0:2: ") {
			t.Errorf("$GENERATE %s: %q, %q", bad, p.records, p.errs)
		}
	}
}

// Defaults and order of TTL, class and owner.
func TestRecordDefaults(t *testing.T) {
	expect(t, "@ SOA a b 1 2 3 4 77\n A 192.0.2.1\n", "z. 77 SOA a.z. b.z. 1 2 3 4 77", "z. 77 A 192.0.2.1")
	expect(t, "a 5 IN A 192.0.2.1\nb IN 6 A 192.0.2.2\nc A 192.0.2.3\nd in a 192.0.2.4\n",
		"a.z. 5 A 192.0.2.1", "b.z. 6 A 192.0.2.2", "c.z. 6 A 192.0.2.3", "d.z. 6 A 192.0.2.4")
	expect(t, "$TTL 1h30m\na A 192.0.2.1\na 1w A 192.0.2.2\na A 192.0.2.3\n", "a.z. 5400 A 192.0.2.1", "a.z. 604800 A 192.0.2.2", "a.z. 5400 A 192.0.2.3")
	expect(t, "IN 1 IN A 192.0.2.1\nA 1 A 192.0.2.2\n", "IN.z. 1 A 192.0.2.1", "A.z. 1 A 192.0.2.2")
	expect(t, "a 1 A 192.0.2.1 ; no newline at the end", "a.z. 1 A 192.0.2.1")
	expect(t, "a 1 A 192.0.2.1\r\n\r\n   ; only a comment\r\nb 1 A 192.0.2.2\r\n", "a.z. 1 A 192.0.2.1", "b.z. 1 A 192.0.2.2")
	expect(t, "\xef\xbb\xbfa 1 A 192.0.2.1\n", "a.z. 1 A 192.0.2.1")
	expectError(t, "\n A 192.0.2.1\n", "0:2", "owner")
	expectError(t, "a A 192.0.2.1\n", "0:1", "TTL")
	expectError(t, "a 1 A 192.0.2.1 x\n", "0:1", "unexpected")
	expectError(t, "a 1 NOTYPE x\n", "0:1", "NOTYPE")
	expectError(t, "a 1 2 A 192.0.2.1\n", "0:1", "2")
	expectError(t, "a 1 ANY x\n", "0:1", "meta")
	expectError(t, "$ORIGIN a b\n", "0:1", "unexpected")
	expectError(t, "$FOO\n", "0:1", "unknown directive")
}

// One run reports every bad record; a bad directive ends it.
func TestErrorsGoOn(t *testing.T) {
	p := parseText(t, "$TTL 1\na A x\nb A ( 1.2.3\n ) \nc A 192.0.2.1\n$TTL x\nd A y\n", nil)
	if len(p.errs) != 3 || len(p.records) != 1 {
		t.Fatalf("errors %q, records %q", p.errs, p.records)
	}
	for i, place := range []string{"0:2: ", "0:3: ", "0:6: "} {
		if !strings.HasPrefix(p.errs[i], place) {
			t.Errorf("error %d is %q, want it at %s", i, p.errs[i], place)
		}
	}
}

// An error of the handler ends the reading and comes back.
func TestHandlerError(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	err := Parse([]byte("a 1 A 192.0.2.1\nb 1 A 192.0.2.2\n"), "", testOrigin, &Handler{Record: func(*Record) error { n++; return stop }})
	if err != stop || n != 1 {
		t.Errorf("%v after %d records", err, n)
	}
}

// oracleRecords are records of every type that the oracle knows, which it and we
// must read alike.
var oracleRecords = []string{
	"A 192.0.2.1", "NS ns", "CNAME c.", "SOA a b. 1 2h 3m 4d 5", "PTR p", "HINFO cpu \"o s\"", "MINFO a b", "MX 10 mx", "RP a b", "AFSDB 1 a",
	"X25 311061700956", "RT 5 a", "PX 10 a b", "GPOS -32.6882 116.8652 10.0", "AAAA 2001:db8::1", "AAAA ::", "AAAA 1:2:3:4:5:6:7:8", "AAAA ::ffff:192.0.2.1",
	"LOC 42 21 54.5 N 71 6 18.25 W -24m 30m 10m 2m", "SRV 1 2 3 s", "NAPTR 1 2 \"s\" \"a+b\" \"!x!y!\" n", "KX 1 k", "CERT PGP 0 0 Zm9v", "CERT 1 2 8 Zm9v", "DNAME d",
	"APL 1:192.0.2.0/24 !2:2001:db8::/32", "DS 1 8 2 00ff", "SSHFP 1 1 00ff", "IPSECKEY 10 1 2 192.0.2.1 Zm9v", "IPSECKEY 10 2 2 2001:db8::1 Zm9v", "IPSECKEY 10 3 2 g. Zm9v", "IPSECKEY 10 0 2 . Zm9v",
	"RRSIG A 8 2 3600 20300101000000 20290101000000 12345 z. Zm9v", "NSEC n A NS TYPE65534", "DNSKEY 257 3 13 Zm9v", "DHCID Zm9v",
	"NSEC3 1 0 5 aabb 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom A RRSIG", "NSEC3 1 0 5 - 0p9mhaveqvm6t7vbl5lop2u3t2rp3tom", "NSEC3PARAM 1 0 5 -", "TLSA 3 1 1 00ff", "SMIMEA 3 1 1 00ff",
	"HIP 2 00ff Zm9v a b.", "TALINK a b", "CDS 1 8 2 00ff", "CDNSKEY 257 3 13 Zm9v", "OPENPGPKEY Zm9v", "CSYNC 1 3 A NS", "ZONEMD 1 1 1 " + strings.Repeat("00", 48),
	"SVCB 1 s alpn=h2,h3 port=53 ipv4hint=192.0.2.1", "HTTPS 0 a.", "HTTPS 1 . mandatory=alpn alpn=h2 ech=Zm9v key123=x",
	"SPF \"v=spf1\"", "NID 10 0014:4fff:ff20:ee64", "L32 10 192.0.2.1", "L64 10 2001:0db8:1140:1000", "LP 10 l", "EUI48 00-00-5e-00-53-2a", "EUI64 00-00-5e-ef-10-00-00-2a",
	"URI 10 1 \"ftp://a/b\"", "CAA 0 issue \"ca.example; x\"", "AVC \"a\"", "AMTRELAY 10 0 1 192.0.2.1", "RESINFO qnamemin", "NINFO n", "RKEY 0 3 8 Zm9v",
	"EID 00ff", "NIMLOC 00ff", "UID \\# 4 00000001", "NSAP-PTR p", "TYPE65280 \\# 3 00 01ff", "TYPE65280 \\# 0", "A \\# 4 c0000201", "MX \\# 5 000a016100",
}

// Every type is read as the oracle reads it.
func TestOracle(t *testing.T) {
	for _, text := range oracleRecords {
		text = "own 60 IN " + text
		zp := dns.NewZoneParser(strings.NewReader(text), "z.", "")
		want, ok := zp.Next()
		if !ok {
			t.Errorf("the oracle refuses %q: %v", text, zp.Err())
			continue
		}
		buf := make([]byte, 1024)
		n, err := dns.PackRR(want, buf, 0, nil, false)
		if err != nil {
			t.Errorf("the oracle cannot pack %q: %v", text, err)
			continue
		}
		rdata := buf[len("\x03own\x01z\x00")+10 : n]
		var got []byte
		p := parser{scanner: scanner{data: []byte(text), line: 1}, origin: testOrigin, h: &Handler{
			Record: func(r *Record) error { got = bytes.Clone(r.RData); return nil },
			Errorf: func(_ Pos, f string, args ...any) { t.Errorf("%q: "+f, append([]any{text}, args...)...) },
		}}
		p.parse()
		if !bytes.Equal(got, rdata) {
			t.Errorf("%q:\ngot  %x\nwant %x", text, got, rdata)
		}
		if info, ok := byCode[wire.Type(want.Header().Rrtype)]; ok && info.fields != nil && !validRData(info.fields, rdata) {
			t.Errorf("%q: %x does not have the structure of its type", text, rdata)
		}
	}
}

// A number is taken up to its bound, whatever that is.
func TestParseUint(t *testing.T) {
	for _, most := range []uint64{0, 1, 3, 9, 10, 255, math.MaxUint16, math.MaxUint32, math.MaxUint64 - 1} {
		for _, n := range []uint64{0, 1, 7, 9, 10, 99, 255, 256, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64, most, most + 1} {
			got, err := parseUint([]byte(strconv.FormatUint(n, 10)), most)
			if (err == nil) != (n <= most) || err == nil && got != n {
				t.Errorf("%d, at most %d: %d, %v", n, most, got, err)
			}
		}
	}
	for _, text := range []string{"", "-1", "+1", "1x", " 1", "99999999999999999999"} {
		if n, err := parseUint([]byte(text), math.MaxUint64); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
}

// Addresses are read as net/netip reads them.
func TestAddresses(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	good := 0
	for range 200_000 {
		var b []byte
		for range 1 + r.IntN(12) {
			b = append(b, []string{":", ":", "::", "0", "1", "ffff", "12345", "aB", "1.2.3.4", ".", "255", "256", "%1"}[r.IntN(13)]...)
		}
		want, err := netip.ParseAddr(string(b))
		a6, ok := parseIPv6(b)
		if is := err == nil && want.Is6() && want.Zone() == ""; ok != is || ok && a6 != want.As16() {
			t.Fatalf("%q: %v, %x, want %v, %v", b, ok, a6, is, want)
		}
		a4, ok4 := parseIPv4(b)
		// netip refuses leading zeros, which master files have always had.
		if is := err == nil && want.Is4(); is && (!ok4 || a4 != want.As4()) || ok4 && !is && !bytes.Contains(b, []byte("0")) {
			t.Fatalf("%q: %v, %x, want %v, %v", b, ok4, a4, is, want)
		}
		if ok || ok4 {
			good++
		}
	}
	if good < 1000 {
		t.Errorf("only %d addresses were good", good)
	}
}

// No record of the common types allocates.
func TestNoAllocation(t *testing.T) {
	text := []byte(`$TTL 60
a A 192.0.2.1
  AAAA 2001:db8::1
  NS ns.example.com.
b MX 10 a
c CNAME a
d TXT "some text" "and \"more\""
_x._tcp SRV 1 2 3 a
e DS 1 8 2 00ff00ff
f DNSKEY 257 3 13 Zm9vYmFy
g PTR a
`)
	records := 0
	h := &Handler{Record: func(*Record) error { records++; return nil }}
	p := parser{rdata: make([]byte, 0, 512), owner: make([]byte, 0, 256)}
	if n := testing.AllocsPerRun(100, func() {
		rdata, owner := p.rdata, p.owner
		p = parser{scanner: scanner{data: text, line: 1}, h: h, origin: testOrigin, rdata: rdata, owner: owner[:0]}
		p.parse()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if records == 0 || records%10 != 0 {
		t.Errorf("%d records", records)
	}
}

// FuzzParse: no text makes the parser panic, and every record that comes out has
// the structure of its type, as has what the oracle makes of it.
func FuzzParse(f *testing.F) {
	for _, text := range oracleRecords {
		f.Add([]byte("a 60 IN " + text + "\n"))
	}
	f.Add([]byte("$ORIGIN x\n$TTL 1h\n@ A (\n192.0.2.1 ; c\n)\n$GENERATE 1-3/2 a$ A 10.0.0.${1,2,d}\n$INCLUDE x\n"))
	f.Add([]byte("a 1 TXT \"x\"\"y\" \\000 (\"a\nb\")\n\tTXT \\# 2 01 61\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("$GENERATE")) && len(text) > 200 {
			return // a large range takes long and shows nothing new
		}
		lines := uint32(bytes.Count(text, []byte("\n"))) + 1
		n := 0
		stop := errors.New("enough")
		err := Parse(text, "", testOrigin, &Handler{
			Record: func(r *Record) error {
				if n++; n > 1000 {
					return stop
				}
				if wire.NameLen(r.Owner) != len(r.Owner) || len(r.Owner) == 0 {
					t.Fatalf("owner %x", r.Owner)
				}
				if info, ok := byCode[r.Type]; ok && info.fields != nil && !validRData(info.fields, r.RData) {
					t.Fatalf("type %d: %x", r.Type, r.RData)
				}
				if r.Pos.Line == 0 || r.Pos.Line > lines {
					t.Fatalf("line %d of %d", r.Pos.Line, lines)
				}
				return nil
			},
			Errorf: func(p Pos, format string, args ...any) {
				if p.Line == 0 || p.Line > lines {
					t.Fatalf("line %d of %d: "+format, append([]any{p.Line, lines}, args...)...)
				}
			},
			Warnf: func(Pos, string, ...any) {},
			Open:  func(string) ([]byte, uint16, error) { return []byte("i 1 A 192.0.2.1\n"), 1, nil },
		})
		if err != nil && err != stop {
			t.Fatal(err)
		}
	})
}
