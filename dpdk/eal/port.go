//go:build dpdk

package eal

// #include <rte_dev.h>
// #include <rte_ethdev.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"net"
	"slices"
)

// Device is what PortByName knows of a port.
type Device struct {
	Port   uint16
	Name   string
	Driver string
	MAC    net.HardwareAddr
	MTU    int
	Queues int // that it can have
}

// Drivers that hold no mbuf between two calls, when they receive and when they
// send: what is marked as theirs then is nobody's. A driver that is not here holds
// some, and what a process that is killed inside its call has left there stays
// until the device is set up anew.
var (
	noRestRx = []string{"net_memif", "net_null", "net_pcap"}
	noRestTx = []string{"net_memif", "net_null", "net_pcap", "net_tap"}
)

// PortByName returns the port of a device by EAL's name for it: the PCI address, or
// the name of the virtual device without its arguments.
func PortByName(name string) (Device, error) {
	var port C.uint16_t
	var rc C.int
	named(name, func(p *C.char) { rc = C.rte_eth_dev_get_port_by_name(p, &port) })
	if rc != 0 {
		return Device{}, fmt.Errorf("device %s: %w; for PCI, is it bound to vfio-pci?", name, failed(rc))
	}
	d := Device{Port: uint16(port), Name: name}
	var info C.struct_rte_eth_dev_info
	if rc := C.rte_eth_dev_info_get(port, &info); rc != 0 {
		return Device{}, fmt.Errorf("device %s: reading what it can do: %w", name, failed(rc))
	}
	d.Driver = C.GoString(info.driver_name)
	d.Queues = int(min(info.max_rx_queues, info.max_tx_queues))
	var mac C.struct_rte_ether_addr
	if C.rte_eth_macaddr_get(port, &mac) == 0 {
		for _, b := range mac.addr_bytes {
			d.MAC = append(d.MAC, byte(b))
		}
	}
	var mtu C.uint16_t
	if C.rte_eth_dev_get_mtu(port, &mtu) == 0 {
		d.MTU = int(mtu)
	}
	return d, nil
}

// Start configures and starts the port, of the primary, once Create has made the
// pool. queues is that of queue pairs, descriptors how many packets each holds.
func (d Device) Start(queues, descriptors, mtu int) error {
	if queues > d.Queues {
		return fmt.Errorf("device %s (%s) has %d queues, not %d; lower dpdk.devices[].queues", d.Name, d.Driver, d.Queues, queues)
	}
	rc := C.dn_port_start(C.uint16_t(d.Port), C.uint16_t(queues), C.uint16_t(descriptors), C.uint16_t(mtu),
		C.bool(!slices.Contains(noRestRx, d.Driver)), C.bool(!slices.Contains(noRestTx, d.Driver)))
	if rc != 0 {
		return fmt.Errorf("device %s (%s): starting it with %d queues of %d descriptors and an MTU of %d: %w",
			d.Name, d.Driver, queues, descriptors, mtu, failed(rc))
	}
	return nil
}

// Close stops and closes the port, of the primary. Nobody uses it.
func (d Device) Close() error {
	if rc := C.rte_eth_dev_stop(C.uint16_t(d.Port)); rc != 0 {
		return fmt.Errorf("device %s: stopping it: %w", d.Name, failed(rc))
	}
	if rc := C.rte_eth_dev_close(C.uint16_t(d.Port)); rc != 0 {
		return fmt.Errorf("device %s: closing it: %w", d.Name, failed(rc))
	}
	return nil
}

// Link reports whether the port has a link, and its speed in Mbit/s. A secondary
// calls it once before it receives: net_memif maps the other end's memory by it.
func (d Device) Link() (up bool, speed uint32) {
	var s C.uint32_t
	var u C.bool
	C.dn_link(C.uint16_t(d.Port), &s, &u)
	return bool(u), uint32(s)
}

// Stats are a port's counters since it was started, as its driver keeps them.
type Stats struct {
	RxPackets uint64 `json:"rx_packets"`
	TxPackets uint64 `json:"tx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	TxBytes   uint64 `json:"tx_bytes"`
	RxMissed  uint64 `json:"rx_missed"` // no descriptor or no mbuf was free
	RxErrors  uint64 `json:"rx_errors"`
	TxErrors  uint64 `json:"tx_errors"`
}

// Stats reads the port's counters.
func (d Device) Stats() (Stats, error) {
	var c [7]C.uint64_t
	if rc := C.dn_counters(C.uint16_t(d.Port), &c[0]); rc != 0 {
		return Stats{}, fmt.Errorf("device %s: reading its counters: %w", d.Name, failed(rc))
	}
	return Stats{uint64(c[0]), uint64(c[1]), uint64(c[2]), uint64(c[3]), uint64(c[4]), uint64(c[5]), uint64(c[6])}, nil
}
