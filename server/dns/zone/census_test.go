package zone

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/dnsapp/dnsapp/server/dns/wire"
)

// Every record is counted once, those of names without data and of cuts too.
func TestCensus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "zone")
	text := `$TTL 60
@ SOA ns admin 1 1 1 1 1
@ NS ns
@ NS ns.sub
ns A 192.0.2.1
ns A 192.0.2.2
ns AAAA 2001:db8::1
sub NS ns.sub
ns.sub A 192.0.2.3
*.a.b TXT "x"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, rep, err := Compile("example.com.", file)
	if err != nil {
		t.Fatal(err)
	}
	image, err := c.Image()
	if err != nil {
		t.Fatal(err)
	}
	z, err := Open(image)
	if err != nil {
		t.Fatal(err)
	}
	got, err := z.Census()
	if err != nil {
		t.Fatal(err)
	}
	want := map[wire.Type]int{wire.TypeSOA: 1, wire.TypeNS: 3, wire.TypeA: 3, wire.TypeAAAA: 1, wire.TypeTXT: 1}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	sum := 0
	for _, n := range got {
		sum += n
	}
	if sum != rep.Records || sum != z.Records() {
		t.Errorf("counted %d, the compiler %d", sum, rep.Records)
	}
}
