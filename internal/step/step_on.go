//go:build explore

package step

// Enabled reports whether marked accesses are seen.
const Enabled = true

// Hook, if not nil, is called before every marked access with the address of what is
// accessed. It is set only while no other goroutine runs marked code.
var Hook func(address any, write bool)

// Read marks that the caller is about to load what p points to.
func Read[T any](p *T) { mark(p, false) }

// Write marks that the caller is about to store to what p points to, or to compare
// and swap it.
func Write[T any](p *T) { mark(p, true) }

func mark(address any, write bool) {
	if h := Hook; h != nil {
		h(address, write)
	}
}
