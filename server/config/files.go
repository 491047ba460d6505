package config

import "math"

// spareFiles is how many descriptors a process may need beside those that Files
// counts: its standard ones, memory of all generations, of zones, rings, and room
// for what is passed on.
const spareFiles = 128

// Files returns how many descriptors a process of this configuration needs to
// serve, and how many more it may have open for connections.
func (c *Config) Files() (least, connections int) {
	lanes := c.Workers * c.Lanes
	least = spareFiles + 4*lanes // eventfds, of all generations that may live at once
	for _, l := range c.Listeners {
		if l.UDP {
			least += lanes * len(l.Address)
		}
		if l.TCP {
			least += len(l.Address)
			connections = c.DNS.TCPConnections
		}
	}
	return least, connections
}

// ConnectionsWithin returns how many connections a worker may have open under a
// limit of open files, and whether it can serve at all.
func (c *Config) ConnectionsWithin(limit uint64) (connections int, ok bool) {
	least, wanted := c.Files()
	if limit < uint64(least) {
		return 0, false
	}
	return int(min(uint64(wanted), limit-uint64(least))), true
}

// FlowsWithin returns how many sockets towards servers a worker's proxies may have
// open under a limit of open files: as many as are left beside connections, and half
// of those that there are at least.
func (c *Config) FlowsWithin(limit uint64) int {
	least, wanted := c.Files()
	rest := max(int(min(limit, math.MaxInt32))-least, 0)
	return rest - min(wanted, rest/2)
}
