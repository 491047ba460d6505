// Package metrics shows the counters, and what the supervisor does, to
// Prometheus and to health checks.
//
// Invariant: an exported counter never goes backwards while the supervisor
// lives, over reloads, crashes and respawns. Every number is read from the
// Source when it is asked for; this package counts nothing itself.
//
//	GET /metrics   everything, in the Prometheus text format
//	GET /healthz   200 as long as the supervisor lives
//	GET /readyz    200 if a generation serves, else 503 and the reason
//
// The families are listed in families.go, and in docs/metrics.md, which a test
// keeps equal. client_golang is used here and nowhere else.
package metrics
