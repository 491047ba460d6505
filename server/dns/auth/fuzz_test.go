package auth

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/server/counters"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// FuzzAnswer: whatever comes in, an answer is a well-formed message that fits,
// answers that question, and was not cut off by a caught panic.
func FuzzAnswer(f *testing.F) {
	s := serve(f, classOptions, "z.", classZone, "y.", "@ 300 SOA ns.x. h.x. 1 2 3 4 5\n@ 300 NS ns.x.\n@ 300 DNAME z.\n")
	for _, q := range classQuestions {
		query, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(query, uint16(512), false)
		f.Add(query, uint16(65535), true)
	}
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}, uint16(512), false)
	f.Fuzz(func(t *testing.T, query []byte, size uint16, tcp bool) {
		s := &tester{TB: t, e: s.e, lane: s.lane, block: s.block}
		tr, limit := counters.UDP, max(int(size), 512)
		if tcp {
			tr, limit = counters.TCP, dns.MaxMsgSize
		}
		out, reason := s.lane.Answer(nil, query, tr, limit)
		switch {
		case reason == counters.DropInternal:
			t.Fatal("a panic was caught")
		case reason != counters.NotDropped:
			if len(query) >= 12 && query[2]&0x80 == 0 || len(out) > 0 {
				t.Fatalf("no answer (%v), but %x", reason, out)
			}
			return
		case len(out) > limit:
			t.Fatalf("%d octets, limit %d", len(out), limit)
		case !bytes.Equal(out[:2], query[:2]) || out[2]&0x80 == 0:
			t.Fatalf("header %x", out[:12])
		case tcp && out[2]&2 != 0:
			t.Fatal("TC over TCP")
		}
		s.parse(out)
		if n := binary.BigEndian.Uint16(out[4:]); n > 1 || n == 1 && !bytes.HasPrefix(query[12:], out[12:12+questionLen(out[12:])]) {
			t.Fatalf("question of %x in %x", query, out)
		}
	})
}

// questionLen returns the octets of the uncompressed question at the start of b.
func questionLen(b []byte) int {
	n := 0
	for b[n] != 0 {
		n += int(b[n]) + 1
	}
	return n + 5
}

// A damaged image gives wrong answers or none, but never takes the lane down,
// hangs, or leaves the room that an answer has.
func TestDamagedImage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(file, []byte(classZone), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := zone.Compile("z.", file)
	if err != nil {
		t.Fatal(err)
	}
	image, err := c.Image()
	if err != nil {
		t.Fatal(err)
	}
	var queries [][]byte
	for _, q := range classQuestions {
		query, _ := q.Pack()
		queries = append(queries, query)
	}
	r := rand.New(rand.NewPCG(3, 4))
	e := New(Options{})
	lane := e.NewLane(new(counters.Block))
	caught, opened := 0, 0
	for range 3000 {
		bad := bytes.Clone(image)
		for range 1 + r.IntN(4) {
			bad[r.IntN(len(bad))] = byte(r.Uint32())
		}
		z, err := zone.Open(bad)
		if err != nil {
			continue
		}
		opened++
		set, err := zone.NewSet([]*zone.Zone{z})
		if err != nil {
			t.Fatal(err)
		}
		e.SetZones(set)
		for _, q := range queries {
			out, reason := lane.Answer(nil, q, counters.UDP, 512)
			if reason == counters.DropInternal {
				caught++
			}
			if len(out) > 512 {
				t.Fatalf("answer of %d octets", len(out))
			}
		}
	}
	if opened == 0 || caught == 0 {
		t.Errorf("%d damaged images opened, %d panics caught: the test does not reach what it is for", opened, caught)
	}
}

// FuzzZone: a zone that compiles verifies, and every question about its names
// has a well-formed answer.
func FuzzZone(f *testing.F) {
	f.Add([]byte(classZone))
	f.Add([]byte(apex + "*.a NS b\nb.a DNAME c\nc CNAME *.a\nd NAPTR 1 1 \"s\" \"\" \"\" e\ne SRV 1 2 3 @\n@ MX 1 @\n@ MX 2 .\n"))
	f.Add([]byte(apex + "s SVCB 0 t\nt SVCB 0 s\nh HTTPS 1 .\nh A 192.0.2.1\n*.w MX 1 x.w\n*.w A 192.0.2.2\n"))
	dir := f.TempDir()
	e := New(Options{MaxUDPSize: 4096})
	lane := e.NewLane(new(counters.Block))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 || bytes.Contains(text, []byte("$")) && !bytes.HasPrefix(text, []byte(apex)) {
			return // $GENERATE makes much of little, $INCLUDE finds nothing
		}
		file := filepath.Join(dir, "zone")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := zone.Compile("z.", file)
		if err != nil {
			return
		}
		image, err := c.Image()
		if err != nil {
			t.Fatal(err)
		}
		z, err := zone.Open(image)
		if err != nil {
			t.Fatal(err)
		}
		if err := z.Verify(); err != nil {
			t.Fatal(err)
		}
		set, err := zone.NewSet([]*zone.Zone{z})
		if err != nil {
			t.Fatal(err)
		}
		e.SetZones(set)
		s := &tester{TB: t, e: e, lane: lane}
		for _, name := range namesOf(z) {
			for _, prefix := range []string{"", "\x01x", "\x01*", "\x03abc\x01y"} {
				if len(prefix)+len(name) > 255 {
					continue
				}
				for _, qtype := range []uint16{1, 2, 5, 6, 12, 15, 16, 33, 35, 39, 43, 46, 64, 65, 255} {
					query := append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, prefix...)
					query = append(append(query, name...), byte(qtype>>8), byte(qtype), 0, 1)
					for _, tr := range []counters.Transport{counters.UDP, counters.TCP} {
						out, reason := lane.Answer(nil, query, tr, dns.MaxMsgSize)
						if reason != counters.NotDropped {
							t.Fatalf("%q type %d: %v", query[12:], qtype, reason)
						}
						checkPointers(s, out)
					}
				}
			}
		}
	})
}

// namesOf returns the names of the apex and of what its records lead to: enough
// to reach every kind of record without a list of all nodes.
func namesOf(z *zone.Zone) [][]byte {
	names := [][]byte{z.Origin()}
	for i := 0; i < len(names) && len(names) < 40; i++ {
		for _, label := range []string{"a", "b", "c", "d", "e", "h", "s", "t", "w", "mx", "sub", "ns", "alias", "svc", "srv", "*"} {
			n := append(append([]byte{byte(len(label))}, label...), names[i]...)
			var w wire.Name
			if w.Set(n) == len(n) && z.Lookup(&w, zone.None).Kind == zone.Exact {
				names = append(names, n)
			}
		}
	}
	return names
}
