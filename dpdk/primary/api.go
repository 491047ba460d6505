package primary

import "time"

// Status describes a primary.
type Status struct {
	State
	Digest      string      `json:"digest"`
	DPDK        string      `json:"dpdk"` // version of libdpdk
	StartedAt   time.Time   `json:"started_at"`
	Ports       []Port      `json:"ports"`       // in the order of the Spec
	Secondaries []Secondary `json:"secondaries"` // by lcore id
	Pool        *Pool       `json:"pool"`        // null where the pool was in use at every look
	Deaths      int         `json:"deaths"`      // of secondaries, since the start
	Mended      int         `json:"mended"`      // mbufs given back to the pool after them
	HeapFree    int         `json:"heap_free"`   // octets of the shared memory that nothing has taken
	Stuck       string      `json:"stuck"`       // why no process can attach any more; "" if it can
}

// Port is a device in use.
type Port struct {
	Name      string `json:"name"`
	Device    string `json:"device"`
	Port      uint16 `json:"port"`
	Driver    string `json:"driver"`
	MAC       string `json:"mac"`
	MTU       int    `json:"mtu"`
	Queues    int    `json:"queues"`
	Up        bool   `json:"up"`
	Mbps      uint32 `json:"mbps"`
	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	RxMissed  uint64 `json:"rx_missed"`
	RxErrors  uint64 `json:"rx_errors"`
	TxErrors  uint64 `json:"tx_errors"`
}

// Pool says where the mbufs are: Size is the sum of all others, and of each
// Secondary's.
type Pool struct {
	Size      int `json:"size"`
	Free      int `json:"free"`
	Rings     int `json:"rings"`
	Primary   int `json:"primary"`
	Rx        int `json:"rx"`        // with devices, to receive into
	Tx        int `json:"tx"`        // with devices, to send
	Astray    int `json:"astray"`    // left by the dead, and not given back yet
	Duplicate int `json:"duplicate"` // in two places: always 0
}

// Secondary is a process that has a lease.
type Secondary struct {
	Identity
	Lcore  int       `json:"lcore"`
	Slot   int       `json:"slot"`
	Worker int       `json:"worker"`
	Since  time.Time `json:"since"`
	Mbufs  int       `json:"mbufs"` // that it has in hand
	Dead   bool      `json:"dead"`  // and not swept yet
}

// LeaseRequest asks for an lcore id for a process, which has not joined EAL yet. Its
// parent, or it itself, asks, so that the pid is its own.
type LeaseRequest struct {
	PID    int `json:"pid"`
	Slot   int `json:"slot"`
	Worker int `json:"worker"`
}

// Lease is what a process needs to join EAL. It ends with the process.
type Lease struct {
	Lcore     int      `json:"lcore"`
	Prefix    string   `json:"prefix"`
	Hugepages string   `json:"hugepages"`
	PCI       []string `json:"pci"`
	Devices   []string `json:"devices"` // by EAL's names, in the order of the Spec
}

// StopRequest asks a primary to end.
type StopRequest struct {
	Force bool `json:"force"` // also while secondaries live: they go on without it
}
