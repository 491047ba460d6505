package zones

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/shm"
)

// The descriptors of a compiler process, beside standard input (the jobs),
// output and error.
const resultsFD = 3

// An image of largeImage octets or more has a region of its own; smaller ones
// share regions of about packSize.
const (
	largeImage = 1 << 20
	packSize   = 16 << 20
)

// maxResults bounds the results that wait for a region to fill up, so that the
// progress of a long compilation shows.
const maxResults = 10_000

// job is one zone to compile.
type job struct {
	Zone  config.Zone `json:"zone"`
	Known []zone.Dep  `json:"known"` // the files of the version that is served, none: compile it in any case
	Alone bool        `json:"alone"` // send its result at once
}

// result is what a compiler says about one job.
type result struct {
	Job    int          `json:"job"` // its number in the list
	Report zone.Report  `json:"report"`
	Errors []zone.Error `json:"errors"` // why the zone is refused; empty: it is not
	Same   bool         `json:"same"`   // the content is what is served; Report.Deps is how the files look now
	Offset uint64       `json:"offset"` // of the image in the region that comes with it. Valid iff neither of the above
}

// Compile is the life of a compiler process. It answers every job of the list
// on its standard input.
func Compile() error {
	var jobs []job
	if err := json.NewDecoder(os.Stdin).Decode(&jobs); err != nil {
		return fmt.Errorf("reading the list of zones (this command is started by dnsapp serve only): %w", err)
	}
	var c compiler
	for i := range jobs {
		if err := c.do(i, &jobs[i]); err != nil {
			return fmt.Errorf("zone %s: %w", jobs[i].Zone.Name, err)
		}
	}
	return c.flush()
}

// compiler gathers results and small images until they are worth a message.
type compiler struct {
	results []result
	images  []byte // at their offsets in the region less catalog.FirstOffset
}

func (c *compiler) do(i int, j *job) error {
	if deps, same := c.unchanged(j.Known); same {
		return c.add(result{Job: i, Same: true, Report: zone.Report{Deps: deps}}, j.Alone)
	}
	z, report, err := zone.Opener(c.open).Compile(j.Zone.Name, j.Zone.File)
	r := result{Job: i, Report: report}
	if err != nil {
		r.Errors = zoneErrors(err, report.Name, j.Zone.File)
		return c.add(r, j.Alone)
	}
	if z.Size() >= largeImage {
		region, err := z.Region("zone:" + shorten(j.Zone.Name))
		if err != nil {
			return err
		}
		r.Offset = catalog.FirstOffset
		return errors.Join(send([]result{r}, region), region.Close())
	}
	image, err := z.Image()
	if err != nil {
		return err
	}
	c.images, r.Offset = appendImage(c.images, image)
	return c.add(r, j.Alone)
}

func (c *compiler) add(r result, now bool) error {
	c.results = append(c.results, r)
	if now || len(c.images) >= packSize || len(c.results) >= maxResults {
		return c.flush()
	}
	return nil
}

// flush sends what has been gathered.
func (c *compiler) flush() error {
	if len(c.results) == 0 {
		return nil
	}
	var region *shm.Region
	if len(c.images) > 0 {
		var err error
		if region, err = pack("zones", c.images); err != nil {
			return err
		}
		defer region.Close()
	}
	err := send(c.results, region)
	c.results, c.images = c.results[:0], c.images[:0]
	return err
}

// appendImage adds an image to those of a region to be, and returns its offset
// there.
func appendImage(images, image []byte) (all []byte, offset uint64) {
	offset = uint64(catalog.FirstOffset + len(images))
	images = append(images, image...)
	return append(images, make([]byte, -len(images)&(catalog.Align-1))...), offset
}

// pack returns a new region of images, which lie in b as they shall lie behind
// catalog.FirstOffset.
func pack(name string, b []byte) (*shm.Region, error) {
	r, err := shm.Create(name, catalog.FirstOffset+len(b))
	if err != nil {
		return nil, fmt.Errorf("storing zones: %w", err)
	}
	r.Format(shm.KindZones, zone.Layout)
	copy(r.Bytes()[catalog.FirstOffset:], b)
	r.Publish()
	if err := r.SealContent(); err != nil {
		return nil, errors.Join(fmt.Errorf("storing zones: %w", err), r.Close())
	}
	return r, nil
}

// send sends one message: the descriptor of the results, and that of their
// region if there is one.
func send(results []result, region *shm.Region) error {
	b, err := json.Marshal(results)
	if err != nil {
		return fmt.Errorf("encoding results: %w", err)
	}
	f, err := memfile("dnsapp:results", b)
	if err != nil {
		return err
	}
	defer f.Close()
	fds := []int{int(f.Fd())}
	if region != nil {
		fds = append(fds, region.Fd())
	}
	if err := unix.Sendmsg(resultsFD, []byte{sendsResults}, unix.UnixRights(fds...), nil, 0); err != nil {
		return fmt.Errorf("sending results: %w", err)
	}
	return nil
}

// unchanged reports whether the files have the content that they are known to
// have had, and returns how they look now.
func (c *compiler) unchanged(known []zone.Dep) (now []zone.Dep, same bool) {
	for i := range known {
		d, err := zone.Opener(c.open).ReadDep(known[i].Path)
		if err != nil || d.SHA256 != known[i].SHA256 {
			return nil, false
		}
		now = append(now, d)
	}
	return now, len(known) > 0
}

// zoneErrors takes an error of zone.Compile apart.
func zoneErrors(err error, name, file string) []zone.Error {
	var list []zone.Error
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // each layer by itself
		case *zone.Error:
			list = append(list, *e)
		case interface{ Unwrap() []error }:
			for _, part := range e.Unwrap() {
				walk(part)
			}
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		}
	}
	walk(err)
	if len(list) == 0 { // of the file, which is named anyway
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		reason = strings.TrimPrefix(reason, "compiling zone "+name+": ")
		list = []zone.Error{{File: file, Reason: strings.TrimPrefix(reason, "reading "+file+": ")}}
	}
	return list
}

// shorten keeps the name of a memfd within its 249 octets.
func shorten(name string) string {
	if len(name) > 200 {
		return name[:200]
	}
	return name
}

// memfile returns a file in memory that holds b, at its start.
func memfile(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing %s: %w", name, err)
	}
	return f, nil
}
