package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// frameOverhead is what a frame has besides its IP packet, in octets: Ethernet
// header, two VLAN tags and checksum.
const frameOverhead = 26

// mbufOverhead is what an mbuf takes besides its room, in octets: its header, its
// headroom, and the pool's own for it.
const mbufOverhead = 128 + 128 + 64

var (
	pciDevice     = pattern(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7](,[!-+--~]+)*$`)
	virtualDevice = pattern(`^net_[a-z_]+[0-9]+(,[!-+--~]+)*$`)
)

// checkDPDK checks what is written about devices. With another data path it means
// nothing, and is checked all the same: somebody is preparing something.
func (c *checker) checkDPDK(d *document) {
	if d.Datapath == DPDK {
		switch {
		case !c.sys.dpdk:
			c.reportKey("datapath", fault{"this binary was built without DPDK", "build it with make build-dpdk, which needs libdpdk-dev, or write sockets"})
		case len(d.DPDK.Devices) == 0 && !c.wrong["dpdk.devices"] && !c.wrong["dpdk"]:
			c.reportKey("dpdk.devices", fault{"no device is named", "write one: [{name: wan, device: 0000:3b:00.0}]"})
		}
		if d.Workers > d.DPDK.MaxWorkers {
			c.reportKey("workers", fault{
				fmt.Sprintf("%d workers are more than dpdk.max_workers, %d", d.Workers, d.DPDK.MaxWorkers),
				"write fewer, or raise dpdk.max_workers",
			})
		}
		if d.Lanes > 1 {
			c.reportKey("lanes", fault{"a worker has one lane with datapath: dpdk", "write lanes: 1, or auto, and as many workers as there are to be lanes"})
		}
		if d.Reload.Mode == Restart {
			c.reportKey("reload.mode", fault{"is restart, by which two generations read at once: a queue of a device has one reader", "write graceful"})
		}
		if len(d.DPDK.Devices) > 0 {
			c.checkOnDevices(d)
		}
	}
	names, devices := map[string]int{}, map[string]int{}
	for i, dev := range d.DPDK.Devices {
		key := "dpdk.devices[" + strconv.Itoa(i) + "]"
		c.checkUnique(names, dev.Name, i, "dpdk.devices", key, "give each device its own name")
		if dev.Device != "" && !pciDevice().MatchString(dev.Device) && !virtualDevice().MatchString(dev.Device) {
			c.reportKey(key+".device", fault{
				fmt.Sprintf("%q is neither a PCI address nor a virtual device", dev.Device),
				"write 0000:3b:00.0, as lspci -D prints it, or a device such as net_tap0,iface=dnsapp0",
			})
		}
		name, _, _ := strings.Cut(dev.Device, ",")
		if j, twice := devices[name]; twice && name != "" {
			c.reportKey(key+".device", fault{
				fmt.Sprintf("%s is also in %s", name, c.where(fmt.Sprintf("dpdk.devices[%d].device", j), key)), "name each device once",
			})
		} else {
			devices[name] = i
		}
		if need := dev.MTU + frameOverhead; need > d.DPDK.MbufSize {
			c.reportKey(key+".mtu", fault{
				fmt.Sprintf("frames of %d octets do not fit into dpdk.mbuf_size, %d", need, d.DPDK.MbufSize),
				fmt.Sprintf("write mbuf_size: %d, or a smaller mtu", (need+511)/512*512),
			})
		}
	}
	c.checkHosts(d)
	c.checkTAPs(d)
	if need := d.DPDK.megabytes(); need > d.DPDK.Memory {
		c.reportKey("dpdk.memory", fault{
			fmt.Sprintf("%d MB are too few for the packet buffers and rings", d.DPDK.Memory),
			fmt.Sprintf("write %d or more, or fewer mbufs", need),
		})
	}
}

// checkHosts checks what is written of the hosts that the devices are.
func (c *checker) checkHosts(d *document) {
	addresses := map[netip.Addr]string{}
	for i, dev := range d.DPDK.Devices {
		key := "dpdk.devices[" + strconv.Itoa(i) + "]"
		for j, p := range dev.Addresses {
			at := fmt.Sprintf("%s.addresses[%d]", key, j)
			if other, twice := addresses[p.Addr()]; twice && p.IsValid() {
				c.reportKey(at, fault{fmt.Sprintf("%v is also in %s", p.Addr(), c.where(other, at)), "give each address once"})
			} else {
				addresses[p.Addr()] = at
			}
		}
		families := map[bool]bool{}
		for j, g := range dev.Gateways {
			at := fmt.Sprintf("%s.gateways[%d]", key, j)
			switch {
			case !g.IsValid():
			case families[g.Is4()]:
				c.reportKey(at, fault{"there is another gateway of its family", "keep one of the two"})
			case !dev.onLink(g):
				c.reportKey(at, fault{fmt.Sprintf("%v is in the prefix of no address of the device", g), "add an address of its network to addresses"})
			}
			families[g.Is4()] = true
		}
		for j, n := range dev.Neighbours {
			if n.IP.IsValid() && !dev.onLink(n.IP) {
				c.reportKey(fmt.Sprintf("%s.neighbours[%d]", key, j),
					fault{fmt.Sprintf("%v is in the prefix of no address of the device", n.IP), "add an address of its network to addresses"})
			}
		}
	}
}

// checkTAPs checks what is written of the kernel's part in devices.
func (c *checker) checkTAPs(d *document) {
	names := map[string]string{}
	for i, dev := range d.DPDK.Devices {
		key := fmt.Sprintf("dpdk.devices[%d].kernel.tap", i)
		switch name := dev.Kernel.TAP; {
		case name == "":
			if len(dev.Kernel.Addresses) > 0 {
				c.reportKey(key, fault{"there are addresses and no device to have them", "write the name of a TAP device, such as dnsapp0, or no addresses"})
			}
		case !tapName().MatchString(name):
			c.reportKey(key, fault{fmt.Sprintf("%q is no name of a network device", name), "write 1 to 15 letters, digits, '-', '_' and '.', such as dnsapp0"})
		case names[name] != "":
			c.reportKey(key, fault{fmt.Sprintf("%s is also in %s", name, c.where(names[name], key)), "give each device its own TAP device"})
		case dev.VLAN != 0:
			c.reportKey(key, fault{"the addresses of the device are on a VLAN, and those of the TAP device would not be", "write vlan: 0, or no TAP device"})
		default:
			names[name] = key
		}
	}
}

// tapName is what the kernel takes for the name of a network device, but for marks
// that nobody wants in one.
var tapName = pattern(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,14}$`)

