// Command loss puts one load on servers that reload several times meanwhile, and
// says in a table what the load came to notice of it.
//
// Method: one server at a time, over loopback, in a network namespace of its own
// where that can be made. Flows come and go: each sends at a steady rate for
// longer than the time between two reloads, so every one lives through a reload
// at least. Beside them there are DNS queries. Every request has to be answered
// once; one that has no answer a second after the end is lost.
//
//	dnsapp           serves both itself; a flow has moved if another process
//	                 answers than before
//	mode: restart    dnsapp reloaded the plain way, as a control: what this
//	                 program counts must show here
//	nginx            is a stream proxy for UDP, before a program that says from
//	                 which port it was asked (a flow has moved if that changes) and
//	                 a dnsapp that is not reloaded
//	CoreDNS          serves DNS; it knows no flows
//
// Each reload takes up a change. A probe asks from a new socket every millisecond
// until it sees that, which is the time to the first answer.
//
// Each server is reloaded as its manual says, with what its manual recommends
// for UDP (nginx: reuseport, and time for old workers to finish).
package main
