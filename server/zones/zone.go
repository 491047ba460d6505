package zones

import (
	"fmt"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/shm"
)

// Zone is one compiled version of a zone.
type Zone struct {
	Name   string
	File   string
	Loaded time.Time
	Report zone.Report // of the compiler; Deps is guarded by Store.mu

	cell    uint32    // of its counters
	checked time.Time // before the files were read last; guarded by Store.mu
	region  *region
	offset  uint64
	users   int // guarded by Store.mu
}

// region is memory that holds the images of some zones.
type region struct {
	id    uint64
	mem   *shm.Region
	zones int // versions in it that have users; guarded by Store.mu
	live  int // octets of their images; guarded by Store.mu
}

// identity is what a zone is asked for by. Its content may change.
type identity struct{ name, file string }

func (z *Zone) identity() identity { return identity{z.Name, z.File} }

// Cell returns where the queries for the zone are counted.
func (z *Zone) Cell() uint32 { return z.cell }

// Place returns where the image lies, for a catalog.
func (z *Zone) Place() catalog.Place {
	return catalog.Place{Region: z.region.id, Offset: z.offset, Counter: z.cell}
}

// Census counts the records by type. z must be in use.
func (z *Zone) Census() (map[wire.Type]int, error) {
	image, err := zone.Open(z.image())
	if err != nil {
		return nil, err
	}
	return image.Census()
}

// racy is how long after a change of a file its next change may leave the time
// of it as it is: twice the longest clock tick that kernels are built with.
const racy = 20 * time.Millisecond

// fresh reports whether the files are, by their status, still those that were
// read. It reads z.Report.Deps.
func fresh(deps []zone.Dep, checked time.Time) bool {
	for i := range deps {
		d := &deps[i]
		if checked.Sub(time.Unix(0, d.MtimeNs)) < racy || !d.Fresh() {
			return false
		}
	}
	return len(deps) > 0
}

// Failure is why the newest files of a zone are not what is served.
type Failure struct {
	Zone     config.Zone
	Problems []zone.Error // at least one

	deps    []zone.Dep // the files as far as they were read
	checked time.Time  // before they were
}

// String returns the first problem, and how many more there are.
func (f *Failure) String() string {
	text := f.Problems[0].Error()
	if more := len(f.Problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// RefusedError says which zones cannot be loaded.
type RefusedError struct{ Failures []*Failure }

// Error returns one line for each problem of each zone.
func (e *RefusedError) Error() string {
	var lines []string
	for _, f := range e.Failures {
		for i := range f.Problems {
			lines = append(lines, "zone "+f.Zone.Name+": "+f.Problems[i].Error())
		}
	}
	return strings.Join(lines, "\n")
}
