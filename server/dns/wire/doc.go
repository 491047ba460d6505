// Package wire reads and writes DNS messages in place, over byte slices.
//
// Invariant: nothing here allocates, and nothing reads or writes outside the
// slice it was given, whatever that slice holds.
//
//	 0  ID
//	 2  QR Opcode AA TC RD RA Z AD CD RCODE    -> Header
//	 4  QDCOUNT ANCOUNT NSCOUNT ARCOUNT
//	12  QNAME QTYPE QCLASS                     -> Query.Parse
//	    ... records, among them OPT            -> Query.EDNS
//
// A request is parsed once, by Query.Parse, which lower-cases QNAME into a Name
// and hashes every suffix of it on the way: zone and node lookups need no second
// pass. Field names are those of RFC 1035, RFC 6891 and RFC 9499.
package wire
