package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/dnsapp/dnsapp/server/directory"
)

// schema is every key, in the order of the reference file.
var schema = slices.Concat(settings, lists)

// settings are the keys that a file has once.
var settings = []setting{
	{
		path: "name", kind: kindText, max: maxName, derived: "the host name", sample: "edge-1",
		doc: "Free text that names this server in status and in the answers of identify.",
	},
	{
		path: "control", kind: kindSocket, def: "/run/dnsapp/control.sock", frozen: frozenSupervisor,
		doc: "Unix socket that dnsappctl talks to. Its folder is made with mode 0700 if it is missing, " +
			"and locked: a second server on it is refused.",
	},
	{
		path: "admin", kind: kindAdmin, def: "127.0.0.1:9153", frozen: frozenSupervisor,
		doc: "Where /metrics, /healthz and /readyz are served, over HTTP. Nothing protects them: keep the address private.",
	},
	{
		path: "pid_file", kind: kindNoPath, def: `""`, frozen: frozenSupervisor,
		doc: "File that holds the process id of the supervisor while it runs.",
	},
	{
		path: "state_dir", kind: kindPath, def: "/var/lib/dnsapp", frozen: frozenSupervisor,
		doc: "Folder of what must outlive a stop, such as secrets. It is made with mode 0700 if it is missing.",
	},
	{
		path: "state_file", kind: kindNoPath, def: `""`,
		doc: "File that carries over a stop and the next start what was ordered of servers, whether they were up, and the totals of counters. " +
			"Its folder must be there. It is written, with mode 0600, at the end, after each order, and once a minute.",
	},
	{
		path: "user", kind: kindText, max: 64, def: "nobody", frozen: frozenSupervisor,
		doc: "User name, or numeric user id, that workers and zone compilers run as. It has an effect only when started as root.",
	},
	{
		path: "workers", kind: kindInt, def: "1", min: 1, max: maxWorkers,
		doc: "Processes of a generation.",
	},
	{
		path: "lanes", kind: kindLanes, def: "auto", min: 1, max: maxLanes,
		doc: fmt.Sprintf("Receive loops of a worker. auto: the processors, %d at most, shared out over the workers, and at least 1. "+
			"workers times lanes is at most %d.", autoLanes, maxLanes),
	},
	{
		path: "datapath", kind: kindWord, def: string(Sockets), words: []string{string(Sockets), string(DPDK)},
		frozen: "workers of both cannot hand over to each other",
		doc:    "How packets reach the workers: by kernel sockets, or by DPDK, which needs a binary of make build-dpdk, and serves UDP only.",
	},

	{path: "dpdk", kind: kindObject, doc: "Devices and memory of the data path DPDK. The process dnsapp primary makes them once, and outlives reloads, upgrades and the supervisor."},
	{
		path: "dpdk.mbufs", kind: kindInt, def: "16383", min: 511, max: 16 << 20, frozen: frozenPrimary,
		doc: "Packet buffers: for all queues' descriptors, both ways, and all that is under way. One less than a power of two uses memory best.",
	},
	{
		path: "dpdk.mbuf_size", kind: kindInt, def: "2048", min: 1024, max: 16384, frozen: frozenPrimary,
		doc: "Octets of a packet buffer: a whole frame fits.",
	},
	{
		path: "dpdk.max_workers", kind: kindInt, def: "4", min: 1, max: 31, frozen: frozenPrimary,
		doc: "The most workers that a generation can have, whatever a reload writes. Rings from each to each take memory.",
	},
	{
		path: "dpdk.ring_size", kind: kindSlots, def: "512", min: 64, max: 65536, frozen: frozenPrimary,
		doc: "Packets that a ring between two workers holds.",
	},
	{
		path: "dpdk.memory", kind: kindInt, def: "64", min: 16, max: 1 << 20, frozen: frozenPrimary,
		doc: "MB of hugepages to take at the start.",
	},
	{
		path: "dpdk.hugepages", kind: kindPath, def: "/dev/hugepages", frozen: frozenPrimary,
		doc: "Folder where a hugetlbfs is mounted.",
	},
	{
		path: "dpdk.file_prefix", kind: kindLabel, def: "dnsapp", max: 32, frozen: frozenPrimary,
		doc: "Begins the names of the shared memory. Give each dnsapp of a host its own.",
	},
	{
		path: "dpdk.poll", kind: kindWord, def: string(Adaptive), words: []string{string(Adaptive), string(Busy)},
		doc: "How workers look for packets. adaptive: a worker that finds none for a while sleeps for up to two milliseconds at a time. " +
			"busy: it never sleeps, and takes a whole processor.",
	},
	{path: "dpdk.devices", kind: kindObjects, def: "[]", frozen: frozenPrimary, doc: "Network devices. There must be at least one with datapath: dpdk."},
	{
		path: "dpdk.devices[].name", kind: kindLabel, required: true, sample: "wan", max: 63, frozen: frozenPrimary,
		doc: "Names the device in logs, metrics and commands. No two devices may have the same one.",
	},
	{
		path: "dpdk.devices[].device", kind: kindText, required: true, sample: `"0000:3b:00.0"`, max: 255, frozen: frozenPrimary,
		doc: "PCI address as lspci -D prints it, of a device that is bound to vfio-pci; or a virtual device with its arguments, such as net_tap0,iface=dnsapp0.",
	},
	{
		path: "dpdk.devices[].queues", kind: kindInt, def: "1", min: 1, max: 64, frozen: frozenPrimary,
		doc: "Pairs of queues.",
	},
	{
		path: "dpdk.devices[].descriptors", kind: kindInt, def: "1024", min: 64, max: 32768, frozen: frozenPrimary,
		doc: "Packets that a queue holds, each way. The device may make it fewer.",
	},
	{
		path: "dpdk.devices[].mtu", kind: kindInt, def: "1500", min: 1280, max: 9216, frozen: frozenPrimary,
		doc: "Octets of the largest IP packet.",
	},
	{
		path: "dpdk.devices[].addresses", kind: kindPrefixes, def: "[]", sample: `["192.0.2.1/24", "2001:db8::1/64"]`,
		doc: "Addresses of the device, each with the length of the prefix that is on its link. Listeners serve on them: 0.0.0.0 is all IPv4 addresses of all devices, [::] all IPv6 ones.",
	},
	{
		path: "dpdk.devices[].vlan", kind: kindInt, def: "0", min: 0, max: 4094,
		doc: "VLAN of the addresses. 0: frames have no tag.",
	},
	{
		path: "dpdk.devices[].gateways", kind: kindHosts, def: "[]", sample: `["192.0.2.254"]`,
		doc: "Where packets to other networks go: one address of each family, on the link. Answers need none: they go back the way that their queries came.",
	},
	{
		path: "dpdk.devices[].neighbours", kind: kindNeighbours, def: "[]", sample: `["192.0.2.254 02:00:5e:00:53:01"]`,
		doc: "Hosts on the link whose link addresses are known, and not asked for.",
	},
	{path: "dpdk.devices[].kernel", kind: kindObject, sometimes: true, doc: "The part that this host's kernel has in the device."},
	{
		path: "dpdk.devices[].kernel.tap", kind: kindNoText, def: `""`, sample: "dnsapp0", max: 15,
		doc: "TAP device by which the kernel gets what comes by the device and dnsapp does not serve, such as TCP, and sends by it. It is made where it is missing. Empty: the kernel has no part in the device.",
	},
	{
		path: "dpdk.devices[].kernel.addresses", kind: kindPrefixes, def: "[]", sample: `["192.0.2.1/24", "2001:db8::1/64"]`,
		doc: "Addresses of the TAP device. Empty: those of the device.",
	},

	{
		path: "expose_generation", kind: kindBool, def: "false",
		doc: "Answer TXT queries of class CHAOS for generation.dnsapp. with the generation, worker and lane that serves them.",
	},

	{
		path: "include", kind: kindGlobs, def: "[]",
		doc: "Files that are taken in as if they were written here, in the order of their names; the path may have *, ? and [...]. " +
			"The lists zones, backends and listeners are joined; any other key may be written in one file only.",
	},

	{path: "log", kind: kindObject, doc: "What is logged, to standard error."},
	{
		path: "log.level", kind: kindWord, def: "info", words: []string{"debug", "info", "warn", "error"},
		doc: "The least severe level that is logged.",
	},
	{
		path: "log.format", kind: kindWord, def: "text", words: []string{"text", "json"},
		doc: "Lines for people, or one JSON object a line.",
	},

	{path: "reload", kind: kindObject, doc: "How one generation replaces another."},
	{
		path: "reload.mode", kind: kindWord, def: string(Graceful), words: []string{string(Graceful), string(Restart)},
		frozen: "the two bind their sockets in different ways",
		doc: "graceful keeps every flow with the generation that began it. " +
			"restart stops the old workers and starts new ones, which loses packets: it is there to compare with.",
	},
	{
		path: "reload.overlap", kind: kindWord, def: string(FinishOldest), words: []string{string(FinishOldest), string(RefuseOverlap)},
		doc: fmt.Sprintf("What a reload does when %d generations live, the most there can be. finish-oldest ends the drain of the oldest one, "+
			"as its deadline would, and goes on when it is gone. refuse refuses the reload.", directory.MaxSlots),
	},
	{
		path: "reload.udp_idle", kind: kindDuration, def: "10s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A UDP flow without a packet for this long is over, and no longer kept with its generation.",
	},
	{
		path: "reload.shutdown_timeout", kind: kindDuration, def: "90s", min: 0, max: int64(24 * time.Hour),
		doc: "The longest that an old generation drains. What it still serves then is handed over to the new one.",
	},
	{
		path: "reload.ready_timeout", kind: kindDuration, def: "60s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A reload is given up, and the old generation serves on, when the new workers are not ready after this long.",
	},
	{
		path: "reload.heartbeat_timeout", kind: kindDuration, def: "1s", min: int64(100 * time.Millisecond), max: int64(time.Minute),
		doc: "A worker that is asked for a sign of life, and stands still for this long, is killed and started again.",
	},
	{
		path: "reload.flow_table", kind: kindSlots, def: "65536", min: 1 << 10, max: 16 << 20,
		doc: "UDP flows that a generation can keep. A slot takes 16 octets of shared memory.",
	},

	{path: "upgrade", kind: kindObject, doc: "How the binary is replaced."},
	{
		path: "upgrade.timeout", kind: kindDuration, def: "2m", min: int64(time.Second), max: int64(time.Hour),
		doc: "An upgrade is given up, and the old supervisor goes on, when the new one has not committed after this long. " +
			"It is also how long serve --take-over looks for a supervisor.",
	},
	{
		path: "upgrade.retry", kind: kindDuration, def: "200ms", min: int64(10 * time.Millisecond), max: int64(time.Minute),
		doc: "How long serve --take-over waits between two looks for a supervisor that is not there yet.",
	},

	{path: "dns", kind: kindObject, doc: "What all DNS listeners share."},
	{
		path: "dns.max_udp_size", kind: kindInt, def: "1232", min: 512, max: 4096,
		doc: "Octets of the largest answer over UDP. The default avoids fragments on any IPv6 path.",
	},
	{
		path: "dns.minimal_responses", kind: kindBool, def: "true",
		doc: "Leave out authority and additional data that no resolver needs: answers are smaller and cost less.",
	},
	{
		path: "dns.tcp_idle", kind: kindDuration, def: "10s", min: int64(100 * time.Millisecond), max: int64(time.Hour),
		doc: "A TCP connection without a query for this long is closed (RFC 7766 section 6.2.3).",
	},
	{
		path: "dns.tcp_connections", kind: kindInt, def: "10000", min: 1, max: 1_000_000,
		doc: "Open TCP connections that a worker allows; fewer where the limit of open files is lower.",
	},
	{
		path: "dns.tcp_client_connections", kind: kindInt, def: "1000", min: 1, max: 1_000_000,
		doc: "Open TCP connections that a worker allows for one client: an IPv4 address, or an IPv6 network of 64 bits.",
	},
	{
		path: "dns.tcp_lifetime", kind: kindDuration, def: "1h", min: int64(time.Second), max: int64(7 * 24 * time.Hour),
		doc: "A TCP connection that is this old is closed when it pauses, and soon in any case.",
	},
	{path: "dns.query_log", kind: kindObject, doc: "A sample of the answered queries, one JSON object a line."},
	{
		path: "dns.query_log.file", kind: kindNoPath, def: `""`,
		doc: "The file that they are appended to; a reload opens it anew. What it does not take in time is dropped and counted.",
	},
	{
		path: "dns.query_log.sample", kind: kindInt, def: "100", min: 1, max: 1_000_000_000,
		doc: "One query in so many is logged, at random.",
	},
}
