package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// kind is what a family is, as Prometheus names it.
type kind string

const (
	counterKind   kind = "counter"
	gaugeKind     kind = "gauge"
	histogramKind kind = "histogram"
)

// family is one metric with all its label values.
type family struct {
	name   string
	kind   kind
	help   string
	labels []string
	desc   func() *prometheus.Desc
}

func newFamily(k kind, name, help string, labels ...string) *family {
	name = "dnsapp_" + name
	// When it is first asked for: every process has these variables, and only a
	// supervisor needs them.
	desc := sync.OnceValue(func() *prometheus.Desc { return prometheus.NewDesc(name, help, labels, nil) })
	return &family{name: name, kind: k, help: help, labels: labels, desc: desc}
}

// The packets. Of the wire: received = served + sibling + forwarded + dropped
// + in hand. Of the rings: taken = served + dropped.
var (
	received     = newFamily(counterKind, "datagrams_received_total", "Datagrams read from the wire.")
	served       = newFamily(counterKind, "datagrams_served_total", "Datagrams given to the service by the worker that read them.")
	sibling      = newFamily(counterKind, "datagrams_sibling_total", "Datagrams handed to another worker of the generation, which serves their flow.")
	forwarded    = newFamily(counterKind, "datagrams_forwarded_total", "Datagrams handed to a draining generation, which serves their flow.")
	dropped      = newFamily(counterKind, "datagrams_dropped_total", "Datagrams without an answer, by reason, and whether they were read from the wire or taken from a ring.", "reason", "path")
	inHand       = newFamily(gaugeKind, "datagrams_in_hand", "Datagrams read and not accounted for yet. What stays was in the hands of a worker that was killed.")
	kernelDrops  = newFamily(counterKind, "datagrams_kernel_dropped_total", "Datagrams lost in socket buffers before a worker could read them: the buffer was full, or all workers that had the socket were dead.")
	ringTaken    = newFamily(counterKind, "ring_datagrams_taken_total", "Datagrams taken from rings: of a sibling, forwarded by a newer generation, or taken back from a worker that had died.", "from")
	ringServed   = newFamily(counterKind, "ring_datagrams_served_total", "Datagrams taken from rings and given to the service.")
	sent         = newFamily(counterKind, "datagrams_sent_total", "Answers that the kernel took for sending.")
	receivedSize = newFamily(counterKind, "received_bytes_total", "UDP payload read from the wire.")
	sentSize     = newFamily(counterKind, "sent_bytes_total", "UDP payload sent.")
	bursts       = newFamily(counterKind, "receive_bursts_total", "Receive calls that returned at least one datagram.")
	notRecorded  = newFamily(counterKind, "flows_not_recorded_total", "Datagrams served without an entry in the flow table, because it was full where they belong. A reload may move their flows.")
)

// The streams.
var (
	tcpAccepted     = newFamily(counterKind, "tcp_connections_accepted_total", "TCP connections accepted.")
	tcpClosed       = newFamily(counterKind, "tcp_connections_closed_total", "TCP connections ended, by either side.")
	tcpAcceptFailed = newFamily(counterKind, "tcp_accept_failures_total", "Attempts to accept a TCP connection that failed for want of descriptors or memory. The connection waits in its queue.")
	tcpQueries      = newFamily(counterKind, "tcp_messages_received_total", "Messages (DNS) and lines (identify) read from TCP connections.")
	tcpAnswers      = newFamily(counterKind, "tcp_messages_answered_total", "Answers written to TCP connections.")
	tcpDropped      = newFamily(counterKind, "tcp_messages_dropped_total", "Messages on TCP connections without an answer, by reason.", "reason")
)

