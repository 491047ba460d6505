package zone

import "golang.org/x/sys/unix"

// reserve is memory outside of the Go heap. A large zone is built in it, so that
// what has gone into the image can be given back page by page while the rest is
// still in use. Pages that are never touched cost nothing, so there may be more
// of them than will be needed.
type reserve struct {
	mem  []byte
	gone int // octets from the start that were given back
}

// get makes r octets of zeros. Where the kernel has no such memory r stays empty.
func (r *reserve) get(octets int) {
	mem, err := unix.Mmap(-1, 0, octets, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err == nil {
		r.mem = mem
	}
}

// giveBack gives back the octets before end, which reads as zeros from then on.
func (r *reserve) giveBack(end int) {
	end = min(end, len(r.mem)) &^ (pageSize - 1)
	if end > r.gone {
		_ = unix.Madvise(r.mem[r.gone:end], unix.MADV_DONTNEED) // a failure costs memory, for a while
		r.gone = end
	}
}

var pageSize = unix.Getpagesize()

// free gives back everything. Nothing of it may be used any more.
func (r *reserve) free() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
	}
	*r = reserve{}
}
