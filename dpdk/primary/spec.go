package primary

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Spec is what a primary makes once: all that cannot change while it lives.
type Spec struct {
	Devices    []Device `json:"devices"`
	Mbufs      int      `json:"mbufs"`
	MbufSize   int      `json:"mbuf_size"`   // octets behind the headroom
	MaxWorkers int      `json:"max_workers"` // of a generation
	RingSize   int      `json:"ring_size"`   // a power of two
	Memory     int      `json:"memory"`      // MB
	Hugepages  string   `json:"hugepages"`   // folder
	FilePrefix string   `json:"file_prefix"`
}

// Device is one device of a Spec.
type Device struct {
	Name        string `json:"name"`
	Device      string `json:"device"` // PCI address, or a virtual device with its arguments
	Queues      int    `json:"queues"`
	Descriptors int    `json:"descriptors"` // per queue
	MTU         int    `json:"mtu"`
}

// PCI reports whether d is a PCI device: its address, as lspci -D prints it.
func (d Device) PCI() bool {
	var domain, bus, dev, fn int
	n, err := fmt.Sscanf(d.Device, "%4x:%2x:%2x.%1x", &domain, &bus, &dev, &fn)
	return n == 4 && err == nil
}

// EAL is the name that EAL has for d.
func (d Device) EAL() string {
	name, _, _ := strings.Cut(d.Device, ",")
	return name
}

// Digest is the same for two Specs iff they are the same.
func (s *Spec) Digest() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("primary: a Spec is not JSON: %v", err)) // no type in it can fail
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Change is a key of the configuration in which two Specs differ.
type Change struct{ Key, Old, New string }

// String returns the change in one line.
func (c Change) String() string { return fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, c.New) }

// Changes returns in what now differs from s, by the keys of the configuration. It is
// empty iff the digests are the same.
func (s *Spec) Changes(now *Spec) []Change {
	var all []Change
	differ := func(key string, old, now any) {
		if old != now {
			all = append(all, Change{key, fmt.Sprint(old), fmt.Sprint(now)})
		}
	}
	for i := range max(len(s.Devices), len(now.Devices)) {
		switch {
		case i >= len(now.Devices):
			differ("dpdk.devices", s.Devices[i].Name, "none")
			continue
		case i >= len(s.Devices):
			differ("dpdk.devices", "none", now.Devices[i].Name)
			continue
		}
		o, n, at := s.Devices[i], now.Devices[i], "dpdk.devices["+s.Devices[i].Name+"]."
		differ(at+"name", o.Name, n.Name)
		differ(at+"device", o.Device, n.Device)
		differ(at+"queues", o.Queues, n.Queues)
		differ(at+"descriptors", o.Descriptors, n.Descriptors)
		differ(at+"mtu", o.MTU, n.MTU)
	}
	differ("dpdk.mbufs", s.Mbufs, now.Mbufs)
	differ("dpdk.mbuf_size", s.MbufSize, now.MbufSize)
	differ("dpdk.max_workers", s.MaxWorkers, now.MaxWorkers)
	differ("dpdk.ring_size", s.RingSize, now.RingSize)
	differ("dpdk.memory", s.Memory, now.Memory)
	differ("dpdk.hugepages", s.Hugepages, now.Hugepages)
	differ("dpdk.file_prefix", s.FilePrefix, now.FilePrefix)
	return all
}

// pci are the addresses of the PCI devices.
func (s *Spec) pci() []string {
	var all []string
	for _, d := range s.Devices {
		if d.PCI() {
			all = append(all, d.EAL())
		}
	}
	return all
}
