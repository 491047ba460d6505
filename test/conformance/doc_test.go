// Package conformance judges the DNS service by cases that were written by
// others: recorded answers of other servers, their regression zones, and the
// examples of the RFCs.
//
// Invariant: every zone is compiled, and every question answered, by the path
// that production takes (zone.Compile, zone.Open, auth.Lane); nothing is
// special-cased for a data set but what its own comparison rule says.
//
// The data lies beside the project (../shared/data from its root) and is not
// part of it; a test that lacks it skips and says so.
package conformance
