package worker

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
)

// The descriptors every worker starts with, beside standard input, output and
// error.
const (
	ControlFD  = 3
	ManifestFD = 4
	FirstFD    = 5 // of those the manifest numbers
)

// Protocol is the version of the manifest and of the control messages.
const Protocol = 7

// Manifest tells a worker what it is and what its descriptors are. A
// descriptor number of 0 means "none".
type Manifest struct {
	Protocol int            `json:"protocol"`
	Epoch    uint32         `json:"epoch"`
	Slot     int            `json:"slot"`
	Index    int            `json:"index"`  // of this worker in its generation
	Config   *config.Config `json:"config"` // without its zones: see Catalog
	Nice     int            `json:"nice"`   // its niceness: it is started in haste, with a lower one

	Directory int `json:"directory"`
	Counters  int `json:"counters"`

	Epochs [directory.MaxSlots]uint32 `json:"epochs"` // of the generations by slot; 0: none, or nothing of it comes along
	Tables [directory.MaxSlots]int    `json:"tables"` // flow tables by slot
	Wakes  [directory.MaxSlots][]int  `json:"wakes"`  // eventfds by slot and lane
	Rings  []RingRef                  `json:"rings"`

	Sockets []SocketRef `json:"sockets"`
	Queues  []QueueRef  `json:"queues"` // instead of them, on the data path DPDK

	Catalog      int       `json:"catalog"` // of the zones to serve
	ZoneRegions  []ZoneRef `json:"zone_regions"`
	ZoneCounters int       `json:"zone_counters"`
	QueryLog     int       `json:"query_log"`

	Backends int     `json:"backends"` // region of their servers
	Servers  [][]int `json:"servers"`  // their numbers in it, by backend and server of Config
	ICMP4    int     `json:"icmp4"`    // raw sockets that refusals leave by
	ICMP6    int     `json:"icmp6"`

	TAPs []int `json:"taps,omitempty"` // of the kernel, by device; none: it has no part in any

	Trace *TraceRef `json:"trace,omitempty"` // from the start on; nil: none

	Door  int    `json:"door"`  // at which it waits for its next supervisor
	Owner uint32 `json:"owner"` // user id of the supervisor

	User *User `json:"user"` // to become once the devices are joined; nil: as it is
}

// User is who a process runs as.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// QueueRef is one queue of a device. To the directory it is a socket.
type QueueRef struct {
	ID     uint32 `json:"id"`
	Device int    `json:"device"` // index in Config.DPDK.Devices
	Queue  int    `json:"queue"`
}

// RingRef is the region of rings from the lanes of one generation to the
// workers of another, or of the same.
type RingRef struct {
	Producer int `json:"producer"` // slot
	Consumer int `json:"consumer"` // slot
	FD       int `json:"fd"`
}

// SocketRef is one bound socket.
type SocketRef struct {
	ID       uint32         `json:"id"`
	FD       int            `json:"fd"`
	Listener int            `json:"listener"` // index in Config.Listeners
	Address  netip.AddrPort `json:"address"`
	TCP      bool           `json:"tcp"`
	Lane     int            `json:"lane"` // the lane that reads it, over all workers. Valid iff not TCP
}

// ZoneRef is a region of zones that the catalog lists.
type ZoneRef struct {
	ID uint64 `json:"id"`
	FD int    `json:"fd"`
}

// Encode returns a sealed memfd that holds m.
func (m *Manifest) Encode() (fd int, err error) {
	b, err := json.Marshal(m)
	if err != nil {
		return -1, fmt.Errorf("encoding the manifest: %w", err)
	}
	fd, err = unix.MemfdCreate("dnsapp:manifest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("encoding the manifest: memfd_create: %w", err)
	}
	for at := 0; at < len(b); {
		n, err := unix.Pwrite(fd, b[at:], int64(at))
		if err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("encoding the manifest: %w", err)
		}
		at += n
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("sealing the manifest: %w", err)
	}
	return fd, nil
}

// readManifest reads and closes the manifest's descriptor.
func readManifest(fd int) (*Manifest, error) {
	f := os.NewFile(uintptr(fd), "manifest")
	defer f.Close()
	var m Manifest
	// Its offset is shared with the supervisor's descriptor and other workers.
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the manifest (this command is started by dnsapp serve only): %w", err)
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if m.Protocol != Protocol {
		return nil, fmt.Errorf("reading the manifest: protocol %d, this binary speaks %d", m.Protocol, Protocol)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	return &m, nil
}

// check tests that m is about a worker that there can be.
func (m *Manifest) check() error {
	if m.Config == nil || m.Slot < 0 || m.Slot >= directory.MaxSlots || m.Index < 0 || m.Index >= m.Config.Workers {
		return fmt.Errorf("worker %d of slot %d is out of range", m.Index, m.Slot)
	}
	for _, r := range m.Rings {
		if r.Producer < 0 || r.Producer >= directory.MaxSlots || r.Consumer < 0 || r.Consumer >= directory.MaxSlots {
			return fmt.Errorf("rings from slot %d to slot %d are out of range", r.Producer, r.Consumer)
		}
	}
	for _, s := range m.Sockets {
		if s.ID >= directory.MaxSockets || s.Listener < 0 || s.Listener >= len(m.Config.Listeners) {
			return fmt.Errorf("socket %d of listener %d is out of range", s.ID, s.Listener)
		}
	}
	if len(m.TAPs) > len(m.Config.DPDK.Devices) {
		return fmt.Errorf("%d TAP devices are out of range", len(m.TAPs))
	}
	for _, q := range m.Queues {
		if q.ID >= directory.MaxSockets || q.Device < 0 || q.Device >= len(m.Config.DPDK.Devices) || q.Queue < 0 {
			return fmt.Errorf("queue %d of device %d is out of range", q.Queue, q.Device)
		}
	}
	return nil
}
