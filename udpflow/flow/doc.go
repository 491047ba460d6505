// Package flow names a flow, and hashes its name.
//
// Invariant: the same flow under the same secret has the same hash in every
// process, binary and generation, and no hash is 0. So one hash per packet
// serves the lookups in the tables of all generations, and 0 can mean "never
// used" there.
//
// The hash is keyed because it stands for the flow in the tables: whoever could
// compute it could aim packets at one probe window, or at another flow's entry.
package flow