// onLink reports whether ip is in the prefix of one of d's addresses, or needs none.
func (d *Device) onLink(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// checkOnDevices checks that the listeners can be served by the devices.
func (c *checker) checkOnDevices(d *document) {
	families := map[bool]bool{}
	ours := map[netip.Addr]bool{}
	for i, dev := range d.DPDK.Devices {
		for _, p := range dev.Addresses {
			families[p.Addr().Is4()], ours[p.Addr()] = true, true
		}
		if dev.Queues < d.Workers {
			c.reportKey("dpdk.devices["+strconv.Itoa(i)+"].queues", fault{
				fmt.Sprintf("%d queues are fewer than the workers, %d", dev.Queues, d.Workers), "each worker sends by a queue of its own: write as many, or fewer workers",
			})
		}
	}
	for i, l := range d.Listeners {
		key := "listeners[" + strconv.Itoa(i) + "]"
		if at := slices.Index(l.Transport, "tcp"); at >= 0 {
			c.reportKey(fmt.Sprintf("%s.transport[%d]", key, at), fault{"TCP is not served with datapath: dpdk", "write [udp]"})
		}
		if l.Service == ServiceUDPProxy {
			c.reportKey(key+".service", fault{"udp-proxy is not served with datapath: dpdk", "write datapath: sockets for it"})
		}
		for j, ap := range l.Address {
			a := ap.Addr()
			if !ap.IsValid() || ours[a] || a.IsUnspecified() && families[a.Is4()] {
				continue
			}
			f := fault{fmt.Sprintf("%v is an address of no device", a), "add it, with the length of its prefix, to addresses of one of dpdk.devices"}
			if a.IsUnspecified() {
				f = fault{fmt.Sprintf("no device has an address for %v", a), "add one to addresses of one of dpdk.devices"}
			}
			c.reportKey(fmt.Sprintf("%s.address[%d]", key, j), f)
		}
	}
}

// megabytes is about what the pool and the rings take.
func (p *Primary) megabytes() int {
	processes := 4 * p.MaxWorkers
	rings := 2 * processes * processes * (8*p.RingSize + 384)
	return (p.Mbufs*(p.MbufSize+mbufOverhead)+rings)>>20 + 1
}
