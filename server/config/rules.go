package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"syscall"
)

// rules reports what is wrong between several keys, or between a key and the
// machine. It skips what is empty: that has been reported, or replaced by a
// default.
func (c *checker) rules(d *document) {
	c.checkSplit(d)
	c.checkUser(d)
	c.checkDPDK(d)
	c.checkZones(d)
	c.checkBackends(d)
	c.checkListeners(d)
	c.checkLoops(d)
	c.checkBinds(d)
}

func (c *checker) checkSplit(d *document) {
	if n := d.Workers * d.Lanes; n > maxLanes {
		c.reportKey("lanes", fault{
			fmt.Sprintf("%d workers of %d lanes make %d lanes", d.Workers, d.Lanes, n),
			fmt.Sprintf("workers times lanes is at most %d: write lanes: %d", maxLanes, maxLanes/d.Workers),
		})
	}
}

func (c *checker) checkUser(d *document) {
	if !c.sys.root {
		return
	}
	if err := c.sys.user(d.User); err != nil {
		c.reportKey("user", fault{
			fmt.Sprintf("there is no user %q", d.User),
			"name the user that the workers run as, or its numeric id",
		})
	}
}

func (c *checker) checkZones(d *document) {
	first := map[string]int{}
	for i, z := range d.Zones {
		key := "zones[" + strconv.Itoa(i) + "]"
		if j, twice := first[z.Name]; twice && z.Name != "" {
			c.reportKey(key+".name", fault{
				fmt.Sprintf("%q is also the zone of %s", z.Name, c.where(fmt.Sprintf("zones[%d].name", j), key)),
				"give each zone once; case and the closing dot do not matter",
			})
		} else {
			first[z.Name] = i
		}
		if z.File == "" {
			continue
		}
		if err := c.sys.readable(z.File); err != nil {
			c.reportKey(key+".file", fileFault(z.File, err))
		}
	}
}

func fileFault(path string, err error) fault {
	const relative = "relative paths start at the folder of the configuration file"
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fault{fmt.Sprintf("there is no file %q", path), relative}
	case errors.Is(err, fs.ErrPermission):
		return fault{fmt.Sprintf("%q may not be read", path), "let the user that starts the server read it"}
	case errors.Is(err, syscall.EISDIR):
		return fault{fmt.Sprintf("%q is a directory", path), "name a file in it"}
	case errors.Is(err, errNotRegular):
		return fault{fmt.Sprintf("%q is not a regular file", path), "name a regular file"}
	}
	return fault{err.Error(), "name a file that can be read"}
}

func (c *checker) checkListeners(d *document) {
	first := map[string]int{}
	for i, l := range d.Listeners {
		key := "listeners[" + strconv.Itoa(i) + "]"
		if j, twice := first[l.Name]; twice && l.Name != "" {
			c.reportKey(key+".name", fault{
				fmt.Sprintf("%q is also the listener of %s", l.Name, c.where(fmt.Sprintf("listeners[%d].name", j), key)),
				"give each listener its own name",
			})
		} else {
			first[l.Name] = i
		}
		c.checkProxy(d, &d.Listeners[i], key)
		if l.Service == ServiceDNS && len(d.Zones) == 0 && !c.wrong["zones"] {
			c.reportKey(key+".service", fault{"is dns, and there are no zones to answer from", "add the zones to the list zones"})
		}
	}
}

// checkBinds reports every address that is served twice and every one that
// lies within another, and more sockets than there can be.
//
// The kernel would let 127.0.0.1:53 live beside 0.0.0.0:53 for UDP and, without
// SO_REUSEPORT, refuse it for TCP. Which listener a packet is for would depend
// on it. So both are refused, as by other DNS servers.
func (c *checker) checkBinds(d *document) {
	var taken binds
	if !c.wrong["admin"] && d.Admin.IsValid() {
		taken.add(bind{addr: d.Admin, tcp: true, owner: "admin"})
	}
	sockets := 0
	for i, l := range d.Listeners {
		for j, addr := range l.Address {
			key := fmt.Sprintf("listeners[%d].address[%d]", i, j)
			if !addr.IsValid() {
				continue
			}
			for _, t := range l.Transport {
				b := bind{addr: addr, tcp: t == "tcp", owner: key}
				if t == "" {
					continue
				}
				sockets++
				if !b.tcp {
					sockets += d.Workers*max(d.Lanes, 1) - 1
				}
				if other, found := taken.clash(b); found {
					c.reportKey(key, b.clash(other, c.owner(other, key)))
					break // once for both transports
				}
				taken.add(b)
			}
		}
	}
	if sockets > maxSockets {
		c.reportKey("listeners", fault{
			fmt.Sprintf("need %d sockets", sockets),
			fmt.Sprintf("at most %d: one for each TCP address, and one for each UDP address and lane", maxSockets),
		})
	}
}

// bind is one address of one transport.
type bind struct {
	addr  netip.AddrPort
	tcp   bool
	owner string // its key
}

func (b bind) transport() string {
	if b.tcp {
		return "TCP"
	}
	return "UDP"
}

// owner names the key of b, and where it is, for a report about the value of
// from.
func (c *checker) owner(b bind, from string) string {
	p, written := c.places[b.owner]
	if !written { // a default
		return b.owner
	}
	return p.key + ", " + c.where(b.owner, from)
}

// clash says why b cannot be served beside other, which is the value of the key
// of.
func (b bind) clash(other bind, of string) fault {
	switch {
	case b.addr == other.addr:
		return fault{
			fmt.Sprintf("%v %s is also in %s", b.addr, b.transport(), of),
			"serve each address and port once for each transport",
		}
	case other.addr.Addr().IsUnspecified():
		return fault{
			fmt.Sprintf("%v %s lies within %v of %s", b.addr, b.transport(), other.addr, of),
			fmt.Sprintf("keep one of the two, or list the addresses of the host instead of %v", other.addr.Addr()),
		}
	}
	return fault{
		fmt.Sprintf("%v %s takes in %v of %s", b.addr, b.transport(), other.addr, of),
		fmt.Sprintf("keep one of the two, or list the addresses of the host instead of %v", b.addr.Addr()),
	}
}

// binds is a set of addresses, none of which lies within another.
type binds struct {
	exact map[bind]bind   // by the bind without its owner
	ports map[bind][]bind // by the wildcard of the same port, family and transport
}

// clash returns a member that b cannot be bound beside.
func (s *binds) clash(b bind) (other bind, found bool) {
	self, wild := bind{addr: b.addr, tcp: b.tcp}, b.wildcard()
	if other, found = s.exact[self]; found {
		return other, true
	}
	if self != wild {
		other, found = s.exact[wild]
		return other, found
	}
	if under := s.ports[wild]; len(under) > 0 {
		return under[0], true
	}
	return bind{}, false
}

func (s *binds) add(b bind) {
	if s.exact == nil {
		s.exact, s.ports = map[bind]bind{}, map[bind][]bind{}
	}
	s.exact[bind{addr: b.addr, tcp: b.tcp}] = b
	s.ports[b.wildcard()] = append(s.ports[b.wildcard()], b)
}

// wildcard returns the bind, without owner, that b lies within.
func (b bind) wildcard() bind {
	all := netip.IPv4Unspecified()
	if b.addr.Addr().Is6() {
		all = netip.IPv6Unspecified()
	}
	return bind{addr: netip.AddrPortFrom(all, b.addr.Port()), tcp: b.tcp}
}