// DNS.
var (
	queries       = newFamily(counterKind, "dns_queries_total", "DNS queries answered. Only what is not zero is exported; types and rcodes without a name of their own are \"other\".", "transport", "type", "rcode")
	latency       = newFamily(histogramKind, "request_duration_seconds", "Time from the reception of a request until its answer was given to the kernel. Only what is not empty is exported; the rcode of a service that has none is \"none\".", "transport", "rcode")
	zones         = newFamily(gaugeKind, "zones", "Zones that are served.")
	zoneSize      = newFamily(gaugeKind, "zone_records", "Records in all zones that are served.")
	zoneQueries   = newFamily(counterKind, "zone_queries_total", "Queries answered from a zone, by transport. Only what is not zero is exported; all zones but the first thousand share the name \"other\".", "zone", "transport")
	zoneNX        = newFamily(counterKind, "zone_nxdomain_total", "Queries answered from a zone with NXDOMAIN.", "zone")
	zoneTruncated = newFamily(counterKind, "zone_truncated_total", "Queries answered from a zone with an answer that was cut short (TC=1).", "zone")
	logged        = newFamily(counterKind, "dns_query_log_records_total", "Queries written to the query log.")
	notLogged     = newFamily(counterKind, "dns_query_log_dropped_total", "Queries that were to be logged and were not, because their file did not take them in time.")
	staleZones    = newFamily(gaugeKind, "zones_stale", "Zones of which an older version is served, because the newest file could not be loaded.")
)

// The UDP proxy. Of the servers: out = sent to them; in = answers + late + unsent.
var (
	proxyFlows    = newFamily(counterKind, "proxy_flows_total", "Flows that UDP proxies began.")
	proxyEnded    = newFamily(counterKind, "proxy_flows_ended_total", "Flows of UDP proxies that have ended. Those of a worker that was killed are missing.")
	proxyOut      = newFamily(counterKind, "proxy_datagrams_out_total", "Datagrams of clients that the kernel took towards servers.")
	proxyIn       = newFamily(counterKind, "proxy_datagrams_in_total", "Datagrams read from servers.")
	proxyLate     = newFamily(counterKind, "proxy_datagrams_late_total", "Datagrams read from servers after their flow had ended. They reach nobody.")
	proxyUnsent   = newFamily(counterKind, "proxy_datagrams_unsent_total", "Datagrams read from servers that the kernel did not take towards their clients.")
	proxyHandoffs = newFamily(counterKind, "proxy_handoffs_total", "Datagrams handed to another lane of the worker, which has their flow, by whether that could pass them on.", "outcome")
	proxyErrors   = newFamily(counterKind, "proxy_server_errors_total", "ICMP errors of servers.")
	serverFlows   = newFamily(gaugeKind, "server_flows", "Flows that a server of a backend has, in all generations.", "backend", "server")
	serverUp      = newFamily(gaugeKind, "server_up", "1 if a server gets new flows: enabled, with a weight, up and not out; else 0.", "backend", "server")
	serverBegun   = newFamily(counterKind, "server_flows_total", "Flows that began at a server. It starts again when its name or address changes, as all that is counted by server.", "backend", "server")
	serverFailed  = newFamily(counterKind, "server_failures_total", "Failures at a server: refused (ICMP), or silent (flows without one of the answers that were expected).", "backend", "server", "kind")
)

// Generations and workers.
var (
	epoch        = newFamily(gaugeKind, "generation_epoch", "Epoch of the generation that reads the wire.")
	generations  = newFamily(gaugeKind, "generations", "Live generations by state.", "state")
	workers      = newFamily(gaugeKind, "workers", "Workers that the generation that reads the wire should have.")
	workersReady = newFamily(gaugeKind, "workers_ready", "Workers of the generation that reads the wire that are ready to serve.")
	restarts     = newFamily(counterKind, "worker_restarts_total", "Workers started again after they had died.")
	fences       = newFamily(counterKind, "workers_fenced_total", "Workers killed because they did not answer while traffic, or a hand-over, waited for them.")
	resident     = newFamily(gaugeKind, "worker_resident_memory_bytes", "Memory of a worker, with what it shares with others; by the slot of its generation, 0 to 3, and its index.", "slot", "worker")
	openFDs      = newFamily(gaugeKind, "worker_open_fds", "Open descriptors of a worker.", "slot", "worker")
	maxFDs       = newFamily(gaugeKind, "worker_max_fds", "Descriptors that a worker may have.", "slot", "worker")
	flows        = newFamily(gaugeKind, "flows", "UDP flows alive, by the state of their generation. Absent where it is not known.", "state")
	flowSlots    = newFamily(gaugeKind, "flow_table_slots", "Slots of the flow tables, by the state of their generation.", "state")
	ringFill     = newFamily(gaugeKind, "ring_fill_ratio", "How full the fullest ring between workers is at this moment, from 0 to 1.")
	connections  = newFamily(gaugeKind, "tcp_connections", "Open TCP connections, by the state of their generation. Absent where it is not known.", "state")
)

