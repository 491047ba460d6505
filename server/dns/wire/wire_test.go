package wire

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// Lower-casing eight octets at a time does what Lower does to each.
func TestLower8(t *testing.T) {
	for c := range 256 {
		for pos := range 8 {
			w := uint64(0x5b40617a41005aff)&^(0xff<<(8*pos)) | uint64(c)<<(8*pos)
			got := lower8(w)
			for i := range 8 {
				if b := byte(got >> (8 * i)); b != Lower(byte(w>>(8*i))) {
					t.Fatalf("octet %#x became %#x", byte(w>>(8*i)), b)
				}
			}
		}
	}
}

// wireName returns the wire form of a name by the oracle.
func wireName(tb testing.TB, name string) []byte {
	tb.Helper()
	buf := make([]byte, 300)
	n, err := dns.PackDomainName(name, buf, 0, nil, false)
	if err != nil {
		tb.Fatal(err)
	}
	return buf[:n]
}

// A suffix has the hash, the place and the octets that it has as a name of its
// own, whatever the case and whatever was in the Name before.
func TestNameSuffixes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var n, own Name
	seen := map[uint64]string{}
	for range 2000 {
		var labels []string
		size := 1
		for range r.IntN(12) {
			label := make([]byte, 1+r.IntN(1+r.IntN(63)))
			for i := range label {
				label[i] = "abcXYZ-0_*"[r.IntN(10)]
			}
			if size += 1 + len(label); size > MaxName {
				break
			}
			labels = append(labels, string(label))
		}
		w := wireName(t, strings.Join(labels, ".")+".")
		padded := append(bytes.Clone(w), "behind the name"[:r.IntN(15)]...)
		if got := n.Set(padded); got != len(w) || n.Len() != len(w) || n.Labels() != len(labels) {
			t.Fatalf("%q: %d octets, %d labels", labels, got, n.Labels())
		}
		for i := 0; i <= len(labels); i++ {
			suffix := wireName(t, strings.Join(labels[i:], ".")+".")
			if got := own.Set(suffix); got != len(suffix) {
				t.Fatalf("%q: %d octets", suffix, got)
			}
			if !bytes.Equal(n.Suffix(i), bytes.ToLower(suffix)) || n.Hash(i) != own.Hash(0) || n.Offset(i) != len(w)-len(suffix) {
				t.Fatalf("suffix %d of %q: %q at %d", i, w, n.Suffix(i), n.Offset(i))
			}
			if other, ok := seen[n.Hash(i)]; ok && other != string(n.Suffix(i)) {
				t.Fatalf("%q and %q have one hash", other, n.Suffix(i))
			}
			seen[n.Hash(i)] = string(n.Suffix(i))
		}
	}
}

// Names at and beyond the limits, and what is no name.
func TestNameLimits(t *testing.T) {
	label := func(n int) []byte { return append([]byte{byte(n)}, bytes.Repeat([]byte("a"), n)...) }
	longest := bytes.Join([][]byte{label(63), label(63), label(63), label(61), {0}}, nil)
	most := append(bytes.Repeat([]byte{1, 'a'}, 127), 0)
	var n Name
	for what, c := range map[string]struct {
		b    []byte
		want int
	}{
		"root":          {[]byte{0}, 1},
		"longest":       {longest, 255},
		"most labels":   {most, 255},
		"256 octets":    {bytes.Join([][]byte{label(63), label(63), label(63), label(62), {0}}, nil), 0},
		"128 labels":    {append([]byte{1, 'a'}, most...), 0},
		"label of 64":   {append([]byte{64}, make([]byte, 70)...), 0},
		"pointer":       {[]byte{1, 'a', 0xc0, 12}, 0},
		"no root":       {label(3), 0},
		"label cut off": {[]byte{3, 'a', 'b'}, 0},
		"nothing":       {nil, 0},
	} {
		if got := n.Set(c.b); got != c.want {
			t.Errorf("%s: Set takes %d octets, want %d", what, got, c.want)
		}
		if got := NameLen(c.b); got != c.want {
			t.Errorf("%s: NameLen is %d, want %d", what, got, c.want)
		}
	}
}

