package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// HeaderSize is the number of bytes at the start of every region that its
// header takes. Payload offsets count from the start of the region.
const HeaderSize = 64

// Magic opens every region ("dnsappR1", little endian).
const Magic uint64 = 0x315270706173_6e64

// Kind says what a region holds.
type Kind uint32

// The kinds of region. Their numbers are part of the layout: never reuse one.
const (
	KindDirectory    Kind = 1
	KindFlowTable    Kind = 2
	KindRings        Kind = 3
	KindCounters     Kind = 4
	KindZones        Kind = 5
	KindSecrets      Kind = 6
	KindCatalog      Kind = 7
	KindZoneCounters Kind = 8
	KindBackends     Kind = 9
)

// Header states. A crash between Format and Publish leaves stateInitializing
// behind, which every Check refuses.
const (
	stateInitializing uint32 = 1
	stateReady        uint32 = 2
)

// header is the first HeaderSize bytes of every region.
type header struct {
	Magic  uint64
	Kind   uint32
	Layout uint32
	Size   uint64
	State  atomic.Uint32
	_      [HeaderSize - 28]byte
}

// ErrLayout is matched by every error of Check: the region is not what the
// caller was built for, and must not be used.
var ErrLayout = errors.New("region layout mismatch")

// Region is a fixed-size piece of memory that starts with a header. Its methods
// may be called from any goroutine; Close may not race with them.
type Region struct {
	mem []byte
	fd  int // -1: heap
}

// Create makes a zeroed region of size bytes (rounded up to whole pages) in a
// memfd that can neither grow nor shrink nor be executed. name shows in
// /proc/PID/maps. The descriptor is close-on-exec.
func Create(name string, size int) (*Region, error) {
	if size < HeaderSize {
		return nil, fmt.Errorf("creating region %s: size %d is below the header's %d bytes", name, size, HeaderSize)
	}
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	fd, err := unix.MemfdCreate("dnsapp:"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 there is no MFD_NOEXEC_SEAL
		fd, err = unix.MemfdCreate("dnsapp:"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("creating region %s: memfd_create: %w", name, err)
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("creating region %s of %d bytes: %w", name, size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("sealing region %s: %w", name, err)
	}
	r, err := mapFd(fd, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("creating region %s: %w", name, err)
	}
	return r, nil
}

// Map maps the region behind fd for reading and writing and takes fd over:
// Close closes it. Check must pass before the content is used.
func Map(fd int) (*Region, error) { return mapFd(fd, unix.PROT_READ|unix.PROT_WRITE) }

// MapReadOnly is Map without write access: a store to the region faults.
func MapReadOnly(fd int) (*Region, error) { return mapFd(fd, unix.PROT_READ) }

func mapFd(fd, prot int) (*Region, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("mapping region: fstat of descriptor %d: %w", fd, err)
	}
	if st.Size < HeaderSize || st.Size != int64(int(st.Size)) {
		return nil, fmt.Errorf("mapping region: descriptor %d holds %d bytes: %w", fd, st.Size, ErrLayout)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("mapping region: reading the seals of descriptor %d: %w", fd, err)
	}
	if want := unix.F_SEAL_GROW | unix.F_SEAL_SHRINK; seals&want != want {
		return nil, fmt.Errorf("mapping region: descriptor %d is not sealed against resizing: %w", fd, ErrLayout)
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping region of %d bytes: %w", st.Size, err)
	}
	return &Region{mem: mem, fd: fd}, nil
}

// Heap returns a zeroed region in ordinary memory, for tests under the race
// detector and for single-process use.
func Heap(size int) *Region { return &Region{mem: alignedHeap(max(size, HeaderSize)), fd: -1} }

// Format writes the header and leaves the region INITIALIZING: Check refuses
// it until Publish.
func (r *Region) Format(kind Kind, layout uint32) {
	h := View[header](r, 0)
	h.State.Store(stateInitializing)
	h.Magic, h.Kind, h.Layout, h.Size = Magic, uint32(kind), layout, uint64(len(r.mem))
}

// Publish marks the region ready. What was written before it is visible to
// whoever passes Check after it.
func (r *Region) Publish() { View[header](r, 0).State.Store(stateReady) }

// Check refuses, with an error that matches ErrLayout, a region that is not of
// this kind, layout number and size, or that was never published.
func (r *Region) Check(kind Kind, layout uint32) error {
	h := View[header](r, 0)
	switch {
	case h.State.Load() != stateReady:
		return fmt.Errorf("region is still initializing (state %d): %w", h.State.Load(), ErrLayout)
	case h.Magic != Magic:
		return fmt.Errorf("region magic is %#x, not %#x: %w", h.Magic, Magic, ErrLayout)
	case h.Kind != uint32(kind):
		return fmt.Errorf("region kind is %d, not %d: %w", h.Kind, kind, ErrLayout)
	case h.Layout != layout:
		return fmt.Errorf("region of kind %d has layout %d, this binary uses %d: %w", kind, h.Layout, layout, ErrLayout)
	case h.Size != uint64(len(r.mem)):
		return fmt.Errorf("region of kind %d says %d bytes but has %d: %w", kind, h.Size, len(r.mem), ErrLayout)
	}
	return nil
}

// SealContent makes the content unwritable for everybody, for good. The
// region's own writable mapping must be gone first, so it is replaced by a
// read-only one; views taken before are invalid. On Heap it does nothing.
func (r *Region) SealContent() error {
	if r.fd < 0 {
		return nil
	}
	if err := unix.Munmap(r.mem); err != nil {
		return fmt.Errorf("sealing region content: unmapping: %w", err)
	}
	r.mem = nil
	if _, err := unix.FcntlInt(uintptr(r.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SEAL); err != nil {
		return fmt.Errorf("sealing region content: %w", err)
	}
	ro, err := mapFd(r.fd, unix.PROT_READ)
	if err != nil {
		return fmt.Errorf("sealing region content: %w", err)
	}
	r.mem = ro.mem
	return nil
}

// ExcludeFromDumps keeps this mapping out of core dumps, because it holds
// secrets. On Heap it does nothing.
func (r *Region) ExcludeFromDumps() error {
	if r.fd < 0 {
		return nil
	}
	if err := unix.Madvise(r.mem, unix.MADV_DONTDUMP); err != nil {
		return fmt.Errorf("keeping a region out of dumps: %w", err)
	}
	return nil
}

// Size returns the size in bytes, header included.
func (r *Region) Size() int { return len(r.mem) }

// Fd returns the descriptor, or -1 for a heap region. It stays the region's.
func (r *Region) Fd() int { return r.fd }

// Bytes returns the whole region. Words that another process or goroutine may
// write meanwhile must be read through View or Uint64 instead.
func (r *Region) Bytes() []byte { return r.mem }

// Close unmaps the region and closes its descriptor. Views of it are invalid
// from then on.
func (r *Region) Close() error {
	if r.fd < 0 {
		r.mem = nil
		return nil
	}
	var err error
	if r.mem != nil {
		err = unix.Munmap(r.mem)
	}
	err = errors.Join(err, unix.Close(r.fd))
	r.mem, r.fd = nil, -1
	return err
}
