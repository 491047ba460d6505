package server

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// holderOf names the process that has the address bound, such as
// "nsd (pid 4711)", as far as /proc shows it; else it returns "". An orphan is a
// worker whose supervisor has died.
func holderOf(k socketKey) (name string, orphan bool) {
	inodes := foreign(k)
	if len(inodes) == 0 {
		return "", false
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return "", false
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && inodes[to] {
			pid := strings.Split(l, "/")[2]
			comm := commOf(pid)
			if comm == "" {
				return "pid " + pid, false
			}
			return fmt.Sprintf("%s (pid %s)", comm, pid), comm == workerComm && orphaned(pid)
		}
	}
	return "", false
}

// tcpListen is the state of a listener in /proc/net/tcp.
const tcpListen = "0A"

// foreign returns the sockets that are bound to the address of k, or to one that
// overlaps it, and that this process does not have.
func foreign(k socketKey) map[string]bool {
	inodes := make(map[string]bool)
	for _, suffix := range []string{"", "6"} {
		f, err := os.Open("/proc/net/" + k.network() + suffix)
		if err != nil {
			continue
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			// sl local_address rem_address st ... inode
			fields := strings.Fields(in.Text())
			if len(fields) < 10 || k.tcp && fields[3] != tcpListen {
				continue
			}
			if ap, ok := parseProcAddress(fields[1]); ok && ap.Port() == k.address.Port() &&
				(ap.Addr() == k.address.Addr() || ap.Addr().IsUnspecified() || k.address.Addr().IsUnspecified()) {
				inodes["socket:["+fields[9]+"]"] = true
			}
		}
		f.Close()
	}
	if len(inodes) == 0 {
		return nil
	}
	own, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return inodes
	}
	for _, l := range own {
		if to, err := os.Readlink(l); err == nil {
			delete(inodes, to)
		}
	}
	return inodes
}

// workerComm is the name that workers have in /proc.
const workerComm = "dnsapp-worker"

// orphaned reports whether the parent of a worker is not its supervisor, which runs
// the same image. Where that cannot be seen, only that of init is taken for another.
func orphaned(pid string) bool {
	own, err := os.Readlink("/proc/" + pid + "/exe")
	if err != nil {
		return false
	}
	ppid := parentOf(pid)
	parent, err := os.Readlink("/proc/" + ppid + "/exe")
	if err != nil {
		return ppid == "1"
	}
	return parent != own
}

// commOf returns the name of a process, "" if it is gone.
func commOf(pid string) string {
	comm, err := os.ReadFile("/proc/" + pid + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(comm), "\n")
}

// parentOf returns the parent of a process, "" if it is gone.
func parentOf(pid string) string {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if parent, found := strings.CutPrefix(line, "PPid:"); found {
			return strings.TrimSpace(parent)
		}
	}
	return ""
}

// parseProcAddress reads "0100007F:0035": each 32-bit word of the address is in
// host order, which is little endian on every machine we build for.
func parseProcAddress(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, false
	}
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(addr, uint16(p)), true
}
