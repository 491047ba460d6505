//go:build !explore

package step

import "sync/atomic"

// Read marks that the caller is about to load w.
func Read(*atomic.Uint64) {}

// Write marks that the caller is about to store to w or to compare and swap it.
func Write(*atomic.Uint64) {}

// ReadData marks that the caller is about to read plain memory at b.
func ReadData(*byte) {}

// WriteData marks that the caller is about to write plain memory at b.
func WriteData(*byte) {}
