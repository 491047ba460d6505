package primary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The files of a primary, in the folder of the control socket.
const (
	lockName   = "primary.lock"
	stateName  = "primary.json"
	socketName = "primary.sock"
)

// Identity names a process for good: a pid alone is used again.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot (proc(5), stat field 22)
	Comm  string `json:"comm"`
}

// identify returns who has a pid; its error matches fs.ErrNotExist where nobody has,
// and for a process that has ended and was not waited for.
func identify(pid int) (Identity, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Identity{}, err
	}
	// The name is in parentheses and may have some of its own.
	begin, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if begin < 0 || end < begin {
		return Identity{}, fmt.Errorf("/proc/%d/stat is %q", pid, b)
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return Identity{}, fmt.Errorf("/proc/%d/stat is %q", pid, b)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return Identity{}, fs.ErrNotExist
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return Identity{}, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return Identity{PID: pid, Start: start, Comm: string(b[begin+1 : end])}, nil
}

// Alive reports whether the process lives.
func (i Identity) Alive() bool {
	now, err := identify(i.PID)
	return err == nil && now == i
}

// State is what a primary writes down when it is ready.
type State struct {
	Identity
	Prefix string `json:"prefix"` // of its EAL memory
	Spec   Spec   `json:"spec"`
}

// ReadState reads the state of the primary whose control folder is dir. The error
// matches fs.ErrNotExist where there was none.
func ReadState(dir string) (*State, error) {
	path := filepath.Join(dir, stateName)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the state of the primary: %w", err)
	}
	var s State
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("reading the state of the primary: %s: %w; remove it if no dnsapp primary runs", path, err)
	}
	return &s, nil
}

// write replaces the state in dir, at once.
func (s *State) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the state of the primary: %w", err)
	}
	path := filepath.Join(dir, stateName)
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the state of the primary: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing the state of the primary: %w", err)
	}
	return nil
}

// removeState removes what an ended primary leaves, except for the lock.
func removeState(dir string) error {
	var all error
	for _, name := range []string{stateName, socketName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}
