// Package fdstore is the descriptors that a service manager keeps for a process, in
// what systemd calls its file descriptor store, and hands to the next one.
//
// Invariant: a descriptor is taken once, by the process that it was meant for, and
// nothing that this process starts inherits it, or the word of it. What comes is
// input: whoever uses a descriptor checks what it is.
//
// A descriptor has a name. The manager hands the next process what it has, numbered
// from 3, with the names in the environment (sd_listen_fds(3)):
//
//	LISTEN_PID=4711 LISTEN_FDS=2 LISTEN_FDNAMES=directory:udp/0/127.0.0.1/53
//
// It is told what to keep by datagrams (sd_notify(3)), which Keep and Drop have the
// texts of.
package fdstore

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// firstFD is the number of the first descriptor.
const firstFD = 3

// File is a descriptor that was kept.
type File struct {
	Name string // "unknown" if the manager has told none
	FD   int    // close-on-exec
}

// The variables that tell what was kept.
const (
	variablePID   = "LISTEN_PID"
	variableCount = "LISTEN_FDS"
	variableNames = "LISTEN_FDNAMES"
)

// Take returns the descriptors that were kept for this process, which become the
// caller's, and takes the word of them out of the environment. None is no error.
func Take() ([]File, error) {
	pid, count, names := os.Getenv(variablePID), os.Getenv(variableCount), os.Getenv(variableNames)
	for _, v := range []string{variablePID, "LISTEN_PIDFDID", variableCount, variableNames} {
		if err := os.Unsetenv(v); err != nil {
			return nil, fmt.Errorf("clearing %s: %w", v, err)
		}
	}
	if pid != strconv.Itoa(os.Getpid()) { // for somebody else, or for nobody
		return nil, nil
	}
	return files(count, names, firstFD)
}

// files names the descriptors from first on.
func files(count, names string, first int) ([]File, error) {
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is no number of descriptors", variableCount, count)
	}
	list := make([]File, n)
	named := strings.Split(names, ":")
	for i := range list {
		list[i] = File{Name: "unknown", FD: first + i}
		if i < len(named) && named[i] != "" {
			list[i].Name = named[i]
		}
		unix.CloseOnExec(list[i].FD)
	}
	return list, nil
}

// MaxName is how many octets a name may have, all of them printable ASCII without
// a colon.
const MaxName = 255

// Keep is the datagram to go with a descriptor that is to be kept. The manager is not
// to watch it: it would drop a socket that has an error to tell.
func Keep(name string) string { return "FDSTORE=1\nFDPOLL=0\nFDNAME=" + name }

// Drop is the datagram that has the manager close what it keeps by that name.
func Drop(name string) string { return "FDSTOREREMOVE=1\nFDNAME=" + name }
