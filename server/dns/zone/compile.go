package zone

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/wire"
	"github.com/dnsapp/dnsapp/server/dns/zone/master"
	"github.com/dnsapp/dnsapp/server/shm"
)

// compilerVersion is part of every content key. Raise it when the compiler makes
// something else of the same files.
const compilerVersion = 1

// Digest is a SHA-256 hash. As text it is hexadecimal.
type Digest [sha256.Size]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return fmt.Errorf("a digest has %d hexadecimal digits, not %d", 2*len(d), len(text))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Dep is one file that a zone was built from, as it was when it was read.
type Dep struct {
	Path    string `json:"path"`
	Dev     uint64 `json:"dev"`
	Ino     uint64 `json:"ino"`
	Size    int64  `json:"size"` // octets
	MtimeNs int64  `json:"mtime_ns"`
	SHA256  Digest `json:"sha256"`
}

// Fresh reports whether the file at d.Path is, by its status, still the one that
// was read. It does not read the file.
func (d *Dep) Fresh() bool {
	var st unix.Stat_t
	if err := unix.Stat(d.Path, &st); err != nil {
		return false
	}
	return uint64(st.Dev) == d.Dev && st.Ino == d.Ino && st.Size == d.Size && st.Mtim.Nano() == d.MtimeNs
}

// keyOf returns the content key of a zone: compiler, layout, origin and files.
func keyOf(origin []byte, deps []Dep) Digest {
	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint32(nil, compilerVersion))
	h.Write(binary.LittleEndian.AppendUint32(nil, Layout))
	h.Write(origin)
	for i := range deps {
		h.Write(deps[i].SHA256[:])
	}
	return Digest(h.Sum(nil))
}

// Report is what Compile says about a zone beside its image.
type Report struct {
	Name     string    `json:"name"` // origin, lower case and absolute
	Key      Digest    `json:"key"`  // of the content: equal keys, equal images
	Serial   uint32    `json:"serial"`
	Records  int       `json:"records"`
	Nodes    int       `json:"nodes"`
	Size     int       `json:"size"` // octets of the image
	Deps     []Dep     `json:"deps"` // the zone file first, then includes in the order they were met
	Warnings []Warning `json:"warnings"`
	// WarningsDropped is the number of warnings beyond those in Warnings.
	WarningsDropped int `json:"warnings_dropped"`
}

// Warning is something in a zone file that is served, but may surprise.
type Warning struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1; 0: the zone as a whole
	Text string `json:"text"`
}

// String returns the warning as "file:line: text".
func (w Warning) String() string { return located(w.File, w.Line, w.Text) }

// Error is one reason why a zone is refused.
type Error struct {
	File   string
	Line   int // from 1; 0: the zone as a whole
	Reason string
}

// Error returns "file:line: reason".
func (e *Error) Error() string { return located(e.File, e.Line, e.Reason) }

func located(file string, line int, text string) string {
	if line == 0 {
		return file + ": " + text
	}
	return fmt.Sprintf("%s:%d: %s", file, line, text)
}

// ErrZone is matched by every error of Compile that says something about the
// content of the zone, as opposed to reading its files.
var ErrZone = errors.New("zone refused")

// Compiled is a zone whose image can be written, once: what it is made of is
// given back meanwhile.
type Compiled struct {
	b    *builder
	key  Digest
	size int // octets of the image
}

// largeFile is the octets of a zone file from which on its zone is built outside
// of the Go heap.
const largeFile = 4 << 20

// Opener opens a file for reading and returns its descriptor.
type Opener func(path string) (fd int, err error)

// OpenFile is the Opener with the rights of the process. It does not wait for
// the writer of a pipe: nothing but regular files is read.
func OpenFile(path string) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		return err
	})
	return fd, err
}

// Compile is Opener.Compile with OpenFile.
func Compile(origin, file string) (c *Compiled, rep Report, err error) {
	return Opener(OpenFile).Compile(origin, file)
}

