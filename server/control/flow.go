package control

import (
	"fmt"
	"net/netip"
)

// FlowQuery asks who serves the flow of a client.
type FlowQuery struct {
	Transport string         // udp or tcp
	Remote    netip.AddrPort // of the client
	Local     netip.AddrPort // that it asks; zero: any that is served
}

// FlowAnswer says who serves the flows of a client.
type FlowAnswer struct {
	Transport string         `json:"transport"`
	Remote    netip.AddrPort `json:"remote"`
	Flows     []Flow         `json:"flows"` // one for each local address: those with a trace of the client, else all that were looked at
}

// Flow is what is known of one flow.
type Flow struct {
	Local    netip.AddrPort `json:"local"`
	Listener string         `json:"listener"`
	Service  string         `json:"service"`
	Affinity string         `json:"affinity"` // flow or none
	Reader   uint32         `json:"reader"`   // epoch of the generation that reads the socket; 0: none
	Owner    *FlowOwner     `json:"owner"`    // null: nobody, a packet is dispatched like the first one
	Verdict  string         `json:"verdict"`  // what becomes of the next packet, in words
	Rules    []FlowRule     `json:"rules"`    // in the order in which they are asked
	State    string         `json:"state"`    // of a TCP connection, as the kernel names it; "" for UDP
}

// FlowOwner is the worker that serves a flow.
type FlowOwner struct {
	Epoch   uint32 `json:"epoch"`
	State   string `json:"state"` // of the generation
	Worker  int    `json:"worker"`
	PID     int    `json:"pid"`      // 0: it is dead
	Age     Millis `json:"age_ms"`   // since the last packet; 0 for TCP
	Packets int    `json:"packets"`  // received; 0 for TCP
	AtLeast bool   `json:"at_least"` // the count of packets has ended there
}

// FlowRule is one rule of the dispatcher, asked about a flow.
type FlowRule struct {
	Rule    int    `json:"rule"`    // 1 to 4; 0: the listener does not dispatch
	Epoch   uint32 `json:"epoch"`   // the generation it was asked about; 0: none
	Decides bool   `json:"decides"` // the next packet is dispatched by it
	Reached bool   `json:"reached"` // no earlier rule decides
	Text    string `json:"text"`
}

// check returns an *Error with CodeUsage if q cannot be answered.
func (q *FlowQuery) check() error {
	usage := func(format string, args ...any) error {
		return &Error{Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case q.Transport != "udp" && q.Transport != "tcp":
		return usage("transport is %q, and must be udp or tcp", q.Transport)
	case !q.Remote.IsValid() || q.Remote.Port() == 0:
		return usage("remote is missing: the address and port of the client")
	case q.Local.IsValid() && q.Local.Port() == 0:
		return usage("local has no port")
	case q.Local.IsValid() && q.Local.Addr().IsUnspecified():
		return usage("local %v is no address that a client asks", q.Local)
	case q.Local.IsValid() && q.Local.Addr().Unmap().Is4() != q.Remote.Addr().Unmap().Is4():
		return usage("remote %v and local %v are of different families", q.Remote, q.Local)
	}
	return nil
}

// filled returns a copy of a without nil lists.
func (a *FlowAnswer) filled() *FlowAnswer {
	c := *a
	c.Flows = append([]Flow{}, c.Flows...)
	for i := range c.Flows {
		c.Flows[i].Rules = orEmpty(c.Flows[i].Rules)
	}
	return &c
}
