package zone

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dnsapp/dnsapp/server/dns/zone/master"
)

// scattered returns a zone of which the records of a name are far from each
// other, with all that an image has references for.
func scattered(names int) string {
	var b strings.Builder
	b.WriteString(apexText)
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, i := range rnd.Perm(names) {
		fmt.Fprintf(&b, "host%d A 192.0.2.%d\n", i, i%256)
	}
	for _, i := range rnd.Perm(names) {
		switch i % 8 {
		case 0:
			fmt.Fprintf(&b, "host%d MX 10 host%d\n", i, rnd.IntN(2*names))
		case 1:
			fmt.Fprintf(&b, "host%d 7 A 192.0.2.%d\n", i, i%256) // twice
		case 2:
			fmt.Fprintf(&b, "cut%d NS ns.cut%d\nns.cut%d A 192.0.2.1\nx.y.cut%d TXT hidden\n", i, i, i, i)
		case 3:
			fmt.Fprintf(&b, "*.w%d SRV 1 2 3 host%d\n", i, i)
		case 4:
			fmt.Fprintf(&b, "a.b.c.ent%d AAAA 2001:db8::%x\n", i, i%65536)
		case 5:
			fmt.Fprintf(&b, "svc%d SVCB 1 .\nsvc%d A 192.0.2.1\nd%d DNAME host%d\n", i, i, i, i)
		}
	}
	return b.String()
}

// imageOf makes the image of a zone in one kind of memory, and returns it with
// what was said of the zone.
func imageOf(t *testing.T, text string, records int, large bool) (image []byte, warnings []Warning) {
	t.Helper()
	diags := &diagnostics{files: []string{"zone"}}
	b := newBuilder([]byte("\x01z\x00"), diags, records, len(text), large)
	if in := b.mem.nodes.mem != nil; in != large {
		t.Fatalf("outside of the heap: %v", in)
	}
	err := master.Parse([]byte(text), "zone", b.origin.Bytes(), &master.Handler{Record: b.add, Errorf: diags.errorf, Warnf: diags.warnf})
	if err != nil || len(diags.errs) > 0 {
		t.Fatal(err, diags.errs)
	}
	b.finish()
	b.check()
	if err := b.plan(); err != nil {
		t.Fatal(err)
	}
	image = make([]byte, headerSize+b.slots+b.arena)
	if err := b.encode(image, Digest{}); err != nil {
		t.Fatal(err)
	}
	return image, diags.warnings
}

// A large zone, whose memory is given back while its image is written, has the
// same image as if it were not; so has one that outgrows the room it was given.
func TestLargeZone(t *testing.T) {
	text := scattered(2 * partNodes)
	lines := strings.Count(text, "\n")
	want, warned := imageOf(t, text, lines, false)
	z, err := Open(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Verify(); err != nil {
		t.Fatal(err)
	}
	if z.Nodes() < 4*partNodes || z.Records() < 3*partNodes {
		t.Fatalf("%d nodes and %d records make too small a zone", z.Nodes(), z.Records())
	}
	for _, records := range []int{lines, 10, 8 * lines} {
		got, also := imageOf(t, text, records, true)
		if !bytes.Equal(got, want) {
			t.Errorf("room for %d of %d records: another image", records, lines)
		}
		if fmt.Sprint(also) != fmt.Sprint(warned) {
			t.Errorf("room for %d of %d records: other warnings", records, lines)
		}
	}
}
