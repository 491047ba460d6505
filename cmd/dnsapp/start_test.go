package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startAllocations is how often the packages of this program may allocate, together,
// before main. Workers are started while a reload waits for them, and each runs all of
// it.
const startAllocations = 700

// What only a supervisor needs is made when it is needed: not at the start of every
// process.
func TestStartIsCheap(t *testing.T) {
	cmd := exec.Command(os.Args[0], "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace bytes.Buffer
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	packages, total := 0, 0
	var list strings.Builder
	for s := bufio.NewScanner(&trace); s.Scan(); {
		var name string
		var at, took float64
		var size, allocations int
		if _, err := fmt.Sscanf(s.Text(), "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &took, &size, &allocations); err != nil {
			continue
		}
		packages++
		if strings.HasPrefix(name, "github.com/dnsapp/dnsapp/") {
			total += allocations
			fmt.Fprintf(&list, "%6d %s\n", allocations, name)
		}
	}
	if packages < 10 {
		t.Fatalf("%d packages in the trace", packages)
	}
	t.Logf("\n%s%6d", list.String(), total)
	if total > startAllocations {
		t.Errorf("%d allocations before main, at most %d were to be", total, startAllocations)
	}
}
