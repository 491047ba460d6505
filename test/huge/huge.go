// Package huge takes hugepages for a test and gives them back.
//
// Invariant: after a test the host has as many hugepages as before it, and no mount
// of it.
package huge

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Pages returns the folder of a hugetlbfs mount for t, with this many free pages of
// 2 MB. It skips t where the machine has none.
func Pages(t *testing.T, wanted int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: hugepages and devices need root")
	}
	const knob = "/proc/sys/vm/nr_hugepages"
	free, have := meminfo(t, "HugePages_Free:"), meminfo(t, "HugePages_Total:")
	if free < wanted {
		if err := os.WriteFile(knob, []byte(strconv.Itoa(have-free+wanted)), 0o644); err != nil {
			t.Skipf("SKIPPED: %d hugepages are free, %d are needed: %v", free, wanted, err)
		}
		t.Cleanup(func() {
			if err := os.WriteFile(knob, []byte(strconv.Itoa(have)), 0o644); err != nil {
				t.Error(err)
			}
		})
		if now := meminfo(t, "HugePages_Free:"); now < wanted {
			t.Skipf("SKIPPED: the kernel gives %d hugepages, %d are needed", now, wanted)
		}
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		t.Skipf("SKIPPED: no hugetlbfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func meminfo(t *testing.T, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == name {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skipf("SKIPPED: the kernel has no %s", name)
	return 0
}
