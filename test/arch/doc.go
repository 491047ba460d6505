// Package arch checks the shape of the source tree: who may import whom, and
// what no file may have.
//
// Invariant: a rule that is written in the design and can be seen in the source
// is a rule of this package, and each has a sample under testdata that breaks
// it. There is no list of exceptions: what must break a rule changes the rule.
//
//	cmd -> supervisor -> worker -> service -> mechanism
//	          |  |         |  |                ^   ^
//	          |  +-> part  |  +-> backend -----+   |
//	          +--------------+--> config ----------+
//
// Files are parsed and not built, so that every build tag is seen.
package arch
