package config

import (
	"net/netip"
	"time"
)

// Backend is a group of servers that proxies send to.
type Backend struct {
	Name      string        `json:"name"`
	Policy    Policy        `json:"policy"`
	SlowStart time.Duration `json:"slow_start"` // 0: none
	Servers   []Server      `json:"servers"`    // at least one
	Health    Health        `json:"health"`
}

// Policy is how a server is chosen for a new flow.
type Policy string

// The policies.
const (
	RoundRobin     Policy = "round-robin"
	LeastFlows     Policy = "least-flows"
	ConsistentHash Policy = "hash"
)

// Server is one server of a backend.
type Server struct {
	Name     string         `json:"name"`
	Address  netip.AddrPort `json:"address"`
	Weight   int            `json:"weight"` // 1 .. 256
	Backup   bool           `json:"backup"`
	MaxFlows int            `json:"max_flows"` // 0: no limit
}

// Check is how the supervisor tries whether a server serves.
type Check string

// The checks.
const (
	CheckNone Check = "none"
	CheckUDP  Check = "udp"
	CheckTCP  Check = "tcp"
	CheckDNS  Check = "dns"
	CheckHTTP Check = "http"
)

// Health says how it is found out whether the servers of a backend serve.
type Health struct {
	Check    Check         `json:"check"`
	Interval time.Duration `json:"interval"` // 100 ms .. 1 h
	Timeout  time.Duration `json:"timeout"`  // of a try; Tries of them fit into Interval
	Tries    int           `json:"tries"`    // in a row that fail make a check fail
	Rise     int           `json:"rise"`     // good checks in a row that end a failure
	Port     int           `json:"port"`     // 0: that of the server
	Send     string        `json:"send"`     // of CheckUDP, with escapes: see Unescape
	Expect   string        `json:"expect"`   // of CheckUDP, with escapes
	Name     string        `json:"name"`     // of CheckDNS: absolute, lower case
	Path     string        `json:"path"`     // of CheckHTTP

	MaxFails    int           `json:"max_fails"`    // failed flows in a row that take a server out; 0: never
	FailTimeout time.Duration `json:"fail_timeout"` // how long
}

// UDPProxy says how a udp-proxy treats its flows.
type UDPProxy struct {
	Responses     int           `json:"responses"`      // to each datagram; 0: any number
	Requests      int           `json:"requests"`       // datagrams of a client that a flow takes; 0: any number
	Timeout       time.Duration `json:"timeout"`        // 100 ms .. reload.udp_idle
	Quarantine    time.Duration `json:"quarantine"`     // of a port after its flow
	Source        []netip.Addr  `json:"source"`         // towards the backend; empty: the kernel chooses
	Transparent   bool          `json:"transparent"`    // the source is the client
	ProxyProtocol bool          `json:"proxy_protocol"` // version 2, in the first datagram of a flow
	Flows         int           `json:"flows"`          // of a worker
	ClientFlows   int           `json:"client_flows"`   // of a worker and client
}

// BackendOf returns the backend of a listener, nil if it has none.
func (c *Config) BackendOf(l *Listener) *Backend {
	for i := range c.Backends {
		if c.Backends[i].Name == l.Backend && l.Backend != "" {
			return &c.Backends[i]
		}
	}
	return nil
}

// Unescape returns the octets that s stands for: \xHH is one of any value, and \\
// a backslash. It reports whether s has no other escape.
func Unescape(s string) ([]byte, bool) {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		switch rest := s[i+1:]; {
		case len(rest) >= 1 && rest[0] == '\\':
			out = append(out, '\\')
			i++
		case len(rest) >= 3 && rest[0] == 'x':
			hi, ok1 := hexDigit(rest[1])
			lo, ok2 := hexDigit(rest[2])
			if !ok1 || !ok2 {
				return nil, false
			}
			out = append(out, hi<<4|lo)
			i += 3
		default:
			return nil, false
		}
	}
	return out, true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
