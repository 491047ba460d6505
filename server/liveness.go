package server

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc: USER_HZ, 100 on every architecture
// that Go runs on.
const clockTick = time.Second / 100

// threadStat returns the state letter and the CPU time in a stat file of /proc.
func threadStat(path string) (state byte, cpu time.Duration) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	// The command name, in parentheses, may hold spaces: count from its end.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 13 {
		return 0, 0
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return f[0][0], 0
	}
	return f[0][0], time.Duration(user+system) * clockTick
}

// cpuTime returns the CPU time that the process has used, over all threads; 0
// if it is gone.
func cpuTime(pid int) time.Duration {
	_, cpu := threadStat("/proc/" + strconv.Itoa(pid) + "/stat")
	return cpu
}

// looks is how often a process is looked at before it counts as asleep: one look
// takes its threads one after the other, and what runs may move from a thread that
// is looked at later to one that was looked at before.
const looks = 3

// stalled reports whether a process that owes an answer since it had used cpu
// will not give it: it is stopped, it sleeps although it was woken, or it has
// run for that long since. One that is runnable and gets no CPU is starved, and
// not stalled.
func stalled(pid int, cpu, limit time.Duration) bool {
	if cpuTime(pid)-cpu >= limit {
		return true
	}
	for range looks {
		if runnable(pid) {
			return false
		}
	}
	return true
}

// runnable reports whether a thread of the process was seen to run, to want to
// run, or to wait for the kernel.
func runnable(pid int) bool {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	if err != nil {
		return true
	}
	for _, t := range threads {
		switch state, _ := threadStat(t); state {
		case 'R', 'D':
			return true
		}
	}
	return false
}
