// Command summary reads the output of one or more `go test -json` runs from
// standard input, prints what a person wants to see of it (failures in full,
// skips with their reason, one line a package) and closes with one line:
//
//	total: 1203 passed, 0 failed, 2 skipped
//
// It exits 1 when anything failed, and when nothing was run.
package main

import (
	"fmt"
	"os"
)

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(1)
	}
	if !s.close() {
		os.Exit(1)
	}
}
