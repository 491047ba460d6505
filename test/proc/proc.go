package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is USER_HZ, the unit of times in /proc/PID/stat: 100 a second on
// every architecture that Go runs on.
const clockTick = time.Second / 100

// read reads a file of a process. That the process has ended is reported as
// fs.ErrNotExist also where the kernel says ESRCH.
func read(pid int, name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s of process %d: %w", name, pid, err)
	}
	return b, nil
}

// Stat is a part of /proc/PID/stat.
type Stat struct {
	PID     int
	Comm    string
	State   byte // R running, S sleeping, T stopped, Z zombie ...
	PPID    int
	Session int
	CPU     time.Duration // user and system time of all its threads, to 10 ms
}

// ReadStat returns the state of a process.
func ReadStat(pid int) (Stat, error) {
	b, err := read(pid, "stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(b)
}

func parseStat(b []byte) (Stat, error) {
	// The command is in parentheses and may hold anything, parentheses too.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("parsing stat %q: no command", b)
	}
	s := Stat{Comm: string(b[open+1 : end])}
	f := strings.Fields(string(b[end+1:]))
	const state, ppid, session, utime, stime = 0, 1, 3, 11, 12 // after the command
	if len(f) <= stime || len(f[state]) != 1 {
		return Stat{}, fmt.Errorf("parsing stat %q: %d fields", b, len(f))
	}
	s.State = f[state][0]
	var user, system int
	for _, n := range []struct {
		to   *int
		text string
	}{
		{&s.PID, strings.TrimSpace(string(b[:open]))}, {&s.PPID, f[ppid]}, {&s.Session, f[session]},
		{&user, f[utime]}, {&system, f[stime]},
	} {
		var err error
		if *n.to, err = strconv.Atoi(n.text); err != nil {
			return Stat{}, fmt.Errorf("parsing stat %q: %w", b, err)
		}
	}
	s.CPU = time.Duration(user+system) * clockTick
	return s, nil
}

// CPU returns the CPU time of all threads of these processes, in nanoseconds'
// resolution, from the scheduler's own account. Time that a process spends in
// the receive path of its own loopback sends is in it.
func CPU(pids ...int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err != nil {
			return 0, fmt.Errorf("listing the threads of process %d: %w", pid, err)
		}
		for _, task := range tasks {
			b, err := read(pid, filepath.Join("task", task.Name(), "schedstat"))
			if errors.Is(err, fs.ErrNotExist) {
				continue // a thread that has ended since
			}
			if err != nil {
				return 0, err
			}
			run, _, _ := strings.Cut(string(b), " ")
			ns, err := strconv.ParseInt(run, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parsing schedstat %q: %w", b, err)
			}
			sum += time.Duration(ns)
		}
	}
	return sum, nil
}

// PSS returns the proportional set size of a process in bytes: its private
// memory, and its share of what it has in common with others.
func PSS(pid int) (int64, error) {
	b, err := read(pid, "smaps_rollup")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, found := strings.CutPrefix(line, "Pss:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("parsing smaps_rollup %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("parsing smaps_rollup of process %d: no Pss", pid)
}

// Status returns the lines of /proc/PID/status by name, such as "Uid" or
// "CapEff", without surrounding space.
func Status(pid int) (map[string]string, error) {
	b, err := read(pid, "status")
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		if name, value, found := strings.Cut(line, ":"); found {
			m[name] = strings.TrimSpace(value)
		}
	}
	return m, nil
}

// Of returns the processes that run the program file exe and are no zombies.
func Of(exe string) ([]Stat, error) {
	return list(func(s Stat) bool {
		target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(s.PID), "exe"))
		return err == nil && strings.TrimSuffix(target, " (deleted)") == exe
	})
}

// Tree returns root and all its descendants that are no zombies.
func Tree(root int) ([]Stat, error) {
	all, err := list(func(Stat) bool { return true })
	if err != nil {
		return nil, err
	}
	in := map[int]bool{root: true}
	var tree []Stat
	for grown := true; grown; { // parents may come after their children
		grown = false
		tree = tree[:0]
		for _, s := range all {
			if in[s.PPID] && !in[s.PID] {
				in[s.PID], grown = true, true
			}
			if in[s.PID] {
				tree = append(tree, s)
			}
		}
	}
	return tree, nil
}

func list(want func(Stat) bool) ([]Stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []Stat
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		s, err := ReadStat(pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended since
		}
		if err != nil {
			return nil, err
		}
		if s.State != 'Z' && want(s) {
			found = append(found, s)
		}
	}
	return found, nil
}
