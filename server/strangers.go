package server

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// reapInterval is how often process 1 looks for strangers. What is its own is
// reaped by whoever has started it, long before it has been seen twice.
const reapInterval = 5 * time.Second

// reapStrangers reaps, as process 1 of a container, children that it has not
// started: the kernel gives it those of every process that ends.
func reapStrangers() {
	before := map[int]bool{}
	for range time.Tick(reapInterval) {
		dead := deadChildren()
		for pid := range dead {
			if before[pid] {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // or somebody else was first
				delete(dead, pid)
			}
		}
		before = dead
	}
}

// deadChildren returns the children of this process that have ended and have not
// been reaped.
func deadChildren() map[int]bool {
	dead := map[int]bool{}
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return dead
	}
	for _, e := range dir {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// PID (COMM) STATE PPID: the name may hold spaces, so from its end.
		f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(f) > 1 && f[0] == "Z" && f[1] == strconv.Itoa(pid()) {
			dead[n] = true
		}
	}
	return dead
}
