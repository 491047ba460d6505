// Package control is how an operator talks to the supervisor: HTTP and JSON
// over a unix socket, the types of both sides, the server and the client.
//
// Invariant: only root and the supervisor's own user get an answer other than
// 403, however the socket's mode is changed later (SO_PEERCRED); and a client
// never delays what it watches: a reader that is slow, stopped or gone costs it
// events, not the reload a millisecond.
//
//	GET  /v1/version              Version
//	GET  /v1/status               Status
//	GET  /v1/zones                []ZoneStatus
//	GET  /v1/zone?name=NAME       ZoneDetail
//	POST /v1/zones/reload ZoneReloadRequest   stream of Line, one JSON value a line
//	GET  /v1/traffic              Traffic
//	GET  /v1/flow                 FlowAnswer; ?transport=udp&remote=ADDR:PORT[&local=ADDR:PORT]
//	GET  /v1/plan                 Plan
//	POST /v1/reload ReloadRequest stream of Line, one JSON value a line
//	POST /v1/stop   StopRequest   stream of Line, one JSON value a line
//	POST /v1/abort  {}            Aborted
//	POST /v1/drain  DrainRequest  stream of Line, one JSON value a line
//	GET  /v1/events?last=N        stream of Line, one JSON value a line
//	POST /v1/trace  TraceRequest  a pcapng file, and how it ended in the trailer Dnsapp-Trace
//	POST /v1/trace/end {}         {}; ends the trace
//
// Every answer other than 200 has an Error as its body. A stream begins with
// 200 as soon as the request is understood, so what goes wrong later is in its
// last line, the only one with done: true. A client that hangs up after that
// (Ctrl-C of dnsappctl) stops watching and nothing else: the reload or stop goes
// on. What a client gave up before that is not begun, however late it is read.
//
//	curl --unix-socket /run/dnsapp/control.sock http://dnsapp/v1/status
//	curl --unix-socket /run/dnsapp/control.sock -N -d '{}' http://dnsapp/v1/reload
//
// A new field may appear in any answer at any time; a field that is there keeps
// its name, type and unit. Durations are numbers of milliseconds with up to
// three decimals, in fields that end in _ms; instants are RFC 3339.
//
// The directory of the socket belongs to one supervisor, which holds an flock
// on LockName in it for as long as it lives.
package control
