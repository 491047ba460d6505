package config

import (
	"fmt"
	"regexp"
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
	pciDevice     = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7](,[!-+.-~]+)*$`)
	virtualDevice = regexp.MustCompile(`^net_[a-z_]+[0-9]+(,[!-+.-~]+)*$`)
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
	}
	names, devices := map[string]int{}, map[string]int{}
	for i, dev := range d.DPDK.Devices {
		key := "dpdk.devices[" + strconv.Itoa(i) + "]"
		c.checkUnique(names, dev.Name, i, "dpdk.devices", key, "give each device its own name")
		if dev.Device != "" && !pciDevice.MatchString(dev.Device) && !virtualDevice.MatchString(dev.Device) {
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
	if need := d.DPDK.megabytes(); need > d.DPDK.Memory {
		c.reportKey("dpdk.memory", fault{
			fmt.Sprintf("%d MB are too few for the packet buffers and rings", d.DPDK.Memory),
			fmt.Sprintf("write %d or more, or fewer mbufs", need),
		})
	}
}

// megabytes is about what the pool and the rings take.
func (p *Primary) megabytes() int {
	processes := 4 * p.MaxWorkers
	rings := 2 * processes * processes * (8*p.RingSize + 384)
	return (p.Mbufs*(p.MbufSize+mbufOverhead)+rings)>>20 + 1
}
