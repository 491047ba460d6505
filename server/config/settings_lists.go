package config

import (
	"time"
)

// lists are the keys of zones, backends and listeners.
var lists = []setting{
	{path: "zones", kind: kindObjects, def: "[]", doc: "Zones that the DNS listeners answer from."},
	{
		path: "zones[].name", kind: kindDomain, required: true, sample: "example.com",
		doc: "Domain name of the apex. It is absolute, with or without the closing dot, and case does not matter. No two zones may have the same one.",
	},
	{
		path: "zones[].file", kind: kindFile, required: true, sample: "zones/example.com.zone",
		doc: "Master file (RFC 1035 section 5).",
	},

	{path: "backends", kind: kindObjects, def: "[]", doc: "Groups of servers that proxies send to."},
	{
		path: "backends[].name", kind: kindLabel, required: true, sample: "app", max: 63,
		doc: "Names the backend in listeners, logs, metrics and commands. No two backends may have the same one.",
	},
	{
		path: "backends[].policy", kind: kindWord, def: string(RoundRobin), words: []string{string(RoundRobin), string(LeastFlows), string(ConsistentHash)},
		doc: "Which server gets a new flow. round-robin: each in turn, by weight. least-flows: the one with the fewest flows for its weight. " +
			"hash: always the same one for a client's address, unless that has more than its share by a quarter; " +
			"when a server comes or goes, few clients move.",
	},
	{
		path: "backends[].slow_start", kind: kindDuration, def: "0s", min: 0, max: int64(time.Hour),
		doc: "A server that has come up again gets its full share of new flows after this long, and less before.",
	},
	{path: "backends[].servers", kind: kindObjects, required: true, doc: "There must be at least one."},
	{
		path: "backends[].servers[].name", kind: kindLabel, required: true, sample: "a", max: 63,
		doc: "Names the server in logs, metrics and commands. No two servers of a backend may have the same one. " +
			"Over a reload, a server with the same name and address keeps its health and its flows.",
	},
	{
		path: "backends[].servers[].address", kind: kindServer, required: true, sample: "127.0.0.1:9000",
		doc: "Where it serves. No two servers of a backend may have the same one, and none may be where a listener of this backend serves.",
	},
	{
		path: "backends[].servers[].weight", kind: kindInt, def: "1", min: 1, max: 256,
		doc: "Its share of new flows, against those of the others.",
	},
	{
		path: "backends[].servers[].backup", kind: kindBool, def: "false",
		doc: "It gets new flows only when no server that is no backup can take them. One server at least must be none.",
	},
	{
		path: "backends[].servers[].max_flows", kind: kindInt, def: "0", min: 0, max: maxFlows,
		doc: "It gets no new flow while it has so many, over all workers; lanes see each other's with a delay of a millisecond. 0: no limit.",
	},
	{path: "backends[].health", kind: kindObject, doc: "How it is found out whether its servers serve."},
	{
		path: "backends[].health.check", kind: kindWord, def: string(CheckNone),
		words: []string{string(CheckNone), string(CheckUDP), string(CheckTCP), string(CheckDNS), string(CheckHTTP)},
		doc: "What the supervisor tries on each server. udp: send a datagram and wait for one. tcp: connect. dns: ask a query over UDP. " +
			"http: GET a path. none: nothing.",
	},
	{
		path: "backends[].health.interval", kind: kindDuration, def: "2s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "Time from one check to the next.",
	},
	{
		path: "backends[].health.timeout", kind: kindDuration, def: "500ms", min: int64(10 * time.Millisecond), max: int64(time.Minute),
		doc: "A try without an answer for this long has failed.",
	},
	{
		path: "backends[].health.tries", kind: kindInt, def: "2", min: 1, max: 10,
		doc: "A check has failed when so many tries in a row have, one after the other. Then the server is down. Together they must fit into the interval.",
	},
	{
		path: "backends[].health.rise", kind: kindInt, def: "2", min: 1, max: 100,
		doc: "A server that is down is up again after so many checks in a row that have not failed.",
	},
	{
		path: "backends[].health.port", kind: kindInt, def: "0", min: 0, max: 65535,
		doc: "Port to check. 0: that of the server.",
	},
	{
		path: "backends[].health.send", kind: kindNoText, def: `""`, max: 512,
		doc: `What check udp sends. \xHH is an octet, \\ a backslash.`,
	},
	{
		path: "backends[].health.expect", kind: kindNoText, def: `""`, max: 512,
		doc: `What the answer to check udp must begin with, written like send. "": anything.`,
	},
	{
		path: "backends[].health.name", kind: kindDomain, def: ".",
		doc: "Whose SOA record check dns asks for. Any answer with the rcode NOERROR or NXDOMAIN will do.",
	},
	{
		path: "backends[].health.path", kind: kindText, def: "/", max: 512,
		doc: "What check http gets. A status from 200 to 399 will do.",
	},
	{
		path: "backends[].health.max_fails", kind: kindInt, def: "3", min: 0, max: 1_000_000,
		doc: "A server is taken out when so many flows in a row have failed: ICMP said that nobody listens, or they ended without any answer. 0: never.",
	},
	{
		path: "backends[].health.fail_timeout", kind: kindDuration, def: "10s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "How long it is out then.",
	},

	{path: "listeners", kind: kindObjects, required: true, doc: "Addresses that are served. There must be at least one."},
	{
		path: "listeners[].name", kind: kindLabel, required: true, sample: "dns", max: 63,
		doc: "Names the listener in logs, metrics and commands. No two listeners may have the same one.",
	},
	{
		path: "listeners[].address", kind: kindAddrs, required: true, sample: `["127.0.0.1:5353", "[::1]:5353"]`,
		doc: "Addresses to serve, each with its port. Quote IPv6 addresses. 0.0.0.0 is every IPv4 address of the host, [::] every IPv6 one " +
			"(and no IPv4 one). An address and port may be served once for each transport: neither twice, nor beside 0.0.0.0 or [::] with the same port.",
	},
	{
		path: "listeners[].transport", kind: kindWords, derived: "[udp] for udp-proxy and with datapath: dpdk, else [udp, tcp]", sample: "[udp, tcp]", words: []string{"udp", "tcp"},
		doc: "Protocols to serve on each address. udp-proxy serves udp only.",
	},
	{
		path: "listeners[].service", kind: kindWord, required: true, sample: "dns",
		words: []string{string(ServiceDNS), string(ServiceIdentify), string(ServiceUDPProxy)},
		doc: "dns answers queries from the zones. udp-proxy passes datagrams to the servers of a backend, and their answers back. " +
			"identify answers every datagram, and every line on TCP, with the generation, worker and lane that serves it.",
	},
	{
		path: "listeners[].affinity", kind: kindWord, derived: "none for dns, else flow", sample: "none",
		words: []string{string(AffinityFlow), string(AffinityNone)},
		doc: "flow: a UDP flow stays, over reloads, with the generation that began it. " +
			"none: the newest generation answers every datagram, which is right where one datagram knows nothing of the last.",
	},
	{
		path: "listeners[].backend", kind: kindLabel, derived: "none, and a proxy needs one", sample: "app", max: 63, sometimes: true,
		doc: "The backend that a proxy sends to.",
	},
	{path: "listeners[].udp_proxy", kind: kindObject, sometimes: true, doc: "How a udp-proxy treats its flows. A flow is what one address and port of a client sends to one of ours."},
	{
		path: "listeners[].udp_proxy.responses", kind: kindInt, def: "0", min: 0, max: 1_000_000,
		doc: "Answers to each datagram of a client. A flow ends when it has had all of them. 0: any number, and it ends by its timeout.",
	},
	{
		path: "listeners[].udp_proxy.requests", kind: kindInt, def: "0", min: 0, max: 1_000_000,
		doc: "After so many datagrams of a client the next one begins a new flow. The old one still gets its answers. 0: never.",
	},
	{
		path: "listeners[].udp_proxy.timeout", kind: kindDuration, derived: "that of reload.udp_idle", sample: "10s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A flow without a datagram in either direction for this long is over. A reload keeps a flow for reload.udp_idle after its last datagram, so this may not be longer.",
	},
	{
		path: "listeners[].udp_proxy.quarantine", kind: kindDuration, def: "1s", min: 0, max: int64(time.Minute),
		doc: "The port towards the backend rests for this long after the end of a flow that may still get answers, and for a tenth of it after one that has had all of them: " +
			"late answers never reach another client. A drain waits for it.",
	},
	{
		path: "listeners[].udp_proxy.source", kind: kindHosts, def: "[]",
		doc: "Addresses of this host that flows towards the backend leave from, in turn; those of the server's family are used. " +
			"Each gives as many flows as net.ipv4.ip_local_port_range has ports. []: the kernel chooses one.",
	},
	{
		path: "listeners[].udp_proxy.transparent", kind: kindBool, def: "false",
		doc: "The backend sees the address and port of the client (IP_TRANSPARENT). Its answers must be routed through this host. It needs root at the start; the workers keep CAP_NET_RAW for it.",
	},
	{
		path: "listeners[].udp_proxy.proxy_protocol", kind: kindBool, def: "false",
		doc: "Put a header of the PROXY protocol, version 2, before the first datagram of each flow, in the same datagram: the backend learns the client's address.",
	},
	{
		path: "listeners[].udp_proxy.flows", kind: kindInt, def: "65536", min: 1, max: maxFlows,
		doc: "Flows that a worker allows at this listener. What would begin another is dropped and counted.",
	},
	{
		path: "listeners[].udp_proxy.client_flows", kind: kindInt, def: "4096", min: 1, max: maxFlows,
		doc: "Flows that a worker allows for one client at this listener: an IPv4 address, or an IPv6 network of 64 bits.",
	},
}

// maxFlows bounds what is said about numbers of flows.
const maxFlows = 4 << 20
