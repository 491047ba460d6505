package config

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// defaults is the configuration of a file that says no more than it must, on
// the machine of testSystem.
func defaults(file string) *Config {
	return &Config{
		File: file, Name: "host-1", Control: "/run/dnsapp/control.sock", Admin: netip.MustParseAddrPort("127.0.0.1:9153"),
		StateDir: "/var/lib/dnsapp", User: "nobody", Workers: 1, Lanes: 4, Datapath: Sockets,
		DPDK: Primary{
			Mbufs: 16383, MbufSize: 2048, MaxWorkers: 4, RingSize: 512, Memory: 64, Hugepages: "/dev/hugepages", FilePrefix: "dnsapp", Poll: Adaptive,
			Devices: []Device{},
		},
		Log: Log{Level: "info", Format: "text"},
		Reload: Reload{
			Mode: Graceful, Overlap: FinishOldest, UDPIdle: 10 * time.Second, ShutdownTimeout: 90 * time.Second, ReadyTimeout: time.Minute,
			HeartbeatTimeout: time.Second, FlowTable: 65536,
		},
		Upgrade: Upgrade{Timeout: 2 * time.Minute, Retry: 200 * time.Millisecond},
		DNS:     DNS{MaxUDPSize: 1232, MinimalResponses: true, TCPIdle: 10 * time.Second, TCPConnections: 10000, TCPClient: 1000, TCPLifetime: time.Hour, QueryLog: QueryLog{Sample: 100}},
		Zones:   []Zone{}, Backends: []Backend{},
		Listeners: []Listener{{
			Name: "who", Address: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:5399")}, UDP: true, TCP: true,
			Service: ServiceIdentify, Affinity: AffinityFlow,
		}},
	}
}

// generate draws a Config of any content that Load could return, and more.
func generate(t *rapid.T) *Config {
	text := rapid.String()
	duration := rapid.Map(rapid.Int64Min(0), func(n int64) time.Duration { return time.Duration(n) })
	addr := rapid.Custom(func(t *rapid.T) netip.AddrPort {
		a := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		if rapid.Bool().Draw(t, "is6") {
			a = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")))
			if !a.Is4In6() {
				a = a.WithZone(rapid.StringMatching(`[a-z0-9]{0,15}`).Draw(t, "scope"))
			}
		}
		return netip.AddrPortFrom(a, rapid.Uint16().Draw(t, "port"))
	})
	zone := rapid.Custom(func(t *rapid.T) Zone { return Zone{text.Draw(t, "zone"), text.Draw(t, "file")} })
	backend := rapid.Custom(func(t *rapid.T) Backend { return generateBackend(t, addr) })
	listener := rapid.Custom(func(t *rapid.T) Listener {
		l := Listener{
			Name: text.Draw(t, "name"), Address: rapid.SliceOf(addr).Draw(t, "address"),
			UDP: rapid.Bool().Draw(t, "udp"), TCP: rapid.Bool().Draw(t, "tcp"),
			Service:  rapid.SampledFrom([]Service{ServiceDNS, ServiceIdentify, ServiceUDPProxy}).Draw(t, "service"),
			Affinity: rapid.SampledFrom([]Affinity{AffinityFlow, AffinityNone}).Draw(t, "affinity"),
		}
		if l.Service == ServiceUDPProxy {
			l.Backend = text.Draw(t, "backend")
			l.UDPProxy = UDPProxy{
				Responses: rapid.Int().Draw(t, "responses"), Requests: rapid.Int().Draw(t, "requests"),
				Timeout: duration.Draw(t, "timeout") + 1, Quarantine: duration.Draw(t, "quarantine"),
				Source:      rapid.SliceOf(rapid.Map(addr, netip.AddrPort.Addr)).Draw(t, "source"),
				Transparent: rapid.Bool().Draw(t, "transparent"), ProxyProtocol: rapid.Bool().Draw(t, "proxy_protocol"),
				Flows: rapid.Int().Draw(t, "flows"), ClientFlows: rapid.Int().Draw(t, "client_flows"),
			}
		}
		return l
	})
	c := &Config{
		File: text.Draw(t, "file"), Name: text.Draw(t, "name"), Control: text.Draw(t, "control"), PIDFile: text.Draw(t, "pid_file"), StateFile: text.Draw(t, "state_file"),
		StateDir: text.Draw(t, "state_dir"), User: text.Draw(t, "user"), Workers: rapid.Int().Draw(t, "workers"),
		Lanes: rapid.Int().Draw(t, "lanes"), Datapath: DPDK, DPDK: generatePrimary(t), Log: Log{text.Draw(t, "level"), text.Draw(t, "format")},
		Reload: Reload{
			Mode: Restart, Overlap: RefuseOverlap, UDPIdle: duration.Draw(t, "udp_idle"), ShutdownTimeout: duration.Draw(t, "shutdown_timeout"),
			ReadyTimeout: duration.Draw(t, "ready_timeout"), HeartbeatTimeout: duration.Draw(t, "heartbeat_timeout"),
			FlowTable: rapid.Int().Draw(t, "flow_table"),
		},
		Upgrade: Upgrade{Timeout: duration.Draw(t, "upgrade timeout"), Retry: duration.Draw(t, "retry")},
		DNS: DNS{
			MaxUDPSize: rapid.Int().Draw(t, "max_udp_size"), MinimalResponses: rapid.Bool().Draw(t, "minimal"),
			TCPIdle: duration.Draw(t, "tcp_idle"), TCPConnections: rapid.Int().Draw(t, "tcp_connections"),
			TCPClient: rapid.Int().Draw(t, "tcp_client_connections"), TCPLifetime: duration.Draw(t, "tcp_lifetime"),
			QueryLog:         QueryLog{text.Draw(t, "query_log"), rapid.Int().Draw(t, "sample")},
			ExposeGeneration: rapid.Bool().Draw(t, "expose"),
		},
		Zones: rapid.SliceOf(zone).Draw(t, "zones"), Backends: rapid.SliceOf(backend).Draw(t, "backends"), Listeners: rapid.SliceOf(listener).Draw(t, "listeners"),
	}
	if rapid.Bool().Draw(t, "has admin") {
		c.Admin = addr.Draw(t, "admin")
	}
	return c
}

