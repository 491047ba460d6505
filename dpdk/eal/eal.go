//go:build dpdk

package eal

// #cgo pkg-config: libdpdk
// #include <stdlib.h>
// #include <rte_eal.h>
// #include <rte_errno.h>
// #include <rte_service_component.h>
// #include <rte_version.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// MaxLcores is one more than the highest lcore id, and MaxPorts than the highest
// port.
const (
	MaxLcores = C.DN_MAX_LCORES
	MaxPorts  = C.DN_MAX_PORTS
)

// Slots is how many generations can live at once.
const Slots = 4

// MaxWorkers is the most workers that a generation can have: each has an lcore id
// of its own, and the primary has 0.
const MaxWorkers = (MaxLcores - 1) / Slots

// ErrInit is what a second Init in one process returns.
var ErrInit = errors.New("EAL is initialised once in the life of a process")

// Options says how a process joins EAL.
type Options struct {
	Primary   bool
	Lcore     int      // 0 for the primary; Lcore for a secondary
	CPUs      []int    // that the calling thread may run on
	Prefix    string   // names the shared memory, the same for all its processes
	HugeDir   string   // a hugetlbfs mount
	Memory    int      // MB to take at the start; of the primary
	PCI       []string // addresses of devices; none other is touched
	Virtual   []string // virtual devices as --vdev takes them; of the primary
	Log       string   // level of EAL's own log, such as "error"; "": its default
	OneMemory bool     // one file per memory segment list (net_virtio_user)
}

// args is the command line for EAL.
func (o *Options) args() []string {
	kind := "secondary"
	if o.Primary {
		kind = "primary"
	}
	a := []string{
		"dnsapp", "--proc-type=" + kind, "--file-prefix=" + o.Prefix, "--no-telemetry",
		"--lcores=" + strconv.Itoa(o.Lcore) + "@(" + list(o.CPUs) + ")",
	}
	if o.HugeDir != "" {
		a = append(a, "--huge-dir="+o.HugeDir)
	}
	if o.Primary && o.Memory > 0 {
		a = append(a, "-m", strconv.Itoa(o.Memory))
	}
	if o.OneMemory {
		a = append(a, "--single-file-segments")
	}
	if len(o.PCI) == 0 {
		a = append(a, "--no-pci")
	}
	for _, p := range o.PCI {
		a = append(a, "--allow="+p)
	}
	if o.Primary {
		for _, v := range o.Virtual {
			a = append(a, "--vdev="+v)
		}
	}
	if o.Log != "" {
		a = append(a, "--log-level="+o.Log)
	}
	return a
}

func list(cpus []int) string {
	var all []string
	for _, c := range cpus {
		all = append(all, strconv.Itoa(c))
	}
	return strings.Join(all, ",")
}

var initialised bool

// Init joins EAL. The calling thread is from then on the one that may touch mbufs,
// so its goroutine is locked to it. EAL's log goes to standard error.
func Init(o Options) error {
	if initialised {
		return ErrInit
	}
	initialised = true
	args := o.args()
	argv := cStrings(args)
	// Not freed: EAL keeps pointers into it.
	if rc, err := C.rte_eal_init(C.int(len(args)), argv); rc < 0 {
		return fmt.Errorf("initialising EAL with the prefix %s: %w; its log, on standard error, says more", o.Prefix, reason(err))
	}
	if !o.Primary {
		// Each process makes arrays of its own for services, which nothing here has, in
		// shared memory, and leaves them there when it ends: some 160 KB each time.
		C.rte_service_finalize()
	}
	return nil
}

// HeapFree is how many octets of the shared memory are not taken: the same, over
// however many processes come and go.
func HeapFree() int { return int(C.dn_heap_free()) }

// reason is rte_errno, or err where that is not set.
func reason(err error) error {
	if n := C.dn_errno(); n > 0 {
		return errnoOf(n)
	}
	if err == nil {
		err = errors.New("no reason given")
	}
	return err
}

// errnoOf is the error for a positive errno.
func errnoOf(n C.int) error { return syscall.Errno(n) }

// failed is the error for the result of a function of the shim.
func failed(rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return errnoOf(-rc)
}

// Close leaves EAL. The primary closes its devices first.
func Close() error {
	if rc := C.rte_eal_cleanup(); rc < 0 {
		return fmt.Errorf("leaving EAL: %w", failed(rc))
	}
	return nil
}

// RuntimeDir is where EAL keeps its files for this prefix.
func RuntimeDir() string { return C.GoString(C.rte_eal_get_runtime_dir()) }

// CPUs are the processors that this process may use.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading which processors may be used: %w", err)
	}
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// Version is the version of libdpdk.
func Version() string { return C.GoString(C.rte_version()) }

// LocksFree reports whether EAL's shared locks are free. Where they are not, a
// process was killed while it attached or left: running ones go on, no new one can
// attach, and the remedy is a new primary with a new prefix.
func LocksFree() bool { return bool(C.dn_locks_free(1000)) }
