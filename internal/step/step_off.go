//go:build !explore

package step

// Enabled reports whether marked accesses are seen.
const Enabled = false

// Read marks that the caller is about to load what p points to.
func Read[T any](p *T) {}

// Write marks that the caller is about to store to what p points to, or to compare
// and swap it.
func Write[T any](p *T) {}