func generatePrimary(t *rapid.T) Primary {
	text, number := rapid.String(), rapid.Int()
	ip := rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b)).Unmap() })
	device := rapid.Custom(func(t *rapid.T) Device {
		return Device{
			Name: text.Draw(t, "name"), Device: text.Draw(t, "device"), Queues: number.Draw(t, "queues"), Descriptors: number.Draw(t, "descriptors"),
			MTU: number.Draw(t, "mtu"), VLAN: number.Draw(t, "vlan"), Gateways: rapid.SliceOf(ip).Draw(t, "gateways"),
			Addresses: rapid.SliceOf(rapid.Map(ip, func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()/2) })).Draw(t, "addresses"),
			Kernel: Kernel{
				TAP:       text.Draw(t, "tap"),
				Addresses: rapid.SliceOf(rapid.Map(ip, func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) })).Draw(t, "tap_addresses"),
			},
			Neighbours: rapid.SliceOf(rapid.Map(ip, func(a netip.Addr) Neighbour { return Neighbour{a, [6]byte{2, 5: a.AsSlice()[0]}} })).Draw(t, "neighbours"),
		}
	})
	return Primary{
		Mbufs: number.Draw(t, "mbufs"), MbufSize: number.Draw(t, "mbuf_size"), MaxWorkers: number.Draw(t, "max_workers"),
		RingSize: number.Draw(t, "ring_size"), Memory: number.Draw(t, "memory"), Hugepages: text.Draw(t, "hugepages"),
		FilePrefix: text.Draw(t, "file_prefix"), Poll: Busy, Devices: rapid.SliceOf(device).Draw(t, "devices"),
	}
}

func generateBackend(t *rapid.T, addr *rapid.Generator[netip.AddrPort]) Backend {
	text := rapid.String()
	duration := rapid.Map(rapid.Int64Min(0), func(n int64) time.Duration { return time.Duration(n) })
	server := rapid.Custom(func(t *rapid.T) Server {
		return Server{
			Name: text.Draw(t, "server"), Address: addr.Draw(t, "address"), Weight: rapid.Int().Draw(t, "weight"),
			Backup: rapid.Bool().Draw(t, "backup"), MaxFlows: rapid.Int().Draw(t, "max_flows"),
		}
	})
	return Backend{
		Name: text.Draw(t, "name"), Policy: rapid.SampledFrom([]Policy{RoundRobin, LeastFlows, ConsistentHash}).Draw(t, "policy"),
		SlowStart: duration.Draw(t, "slow_start"), Servers: rapid.SliceOf(server).Draw(t, "servers"),
		Health: Health{
			Check: CheckHTTP, Interval: duration.Draw(t, "interval"), Timeout: duration.Draw(t, "timeout"), Tries: rapid.Int().Draw(t, "tries"),
			Rise: rapid.Int().Draw(t, "rise"), Port: rapid.Int().Draw(t, "port"), Send: text.Draw(t, "send"), Expect: text.Draw(t, "expect"),
			Name: text.Draw(t, "domain"), Path: text.Draw(t, "path"), MaxFails: rapid.Int().Draw(t, "max_fails"),
			FailTimeout: duration.Draw(t, "fail_timeout"),
		},
	}
}

func throughJSON(c *Config) (*Config, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	back := new(Config)
	return back, json.Unmarshal(text, back)
}

// The workers run exactly what the supervisor checked.
func TestConfigSurvivesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := generate(t)
		back, err := throughJSON(c)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(c, back) {
			t.Fatalf("was %#v\n is %#v", c, back)
		}
	})
}

// A document says all that a Config says, so Diff sees every change.
func TestDocumentIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := generate(t)
		c.Workers, c.Lanes = max(c.Workers, 1), max(c.Lanes, 1)
		if len(c.Listeners) == 0 {
			c.Listeners = nil
		}
		if back := documentOf(c).config(c.File, 1); !reflect.DeepEqual(c, back) {
			t.Fatalf("was %#v\n is %#v", c, back)
		}
	})
}