// The presentation form goes to wire and back as the oracle has it.
func TestText(t *testing.T) {
	all := make([]byte, 0, 255)
	for c := range 256 {
		if len(all)%64 == 0 {
			all = append(all, 1)
		}
		name := []byte{1, byte(c), 0}
		text := Text(name)
		back, err := AppendName(nil, []byte(text), nil)
		if err != nil || !bytes.Equal(back, name) {
			t.Errorf("%#x: %q, back %x, %v", c, text, back, err)
		}
		if oracle := wireName(t, text); !bytes.Equal(oracle, name) {
			t.Errorf("%#x: %q is %x to the oracle", c, text, oracle)
		}
	}
	origin := []byte("\x01z\x00")
	for text, want := range map[string]string{
		".": "\x00", "@": "\x01z\x00", "a": "\x01a\x01z\x00", "a.": "\x01a\x00", `a\.`: "\x02a.\x01z\x00",
		`\@`: "\x01@\x01z\x00", `\000.`: "\x01\x00\x00", `a.b`: "\x01a\x01b\x01z\x00",
	} {
		if got, err := AppendName(nil, []byte(text), origin); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "..", ".a", "a..b", `a\`, `\25`, `\256`, strings.Repeat("a", 64) + ".", strings.Repeat("a.", 128)} {
		if got, err := AppendName(nil, []byte(text), origin); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
	if _, err := AppendName(nil, []byte("relative"), nil); err == nil {
		t.Error("a relative name without an origin was taken")
	}
}

// FuzzParse: a request is taken as valid exactly if it is one for the oracle,
// and what was read from it is the same.
func FuzzParse(f *testing.F) {
	for _, q := range []*dns.Msg{
		new(dns.Msg).SetQuestion("Example.ORG.", dns.TypeA),
		new(dns.Msg).SetQuestion(".", dns.TypeNS).SetEdns0(4096, true),
		new(dns.Msg).SetNotify("example.org."),
		new(dns.Msg).SetUpdate("example.org."),
		new(dns.Msg).SetIxfr("example.org.", 7, "a.", "b."),
	} {
		b, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02\x00\x00\x01\x00\x01\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00\x01\x00\x00\x29\x04\xd0\x00\x01\x80\x00\x00\x05\x00\x03\x00\x01x"))
	var q Query
	f.Fuzz(func(t *testing.T, msg []byte) {
		verdict := q.Parse(msg)
		if n := testing.AllocsPerRun(1, func() { q.Parse(msg) }); n != 0 {
			t.Fatalf("%v allocations", n)
		}
		if q.End > len(msg) && verdict > Response {
			t.Fatalf("question ends at %d of %d octets", q.End, len(msg))
		}
		m := new(dns.Msg)
		err := m.Unpack(msg)
		if verdict != Valid {
			return
		}
		if len(msg) < HeaderSize || Header(msg).QR() || Header(msg).QDCOUNT() != 1 || !q.Question {
			t.Fatalf("valid: %x", msg)
		}
		if err != nil {
			return // the oracle also refuses RDATA that is none of our business
		}
		if len(m.Question) != 1 || uint16(q.QType) != m.Question[0].Qtype || uint16(q.QClass) != m.Question[0].Qclass {
			t.Fatalf("question %v, we have %d %d", m.Question, q.QType, q.QClass)
		}
		if want := wireName(t, m.Question[0].Name); !bytes.Equal(q.Name.Bytes(), bytes.ToLower(want)) && isASCII(want) {
			t.Fatalf("name %q, want %q", q.Name.Bytes(), want)
		}
		o := m.IsEdns0()
		if (o != nil) != q.EDNS.Present || o != nil && (o.UDPSize() != q.EDNS.UDPSize || o.Do() != q.EDNS.DO || o.Version() != q.EDNS.Version) {
			t.Fatalf("OPT %v, we have %+v", o, q.EDNS)
		}
	})
}

// isASCII says that bytes.ToLower means the same as RFC 4343.
func isASCII(b []byte) bool {
	for _, c := range b {
		if c > 127 {
			return false
		}
	}
	return true
}

// FuzzName: a name that Set takes is one that the oracle takes, and the other
// way round.
func FuzzName(f *testing.F) {
	f.Add([]byte("\x03www\x07EXAMPLE\x00"))
	f.Add([]byte("\xc0\x0c"))
	f.Add(bytes.Repeat([]byte("\x01a"), 130))
	var n Name
	f.Fuzz(func(t *testing.T, b []byte) {
		got := n.Set(b)
		if got != NameLen(b) {
			t.Fatalf("Set takes %d octets, NameLen %d", got, NameLen(b))
		}
		if got == 0 {
			return
		}
		if _, end, err := dns.UnpackDomainName(b, 0); err != nil || end != got {
			t.Fatalf("%d octets, the oracle has %d, %v", got, end, err)
		}
		back, err := AppendName(nil, []byte(Text(n.Bytes())), nil)
		if err != nil || !bytes.Equal(back, n.Bytes()) {
			t.Fatalf("%x became %q and %x, %v", n.Bytes(), Text(n.Bytes()), back, err)
		}
	})
}