// Reloads.
var (
	step           = newFamily(gaugeKind, "reload_step", "1 for the step that the reload machine is in, 0 for the others.", "step")
	reloads        = newFamily(counterKind, "reloads_total", "Finished reloads by outcome.", "outcome")
	refused        = newFamily(counterKind, "reloads_refused_total", "Refused reloads by reason.", "reason")
	lapses         = newFamily(counterKind, "reload_parks_lapsed_total", "Parks whose lease was over before the wire changed hands. They are tried again, so nothing is lost.")
	drainLeft      = newFamily(gaugeKind, "drain_deadline_seconds", "Time until the generation that may drain for longest hands over what it has left. Absent while none drains.")
	reloadOK       = newFamily(gaugeKind, "reload_successful", "Whether the last reload succeeded. Absent before the first, as all that is about the last one.")
	reloadBegan    = newFamily(gaugeKind, "reload_start_time_seconds", "When the last reload began, since the Unix epoch.")
	reloadDuration = newFamily(gaugeKind, "reload_duration_seconds", "How long the last reload took, its drain included.")
	stepDuration   = newFamily(gaugeKind, "reload_step_duration_seconds", "How long the steps of the last reload took.", "step")
	reloadGap      = newFamily(gaugeKind, "reload_gap_seconds", "Time without a reader in the last reload: last lane parked to first read of the new generation.")
	reloadHanded   = newFamily(gaugeKind, "reload_handed_flows", "Flows that were still alive at the deadline of the last reload and moved to the new generation.")
)

// The process.
var (
	build      = newFamily(gaugeKind, "build_info", "Always 1; the labels say what runs.", "version", "revision", "goversion")
	started    = newFamily(gaugeKind, "start_time_seconds", "When the supervisor started, since the Unix epoch.")
	standby    = newFamily(gaugeKind, "upgrade_standby", "1 while the supervisor before this one stands by, after an upgrade that has not been finished; else 0.")
	configTime = newFamily(gaugeKind, "config_load_time_seconds", "When the configuration that runs was loaded, since the Unix epoch: at the last reload that succeeded, or at the start.")
	configHash = newFamily(gaugeKind, "config_hash", "A hash of the configuration that runs, but for its name and the content of its zones: the same number on two hosts is the same configuration.")
)

// section is a part of families under a heading of docs/metrics.md.
type section struct {
	title    string
	families []*family
}

// sections lists every family, in the order of the document.
var sections = []section{
	{"Packets", []*family{
		received, served, sibling, forwarded, dropped, inHand, kernelDrops, ringTaken, ringServed,
		sent, receivedSize, sentSize, bursts, notRecorded,
	}},
	{"TCP", []*family{tcpAccepted, tcpClosed, tcpAcceptFailed, connections, tcpQueries, tcpAnswers, tcpDropped}},
	{"DNS", []*family{queries, latency, zones, zoneSize, staleZones, zoneQueries, zoneNX, zoneTruncated, logged, notLogged}},
	{"UDP proxy", []*family{
		proxyFlows, proxyEnded, proxyOut, proxyIn, proxyLate, proxyUnsent, proxyHandoffs, proxyErrors,
		serverFlows, serverUp, serverBegun, serverFailed,
	}},
	{"Generations and workers", []*family{epoch, generations, workers, workersReady, restarts, fences, flows, flowSlots, ringFill, resident, openFDs, maxFDs}},
	{"Reloads", []*family{
		step, reloads, refused, lapses, drainLeft, reloadOK, reloadBegan, reloadDuration, stepDuration, reloadGap, reloadHanded,
	}},
	{"Process", []*family{build, started, standby, configTime, configHash}},
}
