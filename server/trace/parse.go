package trace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Parse compiles an expression in a part of the language of pcap-filter(7):
//
//	[src|dst|src or dst|src and dst] host ADDRESS
//	[src|dst|src or dst|src and dst] net PREFIX           192.0.2.0/24, 2001:db8::/32
//	[src|dst|src or dst|src and dst] port N
//	[src|dst|src or dst|src and dst] portrange N-N
//	ip, ip6, udp, tcp, icmp, icmp6, arp                   alone, or before one of the above
//	vlan [N], less N, greater N, inbound, outbound
//
// joined by "and" (&&), "or" (||) and "not" (!), with parentheses. As there, "and"
// and "or" bind alike and from the left, "not" binds closest. Names of hosts and
// ports are not looked up. An empty expression is a filter that wants all.
func Parse(text string) (*Filter, error) {
	if len(text) > MaxFilter {
		return nil, fmt.Errorf("the filter has %d octets, more than %d", len(text), MaxFilter)
	}
	p := &parser{text: text, words: split(text)}
	if len(p.words) == 0 {
		return new(Filter), nil
	}
	if err := p.expression(0); err != nil {
		return nil, err
	}
	if p.at < len(p.words) {
		return nil, p.wrong("and, or, or the end")
	}
	if len(p.ops) > maxOps {
		return nil, fmt.Errorf("the filter %q is longer than %d terms", text, maxOps)
	}
	return &Filter{ops: p.ops}, nil
}

// split returns the words of text; parentheses and ! are words of their own.
func split(text string) []string {
	for _, mark := range []string{"(", ")", "!", "&&", "||"} {
		text = strings.ReplaceAll(text, mark, " "+mark+" ")
	}
	return strings.Fields(text)
}

type parser struct {
	text  string
	words []string
	at    int
	ops   []op
}

func (p *parser) peek() string {
	if p.at < len(p.words) {
		return p.words[p.at]
	}
	return ""
}

// take takes the next word if it is one of these.
func (p *parser) take(words ...string) bool {
	for _, w := range words {
		if p.at < len(p.words) && p.words[p.at] == w {
			p.at++
			return true
		}
	}
	return false
}

func (p *parser) wrong(want string) error {
	if p.at < len(p.words) {
		return fmt.Errorf("the filter %q: %q stands where %s is expected", p.text, p.words[p.at], want)
	}
	return fmt.Errorf("the filter %q ends where %s is expected", p.text, want)
}

// expression compiles terms that are joined, within this many parentheses.
func (p *parser) expression(depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("the filter has more than %d parentheses within each other", maxDepth)
	}
	if err := p.factor(depth); err != nil {
		return err
	}
	for {
		var join opcode
		switch {
		case p.take("and", "&&"):
			join = opAnd
		case p.take("or", "||"):
			join = opOr
		default:
			return nil
		}
		if err := p.factor(depth); err != nil {
			return err
		}
		p.ops = append(p.ops, op{code: join})
	}
}

func (p *parser) factor(depth int) error {
	if p.take("not", "!") {
		negations := 1
		for p.take("not", "!") {
			negations++
		}
		if err := p.factor(depth); err != nil {
			return err
		}
		if negations%2 == 1 {
			p.ops = append(p.ops, op{code: opNot})
		}
		return nil
	}
	if p.take("(") {
		if err := p.expression(depth + 1); err != nil {
			return err
		}
		if !p.take(")") {
			return p.wrong("a closing parenthesis")
		}
		return nil
	}
	return p.primitive()
}

// protocols are the words for what a datagram is.
var protocols = map[string]op{
	"ip":    {code: opVersion, low: 4},
	"ip6":   {code: opVersion, low: 6},
	"udp":   {code: opProtocol, low: protoUDP},
	"tcp":   {code: opProtocol, low: protoTCP},
	"icmp":  {code: opProtocol, low: protoICMP},
	"icmp6": {code: opProtocol, low: protoICMP6},
	"arp":   {code: opARP},
}