// Compile reads the zone with the given origin (presentation form) from a
// master file (RFC 1035 5) and its includes. The Report is filled as far as it
// got, also with an error. The error joins an *Error for each thing that is
// wrong (the first 20) and matches ErrZone, or is that of a file.
func (o Opener) Compile(origin, file string) (c *Compiled, rep Report, err error) {
	rep.Name = origin
	apex, err := wire.AppendName(nil, []byte(origin), []byte{0})
	if err != nil {
		return nil, rep, fmt.Errorf("compiling zone %s: origin: %w", origin, err)
	}
	var lower wire.Name
	lower.Set(apex)
	apex = lower.Bytes()
	rep.Name = wire.Text(apex)

	diags := &diagnostics{}
	src := source{opener: o, diags: diags}
	defer src.free()
	data, _, err := src.open(file)
	if err != nil {
		return nil, rep, fmt.Errorf("compiling zone %s: %w", rep.Name, err)
	}
	defer func() { rep.Warnings, rep.WarningsDropped = diags.warnings, diags.dropped }()
	b := newBuilder(apex, diags, bytes.Count(data, []byte("\n"))+1, len(data), len(data) >= largeFile)
	defer func() {
		if err != nil {
			b.free()
		}
	}()
	err = master.Parse(data, file, apex, &master.Handler{
		Record: b.add, Errorf: diags.errorf, Warnf: diags.warnf, Open: src.open, Done: src.done,
	})
	src.free() // the text makes room for the image
	rep.Deps = src.deps
	rep.Key = keyOf(apex, rep.Deps)
	if err == nil && len(diags.errs) == 0 {
		b.finish()
		b.check()
	}
	rep.Records, rep.Nodes = b.records, len(b.nodes)
	if err == nil && len(diags.errs) > 0 {
		err = errors.Join(append(diags.errs, ErrZone)...)
	}
	if err != nil {
		return nil, rep, fmt.Errorf("compiling zone %s: %w", rep.Name, err)
	}
	if err := b.plan(); err != nil {
		return nil, rep, fmt.Errorf("compiling zone %s: %w", rep.Name, err)
	}
	c = &Compiled{b: b, key: rep.Key, size: headerSize + b.slots + b.arena}
	rep.Size = c.size
	b.sets(0, func(rrs []int32) {
		if r := &b.rrs[rrs[0]]; r.typ == wire.TypeSOA {
			rep.Serial, _, _ = soaFields(b.rd(r))
		}
	})
	return c, rep, nil
}

// Size returns the octets of the image.
func (c *Compiled) Size() int { return c.size }

// Image returns the image in ordinary memory.
func (c *Compiled) Image() ([]byte, error) {
	dst := make([]byte, c.size)
	return dst, c.b.encode(dst, c.key)
}

// Region returns a new region with the image, published and with its content
// sealed. name shows in /proc/PID/maps.
func (c *Compiled) Region(name string) (*shm.Region, error) {
	r, err := shm.Create(name, shm.HeaderSize+c.size)
	if err != nil {
		return nil, fmt.Errorf("storing zone: %w", err)
	}
	r.Format(shm.KindZones, Layout)
	if err := c.b.encode(shm.ViewSlice[byte](r, shm.HeaderSize, c.size), c.key); err != nil {
		return nil, errors.Join(fmt.Errorf("storing zone: %w", err), r.Close())
	}
	r.Publish()
	if err := r.SealContent(); err != nil {
		return nil, errors.Join(fmt.Errorf("storing zone: %w", err), r.Close())
	}
	return r, nil
}

// source reads the files of a zone and remembers what it read.
type source struct {
	opener Opener
	diags  *diagnostics
	deps   []Dep
	texts  map[uint16]*reserve // of large files
}

// done gives back the first octets of a file.
func (s *source) done(file uint16, octets int) {
	if r := s.texts[file]; r != nil {
		r.giveBack(octets)
	}
}

// free gives back all files.
func (s *source) free() {
	for _, r := range s.texts {
		r.free()
	}
	clear(s.texts)
}

// open reads a whole file and records it as the next dependency, whose index is
// the number of the file.
func (s *source) open(path string) (data []byte, file uint16, err error) {
	if len(s.deps) > math.MaxUint16 {
		return nil, 0, fmt.Errorf("reading %s: a zone of more than %d files", path, math.MaxUint16)
	}
	var r reserve
	data, st, err := readFile(s.opener, path, &r)
	if err != nil {
		r.free()
		return nil, 0, fmt.Errorf("reading %s: %w", path, err)
	}
	if r.mem != nil {
		if s.texts == nil {
			s.texts = make(map[uint16]*reserve)
		}
		s.texts[uint16(len(s.deps))] = &r
	}
	s.deps = append(s.deps, Dep{
		Path: path, Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, MtimeNs: st.Mtim.Nano(), SHA256: sha256.Sum256(data),
	})
	s.diags.files = append(s.diags.files, path)
	return data, uint16(len(s.deps) - 1), nil
}

// ErrNotRegular is the error of a pipe, a socket or a device in the place of a
// file: reading it could wait for ever, and hold up all reloads, or have no end.
var ErrNotRegular = errors.New("not a regular file (name a regular file)")

// readFile returns the content of a regular file, and its status before it was read. It
// takes the shortest way, without the runtime's preparations to wait for a file:
// there may be hundreds of thousands of small ones. A large one is read into r.
func readFile(o Opener, path string, r *reserve) (data []byte, st unix.Stat_t, err error) {
	fd, err := o(path)
	if err != nil {
		return nil, st, err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, st, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, st, unix.EISDIR
	default:
		return nil, st, ErrNotRegular
	}
	data = room[byte](r, int(st.Size)+1, st.Size >= largeFile) // one more to see the end
	for {
		if len(data) == cap(data) { // a file that grew, or that says nothing of its size
			data = append(data, 0)[:len(data)]
		}
		var n int
		if err := retry(func() (err error) {
			n, err = unix.Read(fd, data[len(data):cap(data)])
			return err
		}); err != nil {
			return nil, st, err
		}
		if n == 0 {
			return data, st, nil
		}
		data = data[:len(data)+n]
	}
}

// retry calls f again for as long as signals interrupt it.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
