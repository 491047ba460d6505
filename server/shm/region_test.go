package shm

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func backings(t *testing.T, size int) map[string]*Region {
	t.Helper()
	m, err := Create("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return map[string]*Region{"memfd": m, "heap": Heap(size)}
}

// A region is refused until it is published, and by every number that differs.
func TestCheck(t *testing.T) {
	for name, r := range backings(t, 4096) {
		if err := r.Check(KindDirectory, 7); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: unformatted region: %v", name, err)
		}
		r.Format(KindDirectory, 7)
		if err := r.Check(KindDirectory, 7); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: initializing region: %v", name, err)
		}
		r.Publish()
		if err := r.Check(KindDirectory, 7); err != nil {
			t.Errorf("%s: published region: %v", name, err)
		}
		if err := r.Check(KindDirectory, 8); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: other layout: %v", name, err)
		}
		if err := r.Check(KindRings, 7); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: other kind: %v", name, err)
		}
		View[header](r, 0).Size++
		if err := r.Check(KindDirectory, 7); !errors.Is(err, ErrLayout) {
			t.Errorf("%s: other size: %v", name, err)
		}
	}
}

// Two mappings of one descriptor see each other's words.
func TestMapShares(t *testing.T) {
	r := backings(t, 4096)["memfd"]
	fd, err := unix.Dup(r.Fd())
	if err != nil {
		t.Fatal(err)
	}
	o, err := Map(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	r.Uint64(128).Store(42)
	if got := o.Uint64(128).Load(); got != 42 {
		t.Fatalf("the other mapping reads %d", got)
	}
}

// A descriptor that could be resized under a reader is refused.
func TestMapRefusesUnsealed(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Map(fd); !errors.Is(err, ErrLayout) {
		t.Fatalf("Map of an unsealed descriptor: %v", err)
	}
}

// Nobody resizes a region, and nobody writes to one whose content is sealed.
func TestSeals(t *testing.T) {
	r := backings(t, 4096)["memfd"]
	if err := unix.Ftruncate(r.Fd(), 8192); !errors.Is(err, unix.EPERM) {
		t.Errorf("growing: %v", err)
	}
	if err := unix.Ftruncate(r.Fd(), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrinking: %v", err)
	}
	r.Format(KindZones, 1)
	r.Bytes()[100] = 9
	r.Publish()
	if err := r.SealContent(); err != nil {
		t.Fatal(err)
	}
	if r.Bytes()[100] != 9 {
		t.Error("sealing lost the content")
	}
	if err := r.Check(KindZones, 1); err != nil {
		t.Error(err)
	}
	if _, err := unix.Write(r.Fd(), []byte{1}); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing to sealed content: %v", err)
	}
	if _, err := Map(r.Fd()); !errors.Is(err, unix.EPERM) {
		t.Errorf("writable mapping of sealed content: %v", err)
	}
}

// A view that leaves the region or is misaligned panics instead of reading on.
func TestViewBounds(t *testing.T) {
	for name, r := range backings(t, 4096) {
		for what, f := range map[string]func(){
			"past the end": func() { r.Uint64(r.Size() - 7) },
			"negative":     func() { r.Uint64(-8) },
			"misaligned":   func() { r.Uint64(65) },
			"long slice":   func() { ViewSlice[uint64](r, 64, r.Size()/8) },
			"huge slice":   func() { ViewSlice[uint64](r, 64, 1<<61) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: %s: no panic", name, what)
					}
				}()
				f()
			}()
		}
		r.Uint64(r.Size() - 8).Store(1)
	}
}
