//go:build explore

package step

import "sync/atomic"

// Hook, if not nil, is called before every marked access with the address of
// what is accessed. It is set only while no other goroutine runs marked code.
var Hook func(address any, write bool)

func mark(address any, write bool) {
	if h := Hook; h != nil {
		h(address, write)
	}
}

// Read marks that the caller is about to load w.
func Read(w *atomic.Uint64) { mark(w, false) }

// Write marks that the caller is about to store to w or to compare and swap it.
func Write(w *atomic.Uint64) { mark(w, true) }

// ReadData marks that the caller is about to read plain memory at b.
func ReadData(b *byte) { mark(b, false) }

// WriteData marks that the caller is about to write plain memory at b.
func WriteData(b *byte) { mark(b, true) }
