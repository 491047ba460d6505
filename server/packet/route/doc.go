// Package route says where a packet goes next and how large it may be: on-link
// prefixes, gateways and the path MTUs that were reported.
//
// Invariant: a Table's gateways are all on a link of it, so a lookup never leads
// to an address that needs another lookup.
package route
