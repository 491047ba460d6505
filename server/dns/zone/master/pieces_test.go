package master

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// atOnce cuts nothing.
var atOnce = cutting{size: math.MaxInt / 2}

// told returns everything that a handler is told of a text, in order; after limit
// records it ends the reading.
func told(text []byte, cut cutting, limit int) (list []string) {
	stop := errors.New("enough")
	files := uint16(0)
	at := 0
	err := parse(text, "zone", testOrigin, &Handler{
		Record: func(r *Record) error {
			list = append(list, fmt.Sprintf("%v %x %d %d %d %x", r.Pos, r.Owner, r.TTL, r.Class, r.Type, r.RData))
			if limit--; limit == 0 {
				return stop
			}
			return nil
		},
		Errorf: func(p Pos, f string, args ...any) {
			list = append(list, fmt.Sprintf("%v error ", p)+fmt.Sprintf(f, args...))
		},
		Warnf: func(p Pos, f string, args ...any) {
			list = append(list, fmt.Sprintf("%v warning ", p)+fmt.Sprintf(f, args...))
		},
		Open: func(path string) ([]byte, uint16, error) {
			if files++; files > 30 {
				return nil, 0, errors.New("too many files")
			}
			return []byte("i1 A 192.0.2.1\n$TTL 77\n A 192.0.2.2\n$ORIGIN other\ni2 AAAA ::1\n  NS x\ni3 5 A ( 1.2.3.4\n )\n"), files, nil
		},
		Done: func(file uint16, octets int) {
			if file == 0 && octets < at {
				list = append(list, fmt.Sprintf("done at %d, then at %d", at, octets))
			}
			if file == 0 {
				at = octets
			}
		},
	}, cut)
	return append(list, fmt.Sprint("end ", err))
}

// differ returns where the lists of reading text at once and in pieces differ;
// "" is nowhere.
func differ(text []byte, cut cutting, limit int) string {
	want, got := told(text, atOnce, limit), told(text, cut, limit)
	if slices.Equal(want, got) {
		return ""
	}
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	return fmt.Sprintf("%+v, limit %d: event %d of %d and %d\nat once   %q\nin pieces %q", cut, limit, i, len(want), len(got),
		want[i:min(i+2, len(want))], got[i:min(i+2, len(got))])
}

// fragments are what texts are made of: whatever carries over the end of a line.
var fragments = []string{
	"a A 192.0.2.1\n", "b 60 A 192.0.2.2\n", "c IN AAAA 2001:db8::1\n", "a A 192.0.2.3\n", "  NS ns\n", "\tTXT x\n", "\n", "; a comment ( \" \n", " ; only that\n",
	"d TXT \"a ; b\" (\n\"next\nline\" )\n", "e SOA a b (\n1 2\n3 4 5 )\n", "f A (\n192.0.2.4\n)\n", "g TXT ( \"\nh A 192.0.2.5\n\" )\n", "k DS (\nl\n", ")\n",
	"\"q\" A 192.0.2.1\n", "m\"q\" A 192.0.2.1\n", "n A 192.0.2.999\n", "o XYZ 1\n", "p A 192.0.2.1 (\n", "q TXT \"open\nr A 192.0.2.6\n", "s TXT a\\\nt A 192.0.2.7\n",
	"u TXT \"a\\\nb\"\n", "$TTL 99\n", "$ORIGIN sub\n", "$ORIGIN z.\n", "$INCLUDE i\n", "$INCLUDE i sub.z.\n", "$GENERATE 1-3 w$ A 10.0.0.$\n", "@ A 192.0.2.8\n",
	"x\\.y 1h A 192.0.2.9\n", "v.z. 5 MX 10 a\n", "y CAA 0 issue \"x\"\n", "z TYPE65280 \\# 1 00\n",
}

// What is read in pieces is what is read at once: records, errors, warnings, their
// order and their lines, wherever the cuts are and wherever the reading ends.
func TestPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var text strings.Builder
		if rnd.IntN(2) == 0 {
			text.WriteString("$TTL 300\n")
		}
		rare := rnd.IntN(3) // how much of the text goes on over lines
		for range rnd.IntN(60) {
			f := fragments[rnd.IntN(len(fragments))]
			if rare > 0 && rnd.IntN(4) > 0 {
				f = fragments[rnd.IntN(7)]
			}
			text.WriteString(f)
		}
		if rnd.IntN(3) == 0 {
			text.WriteString("end A 192.0.2.1") // without a newline
		}
		cut := cutting{size: 1 + rnd.IntN(100), readers: rnd.IntN(4), overrun: rnd.IntN(40)}
		if d := differ([]byte(text.String()), cut, rnd.IntN(100)); d != "" {
			t.Fatalf("%s\n%s", text.String(), d)
		}
	}
}

// The pieces of an ordinary file are read ahead, not again.
func TestPiecesAgree(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("$TTL 60\n@ SOA a b (\n 1 2 3\n 4 5 )\n NS a\n")
	for i := range 2000 {
		fmt.Fprintf(&text, "host%d A 10.0.%d.%d\n\tTXT \"a (b) ; c\"\n", i, i>>8, i&255)
	}
	p := parser{scanner: scanner{data: text.Bytes(), line: 1}, h: &Handler{}, origin: testOrigin}
	p.h = &Handler{Record: func(*Record) error { return nil }}
	p.cut = cutting{size: 1000, readers: 1, overrun: 100}
	p.parseTo(p.cutAt(100))
	for n := 0; p.going(); n++ {
		c := newPiece()
		c.guess(&p, p.scanner.pos, p.line)
		c.read()
		if !p.agrees(c) {
			t.Fatalf("piece %d, at line %d, was read in vain", n, p.line)
		}
		p.take(c)
		if p.scanner.pos < c.end {
			t.Fatalf("piece %d ended before its end", n)
		}
	}
}

// A large file is cut on a machine with more than one processor.
func TestCuts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if c := cuts(); c.readers != 0 {
		t.Errorf("%d readers on one processor", c.readers)
	}
	runtime.GOMAXPROCS(2)
	if c := cuts(); c.readers != 2 {
		t.Errorf("%d readers on two processors", c.readers)
	}
}

// FuzzPieces: no text is read in another way in pieces than at once.
func FuzzPieces(f *testing.F) {
	for i, text := range fragments {
		f.Add([]byte("$TTL 1\n"+strings.Repeat(text+fragments[0], 4)), uint8(8), uint8(1+i), uint8(0))
	}
	f.Add([]byte(strings.Join(fragments, "")), uint8(50), uint8(20), uint8(40))
	f.Fuzz(func(t *testing.T, text []byte, size, overrun, limit uint8) {
		if bytes.Contains(text, []byte("$GENERATE")) && len(text) > 200 {
			return // a large range takes long and shows nothing new
		}
		if d := differ(text, cutting{size: 1 + int(size), readers: 2, overrun: int(overrun)}, 1+int(limit)); d != "" {
			t.Fatal(d)
		}
	})
}
