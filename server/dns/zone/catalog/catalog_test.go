package catalog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
)

func places(n int) []Place {
	list := make([]Place, n)
	for i := range list {
		list[i] = Place{Region: uint64(7 - i%3), Offset: uint64(FirstOffset + i*Align), Counter: uint32(i)}
	}
	return list
}

// What a worker reads is what the supervisor wrote.
func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		want := New(42, places(n))
		r, err := want.Region()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(r)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			want.Regions, want.Places = []uint64{}, []Place{}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d zones (-want +got):\n%s", n, d)
		}
		if n == 1000 && !slices.Equal(got.Regions, []uint64{5, 6, 7}) {
			t.Errorf("regions %v", got.Regions)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A place in a region that is not listed is a bug of the writer, and said so.
func TestUnlistedRegion(t *testing.T) {
	c := New(1, places(3))
	c.Regions = c.Regions[1:]
	if r, err := c.Region(); err == nil {
		r.Close()
		t.Error("stored")
	}
}

// Whatever a catalog holds, reading it ends, with places in listed regions or an
// error.
func TestDamage(t *testing.T) {
	r, err := New(1, places(20)).Region()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 20_000 {
		h := shm.Heap(r.Size())
		copy(h.Bytes(), r.Bytes())
		for range 1 + rnd.IntN(3) {
			h.Bytes()[shm.HeaderSize+rnd.IntN(offIDs+20*placeSize-shm.HeaderSize)] = byte(rnd.Uint32())
		}
		c, err := Read(h)
		if err != nil {
			refused++
			if !errors.Is(err, shm.ErrLayout) {
				t.Fatal(err)
			}
			continue
		}
		for _, p := range c.Places {
			if !slices.Contains(c.Regions, p.Region) {
				t.Fatalf("place %+v, regions %v", p, c.Regions)
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused: the damage is none")
	}
}

// images returns a zone region with one image a zone, and their offsets.
func images(t *testing.T, serials map[string]int) (r *shm.Region, offsets map[string]uint64) {
	t.Helper()
	var all []byte
	offsets = map[string]uint64{}
	for name, serial := range serials {
		file := filepath.Join(t.TempDir(), "zone")
		text := fmt.Sprintf("@ 60 SOA ns admin %d 1 1 1 1\n@ 60 NS ns\nns 60 A 192.0.2.1\n", serial)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, _, err := zone.Compile(name, file)
		if err != nil {
			t.Fatal(err)
		}
		image, err := c.Image()
		if err != nil {
			t.Fatal(err)
		}
		offsets[name] = uint64(FirstOffset + len(all))
		all = append(all, image...)
		all = append(all, make([]byte, -len(all)&(Align-1))...)
	}
	r, err := shm.Create("test", FirstOffset+len(all))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	r.Format(shm.KindZones, zone.Layout)
	copy(r.Bytes()[FirstOffset:], all)
	r.Publish()
	if err := r.SealContent(); err != nil {
		t.Fatal(err)
	}
	return r, offsets
}

func mapIn(t *testing.T, v *View, id uint64, r *shm.Region) {
	t.Helper()
	fd, err := unix.Dup(r.Fd())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Map(id, fd); err != nil {
		t.Fatal(err)
	}
}

func serial(t *testing.T, set *zone.Set, name string) uint32 {
	t.Helper()
	z := find(t, set, name)
	if z == nil {
		t.Fatalf("no zone %s", name)
	}
	return z.Serial()
}

func find(t *testing.T, set *zone.Set, name string) *zone.Zone {
	t.Helper()
	b, err := wire.AppendName(nil, []byte(name), nil)
	if err != nil {
		t.Fatal(err)
	}
	var n wire.Name
	n.Set(b)
	return set.Find(&n, n.Labels())
}

// One zone of a region moves to another: the others stay the very same, and a
// region is unused once its last zone has gone.
func TestSwitch(t *testing.T) {
	v := NewView()
	many, at := images(t, map[string]int{"a.example.": 1, "b.example.": 1})
	mapIn(t, v, 1, many)
	c1 := New(1, []Place{{Region: 1, Offset: at["a.example."]}, {Region: 1, Offset: at["b.example."]}})
	set, unused, err := v.Switch(c1)
	if err != nil || len(unused) != 0 {
		t.Fatalf("%d unused regions, error %v", len(unused), err)
	}
	if a, b := serial(t, set, "a.example."), serial(t, set, "b.example."); a != 1 || b != 1 {
		t.Errorf("serials %d, %d", a, b)
	}
	before := find(t, set, "b.example.")

	one, at2 := images(t, map[string]int{"a.example.": 2})
	mapIn(t, v, 2, one)
	mapIn(t, v, 2, one) // sent twice: it stays
	set, unused, err = v.Switch(New(2, []Place{{Region: 2, Offset: at2["a.example."]}, c1.Places[1]}))
	if err != nil || len(unused) != 0 {
		t.Fatalf("%d unused regions, error %v", len(unused), err)
	}
	if a, b := serial(t, set, "a.example."), serial(t, set, "b.example."); a != 2 || b != 1 {
		t.Errorf("serials %d, %d", a, b)
	}
	if find(t, set, "b.example.") != before {
		t.Error("an unchanged zone was opened again")
	}

	last, at3 := images(t, map[string]int{"b.example.": 3})
	mapIn(t, v, 3, last)
	set, unused, err = v.Switch(New(3, []Place{{Region: 2, Offset: at2["a.example."]}, {Region: 3, Offset: at3["b.example."]}}))
	if err != nil || len(unused) != 1 {
		t.Fatalf("%d unused regions, error %v", len(unused), err)
	}
	for _, r := range unused {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if a, b := serial(t, set, "a.example."), serial(t, set, "b.example."); a != 2 || b != 3 {
		t.Errorf("serials %d, %d", a, b)
	}
}

// A catalog that cannot be served changes nothing.
func TestSwitchFails(t *testing.T) {
	v := NewView()
	r, at := images(t, map[string]int{"a.example.": 1, "b.example.": 1})
	mapIn(t, v, 1, r)
	good := New(1, []Place{{Region: 1, Offset: at["a.example."]}})
	if _, _, err := v.Switch(good); err != nil {
		t.Fatal(err)
	}
	a := good.Places[0]
	extra, _ := images(t, map[string]int{"c.example.": 1})
	mapIn(t, v, 2, extra)
	for what, c := range map[string]*Catalog{
		"a region that is not mapped": New(2, []Place{{Region: 9, Offset: FirstOffset}}),
		"an offset in the header":     New(2, []Place{{Region: 1, Offset: 0}}),
		"an offset not aligned":       New(2, []Place{{Region: 1, Offset: a.Offset + 8}}),
		"an offset in an image":       New(2, []Place{{Region: 1, Offset: a.Offset + Align}}),
		"an offset outside":           New(2, []Place{{Region: 1, Offset: 1 << 40}}),
		"a zone twice":                New(2, []Place{a, a}),
	} {
		if _, _, err := v.Switch(c); err == nil {
			t.Errorf("switched to %s", what)
		}
	}
	if unused := v.Prune(); len(unused) != 1 || unused[0].Close() != nil {
		t.Errorf("%d unused regions", len(unused))
	}
	if set, _, err := v.Switch(good); err != nil || serial(t, set, "a.example.") != 1 {
		t.Errorf("the present one again: %v", err)
	}
}

// A descriptor of something else is refused, and closed.
func TestMapRefuses(t *testing.T) {
	c, err := New(1, nil).Region()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fd, err := unix.Dup(c.Fd())
	if err != nil {
		t.Fatal(err)
	}
	if err := NewView().Map(1, fd); !errors.Is(err, shm.ErrLayout) {
		t.Errorf("error %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("the descriptor is left: %v", err)
	}
}
