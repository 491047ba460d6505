// Package header reads and writes the headers of frames: Ethernet with one
// 802.1Q tag, ARP, IPv4, IPv6, UDP, ICMP, ICMPv6 and neighbour discovery.
//
// Invariant: a view is made only of bytes that hold its fixed header, so no
// accessor can run past the end, and nothing here allocates or keeps a slice.
//
// A view is a named []byte with accessors called after the RFC's fields. Reading
// a header and judging it are two things: views hold whatever came, Parse
// functions say whether lengths and versions agree.
package header
