package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// checkBackends reports backends and servers that cannot be told apart, and
// checks that cannot be made.
func (c *checker) checkBackends(d *document) {
	first := map[string]int{}
	for i := range d.Backends {
		b := &d.Backends[i]
		key := "backends[" + strconv.Itoa(i) + "]"
		c.checkUnique(first, b.Name, i, "backends", key, "give each backend its own name")
		c.checkServers(b, key+".servers")
		c.checkHealth(b, key+".health")
	}
}

// checkServers reports servers that are there twice, and a list that has none but
// for an emergency.
func (c *checker) checkServers(b *Backend, list string) {
	names, addresses := map[string]int{}, map[netip.AddrPort]int{}
	backups := 0
	for i := range b.Servers {
		s := &b.Servers[i]
		entry := fmt.Sprintf("%s[%d]", list, i)
		c.checkUnique(names, s.Name, i, list, entry, "give each server of a backend its own name")
		if s.Backup {
			backups++
		}
		if !s.Address.IsValid() { // was refused
			continue
		}
		if j, twice := addresses[s.Address]; twice {
			other := fmt.Sprintf("%s[%d].address", list, j)
			c.reportKey(entry+".address", fault{
				fmt.Sprintf("%v is also the address of %s", s.Address, c.where(other, entry)),
				"name each server once; weight gives one more flows",
			})
			continue
		}
		addresses[s.Address] = i
	}
	if backups > 0 && backups == len(b.Servers) {
		c.reportKey(list, fault{"are all backups, of nothing", "leave backup out of those that are to get flows"})
	}
}

// checkUnique reports a name that an earlier entry of the list has.
func (c *checker) checkUnique(first map[string]int, name string, i int, list, entry, fix string) {
	if name == "" { // was refused
		return
	}
	j, twice := first[name]
	if !twice {
		first[name] = i
		return
	}
	other := fmt.Sprintf("%s[%d].name", list, j)
	c.reportKey(entry+".name", fault{fmt.Sprintf("%q is also the name of %s", name, c.where(other, entry)), fix})
}

func (c *checker) checkHealth(b *Backend, key string) {
	h := &b.Health
	if all := h.Timeout * time.Duration(h.Tries); h.Check != CheckNone && all > h.Interval {
		c.reportKey(key+".tries", fault{
			fmt.Sprintf("%d tries of %s take longer than the interval of %s", h.Tries, shortDuration(h.Timeout), shortDuration(h.Interval)),
			"raise interval, or lower timeout or tries",
		})
	}
	for name, text := range map[string]string{"send": h.Send, "expect": h.Expect} {
		if _, ok := Unescape(text); !ok {
			c.reportKey(key+"."+name, fault{fmt.Sprintf("%q has a broken escape", text), `write \xHH for an octet, or \\ for a backslash`})
		}
	}
	if h.Check == CheckHTTP && h.Path != "" && h.Path[0] != '/' {
		c.reportKey(key+".path", fault{fmt.Sprintf("%q is no absolute path", h.Path), fmt.Sprintf("write %q", "/"+h.Path)})
	}
}

// checkProxy reports what does not fit between a listener and its backend.
func (c *checker) checkProxy(d *document, l *listenerEntry, key string) {
	_, hasBackend := c.places[key+".backend"]
	_, hasOptions := c.places[key+".udp_proxy"]
	if l.Service != ServiceUDPProxy {
		if l.Service == "" { // was refused
			return
		}
		if hasBackend {
			c.reportKey(key+".backend", fault{fmt.Sprintf("is for a proxy, and the service is %s", l.Service), "leave it out, or write service: udp-proxy"})
		}
		if hasOptions {
			c.reportKey(key+".udp_proxy", fault{fmt.Sprintf("is for the service udp-proxy, and this is %s", l.Service), "leave it out, or write service: udp-proxy"})
		}
		return
	}
	for _, t := range l.Transport {
		if t == "tcp" {
			c.reportKey(key+".transport", fault{"has tcp, which udp-proxy does not serve", "write transport: [udp]"})
		}
	}
	c.checkBackendOf(d, l, key, hasBackend)
	p := &l.UDPProxy
	if idle := d.Reload.UDPIdle; p.Timeout > idle && !c.wrong["reload.udp_idle"] {
		c.reportKey(key+".udp_proxy.timeout", fault{
			fmt.Sprintf("is %s, and reload.udp_idle is %s: a reload would cut a flow that pauses in between", shortDuration(p.Timeout), shortDuration(idle)),
			fmt.Sprintf("write at most %s, or raise reload.udp_idle", shortDuration(idle)),
		})
	}
	if p.Transparent && len(p.Source) > 0 {
		c.reportKey(key+".udp_proxy.source", fault{"has addresses, and transparent is true", "keep one of the two"})
	}
}

func (c *checker) checkBackendOf(d *document, l *listenerEntry, key string, written bool) {
	if l.Backend == "" {
		if !written {
			c.reportKey(key+".backend", fault{"is missing", "name the backend that the proxy sends to"})
		}
		return
	}
	var b *Backend
	var names []string
	for i := range d.Backends {
		names = append(names, d.Backends[i].Name)
		if d.Backends[i].Name == l.Backend {
			b = &d.Backends[i]
		}
	}
	if b == nil {
		if c.wrong["backends"] {
			return
		}
		f := fault{fmt.Sprintf("there is no backend %q", l.Backend), "add it to the list backends"}
		if near := nearest(l.Backend, names); near != "" {
			f.fix = fmt.Sprintf("did you mean %q?", near)
		}
		c.reportKey(key+".backend", f)
		return
	}
	c.checkSources(b, &l.UDPProxy, key)
}

// checkSources reports a server that no source address can send to.
func (c *checker) checkSources(b *Backend, p *UDPProxy, key string) {
	for _, s := range b.Servers {
		if len(p.Source) == 0 || !s.Address.IsValid() {
			continue
		}
		fits := false
		for _, a := range p.Source {
			fits = fits || !a.IsValid() || a.Is4() == s.Address.Addr().Is4()
		}
		if !fits {
			c.reportKey(key+".udp_proxy.source", fault{
				fmt.Sprintf("has no address that can send to %v of the server %s", s.Address, s.Name),
				"add an address of its family",
			})
		}
	}
}
