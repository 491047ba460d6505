// Package tcpproxy is where TCP will be proxied, with its flow table and its
// backends. It holds nothing yet. Its seams are server/stream, whose Handler is
// given each accepted connection and which drains, and package table, which does
// not ask what protocol a flow is of.
package tcpproxy
