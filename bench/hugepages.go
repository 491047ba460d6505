package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// takeHugepages sees to it that so many hugepages of 2 MB are free, and mounts a
// hugetlbfs at dir. giveBack undoes both.
func takeHugepages(dir string, pages int) (giveBack func(), err error) {
	const knob = "/proc/sys/vm/nr_hugepages"
	fail := func(err error) (func(), error) { return nil, fmt.Errorf("taking %d hugepages: %w", pages, err) }
	text, err := os.ReadFile(knob)
	if err != nil {
		return fail(err)
	}
	had, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	set := func(n int) error { return os.WriteFile(knob, []byte(strconv.Itoa(n)), 0o644) }
	if err := set(had + pages); err != nil {
		return fail(err)
	}
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		return fail(errors.Join(err, set(had)))
	}
	return func() {
		if err := errors.Join(unix.Unmount(dir, 0), set(had)); err != nil {
			fmt.Fprintln(os.Stderr, "bench: giving hugepages back:", err)
		}
	}, nil
}
