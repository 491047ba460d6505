package metrics

import "github.com/dnsapp/dnsapp/server/counters"

func (o output) proxy(s *Sample) {
	n := &s.Counters
	o.count(proxyFlows, n, counters.ProxyFlows)
	o.count(proxyEnded, n, counters.ProxyEnded)
	o.count(proxyOut, n, counters.ProxyOut)
	o.count(proxyIn, n, counters.ProxyIn)
	o.count(proxyLate, n, counters.ProxyLate)
	o.count(proxyUnsent, n, counters.ProxyUnsent)
	lost := n.Load(counters.ProxyHandoffLost)
	o.put(proxyHandoffs, float64(n.Load(counters.ProxyHandoffs)-lost), "passed")
	o.put(proxyHandoffs, float64(lost), "dropped")
	o.count(proxyErrors, n, counters.ProxyErrors)
	for _, b := range s.Backends {
		for i := range b.Servers {
			one := &b.Servers[i]
			o.put(serverFlows, float64(one.Flows), b.Name, one.Name)
			o.put(serverUp, truth(one.Usable()), b.Name, one.Name)
			o.put(serverBegun, float64(one.Begun), b.Name, one.Name)
			o.put(serverFailed, float64(one.Refused), b.Name, one.Name, "refused")
			o.put(serverFailed, float64(one.Silent), b.Name, one.Name, "silent")
		}
	}
}
