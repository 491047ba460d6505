package config

import (
	"net/netip"
	"time"
)

// Config is a validated configuration: every default filled in, every path
// absolute, every name resolved. It is what the supervisor runs and what it
// hands to the workers (as JSON), so what was checked is what runs.
type Config struct {
	File      string         `json:"file"` // where it was read from, absolute
	Name      string         `json:"name"`
	Control   string         `json:"control"`
	Admin     netip.AddrPort `json:"admin"`    // zero: no admin listener
	PIDFile   string         `json:"pid_file"` // "": none
	StateDir  string         `json:"state_dir"`
	StateFile string         `json:"state_file"` // "": none
	User      string         `json:"user"`
	Workers   int            `json:"workers"`
	Lanes     int            `json:"lanes"` // auto is resolved
	Datapath  Datapath       `json:"datapath"`
	DPDK      Primary        `json:"dpdk"`
	Log       Log            `json:"log"`
	Reload    Reload         `json:"reload"`
	Upgrade   Upgrade        `json:"upgrade"`
	DNS       DNS            `json:"dns"`
	Zones     []Zone         `json:"zones"`

	Backends  []Backend  `json:"backends"`
	Listeners []Listener `json:"listeners"`
}

// Datapath is how packets reach the workers.
type Datapath string

// The data paths.
const (
	Sockets Datapath = "sockets"
	DPDK    Datapath = "dpdk"
)

// Primary says what the process makes that owns the devices of the data path DPDK.
type Primary struct {
	Mbufs      int      `json:"mbufs"`
	MbufSize   int      `json:"mbuf_size"`   // octets behind the headroom
	MaxWorkers int      `json:"max_workers"` // of a generation, 1 .. 31
	RingSize   int      `json:"ring_size"`   // a power of two
	Memory     int      `json:"memory"`      // MB
	Hugepages  string   `json:"hugepages"`   // folder
	FilePrefix string   `json:"file_prefix"`
	Poll       Poll     `json:"poll"`
	Devices    []Device `json:"devices"`
}

// Log says what is logged and how, to standard error.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn, error
	Format string `json:"format"` // text, json
}

// Mode is how a reload replaces the old generation.
type Mode string

// The reload modes.
const (
	Graceful Mode = "graceful"
	Restart  Mode = "restart"
)

// Overlap is what a reload does when as many generations live as there can be.
type Overlap string

// The ways.
const (
	FinishOldest  Overlap = "finish-oldest"
	RefuseOverlap Overlap = "refuse"
)

// Reload holds the times and sizes of the reload machine.
type Reload struct {
	Mode             Mode          `json:"mode"`
	Overlap          Overlap       `json:"overlap"`
	UDPIdle          time.Duration `json:"udp_idle"`          // 100 ms .. 1 h
	ShutdownTimeout  time.Duration `json:"shutdown_timeout"`  // 0 .. 24 h
	ReadyTimeout     time.Duration `json:"ready_timeout"`     // 100 ms .. 1 h
	HeartbeatTimeout time.Duration `json:"heartbeat_timeout"` // 100 ms .. 1 min
	FlowTable        int           `json:"flow_table"`        // slots, power of two, 1,024 .. 16 Mi
}

// Upgrade holds the times of a hand-over to another supervisor.
type Upgrade struct {
	Timeout time.Duration `json:"timeout"` // until the commit; 1 s .. 1 h
	Retry   time.Duration `json:"retry"`   // between looks for a supervisor to take over from; 10 ms .. 1 min
}

// DNS holds what all DNS listeners share.
type DNS struct {
	MaxUDPSize       int           `json:"max_udp_size"`           // largest UDP answer, octets, 512 .. 4096 (default 1232)
	MinimalResponses bool          `json:"minimal_responses"`      // leave out authority and additional data nobody needs
	TCPIdle          time.Duration `json:"tcp_idle"`               // close a connection without a query for this long (RFC 7766 6.2.3)
	TCPConnections   int           `json:"tcp_connections"`        // per worker
	TCPClient        int           `json:"tcp_client_connections"` // per worker and client
	TCPLifetime      time.Duration `json:"tcp_lifetime"`           // of a connection
	QueryLog         QueryLog      `json:"query_log"`
	ExposeGeneration bool          `json:"expose_generation"` // answer TXT CH generation.dnsapp.
}

// QueryLog says which answered queries are logged, and where.
type QueryLog struct {
	File   string `json:"file"`   // absolute path; "": none
	Sample int    `json:"sample"` // one query in so many
}

// Zone is one authoritative zone.
type Zone struct {
	Name string `json:"name"` // absolute, lower case, presentation form
	File string `json:"file"` // absolute path of an RFC 1035 master file
}

// Service is what a listener does with its traffic.
type Service string

// The services.
const (
	ServiceDNS      Service = "dns"
	ServiceIdentify Service = "identify"
	ServiceUDPProxy Service = "udp-proxy"
)

// Affinity says whether the flows of a listener stay with the generation that
// began them.
type Affinity string

// The affinities.
const (
	AffinityFlow Affinity = "flow"
	AffinityNone Affinity = "none"
)

// Listener is a set of addresses served alike.
type Listener struct {
	Name     string           `json:"name"`
	Address  []netip.AddrPort `json:"address"` // at least one, none twice
	UDP      bool             `json:"udp"`
	TCP      bool             `json:"tcp"`
	Service  Service          `json:"service"`
	Affinity Affinity         `json:"affinity"`
	Backend  string           `json:"backend"`   // name of a Backend; "": none. Set iff the service is a proxy
	UDPProxy UDPProxy         `json:"udp_proxy"` // zero unless Service is ServiceUDPProxy
}

// Transports returns the transports of l as the file names them.
func (l *Listener) Transports() []string {
	var all []string
	if l.UDP {
		all = append(all, "udp")
	}
	if l.TCP {
		all = append(all, "tcp")
	}
	return all
}