const primitives = "host, net, port, portrange, src, dst, ip, ip6, udp, tcp, icmp, icmp6, arp, vlan, less, greater, inbound, outbound, not or ("

func (p *parser) primitive() error {
	if o, ok := protocols[p.peek()]; ok {
		p.at++
		p.ops = append(p.ops, o)
		switch p.peek() {
		case "src", "dst", "host", "net", "port", "portrange":
			if err := p.qualified(); err != nil {
				return err
			}
			p.ops = append(p.ops, op{code: opAnd})
		}
		return nil
	}
	switch {
	case p.take("inbound"):
		p.ops = append(p.ops, op{code: opReceived})
	case p.take("outbound"):
		p.ops = append(p.ops, op{code: opSent})
	case p.take("less"):
		n, err := p.number("a length", 1<<31)
		p.ops = append(p.ops, op{code: opShorter, high: n})
		return err
	case p.take("greater"):
		n, err := p.number("a length", 1<<31)
		p.ops = append(p.ops, op{code: opLonger, low: n})
		return err
	case p.take("vlan"):
		if _, err := strconv.Atoi(p.peek()); err != nil {
			p.ops = append(p.ops, op{code: opAnyVLAN})
			return nil
		}
		n, err := p.number("the number of a VLAN", 4095)
		p.ops = append(p.ops, op{code: opVLAN, low: n})
		return err
	default:
		return p.qualified()
	}
	return nil
}

// qualified compiles a primitive about addresses or ports.
func (p *parser) qualified() error {
	o := op{side: either}
	if p.take("src") {
		o.side = source
		switch {
		case p.at+1 < len(p.words) && p.words[p.at] == "or" && p.words[p.at+1] == "dst":
			o.side = either
			p.at += 2
		case p.at+1 < len(p.words) && p.words[p.at] == "and" && p.words[p.at+1] == "dst":
			o.side = both
			p.at += 2
		}
	} else if p.take("dst") {
		o.side = destination
	}
	var err error
	switch {
	case p.take("host"):
		err = p.host(&o)
	case p.take("net"):
		err = p.net(&o)
	case p.take("port"):
		o.code = opPorts
		o.low, err = p.number("a port", 65535)
		o.high = o.low
	case p.take("portrange"):
		err = p.portrange(&o)
	case o.side != either:
		return p.wrong("host, net, port or portrange")
	default:
		return p.wrong(primitives)
	}
	p.ops = append(p.ops, o)
	return err
}

func (p *parser) host(o *op) error {
	a, err := netip.ParseAddr(p.peek())
	if err != nil || a.Zone() != "" {
		return p.wrong("an IP address")
	}
	p.at++
	o.code, o.prefix = opNet, netip.PrefixFrom(netip.AddrFrom16(a.As16()), 128)
	return nil
}

func (p *parser) net(o *op) error {
	n, err := netip.ParsePrefix(p.peek())
	if err != nil {
		return p.wrong("a network such as 192.0.2.0/24")
	}
	if n != n.Masked() {
		return fmt.Errorf("the filter %q: %v has bits behind the length of its prefix; did you mean %v?", p.text, n, n.Masked())
	}
	p.at++
	bits := n.Bits()
	if n.Addr().Is4() {
		bits += 96
	}
	o.code, o.prefix = opNet, netip.PrefixFrom(netip.AddrFrom16(n.Addr().As16()), bits)
	return nil
}

func (p *parser) portrange(o *op) error {
	low, high, ok := strings.Cut(p.peek(), "-")
	a, err1 := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	if !ok || err1 != nil || err2 != nil || a > b {
		return p.wrong("a range of ports such as 1024-2047")
	}
	p.at++
	o.code, o.low, o.high = opPorts, uint32(a), uint32(b)
	return nil
}

// number takes a number from 0 to limit.
func (p *parser) number(what string, limit uint64) (uint32, error) {
	n, err := strconv.ParseUint(p.peek(), 10, 32)
	if err != nil || n > limit {
		return 0, p.wrong(fmt.Sprintf("%s from 0 to %d", what, limit))
	}
	p.at++
	return uint32(n), nil
}
