package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/dnsapp/dnsapp/server/control"
)

// explainTCP finds the process that holds a connection: a TCP connection stays
// with the worker that accepted it, so the kernel knows.
func (s *Supervisor) explainTCP(ctx context.Context, q control.FlowQuery) (*control.FlowAnswer, error) {
	served := make(map[netip.AddrPort]*socket)
	holders := make(map[int]func(*control.Flow)) // by pid
	a := &control.FlowAnswer{Transport: q.Transport, Remote: q.Remote}
	if err := s.ask(ctx, func() {
		for _, k := range s.sockets.byID {
			if k.tcp {
				served[k.address] = k
			}
		}
		for _, g := range s.gens {
			if g == nil {
				continue
			}
			for i, p := range g.workers {
				if p.proc == nil {
					continue
				}
				owner := s.owner(g, i)
				holders[p.proc.PID] = func(f *control.Flow) { f.Owner = owner }
			}
		}
	}); err != nil {
		return nil, err
	}
	conns, err := connections(q)
	if err != nil {
		return nil, err
	}
	for _, c := range conns {
		k := listenerSocket(served, c.local)
		if k == nil {
			continue
		}
		f := control.Flow{Local: c.local, State: c.state}
		if err := s.ask(ctx, func() { s.describeTCP(&f, k) }); err != nil {
			return nil, err
		}
		f.Verdict = unowned(c)
		for pid, own := range holders {
			has, err := holds(pid, c.inode)
			if errors.Is(err, fs.ErrPermission) {
				f.Verdict = "not known: to see what its workers hold, dnsapp needs CAP_SYS_PTRACE"
				continue
			}
			if has {
				own(&f)
				f.Verdict = fmt.Sprintf("served by worker %d of epoch %d, to its end", f.Owner.Worker, f.Owner.Epoch)
				break
			}
		}
		a.Flows = append(a.Flows, f)
	}
	if len(a.Flows) == 0 {
		return nil, control.Refuse("there is no TCP connection from %v to a listener of this dnsapp", q.Remote)
	}
	return a, nil
}

// unowned says what is the matter with a connection that no worker holds.
func unowned(c connection) string {
	switch {
	case c.inode != "0":
		return "no worker holds it any more"
	case c.state == "SYN_RECV" || c.state == "NEW_SYN_RECV":
		return "in its handshake"
	case c.state == "TIME_WAIT":
		return "over: the kernel keeps it for late packets"
	}
	return "in the accept queue: no worker has taken it yet"
}

// describeTCP fills in the listener of a socket. Within the loop.
func (s *Supervisor) describeTCP(f *control.Flow, k *socket) {
	g := s.readerOf(k)
	if g == nil {
		return
	}
	l := listenerOf(g, k)
	f.Reader, f.Listener, f.Service, f.Affinity = g.Epoch, l.Name, string(l.Service), string(l.Affinity)
}

// listenerSocket returns the socket that takes connections to local.
func listenerSocket(served map[netip.AddrPort]*socket, local netip.AddrPort) *socket {
	if k := served[local]; k != nil {
		return k
	}
	all := netip.IPv4Unspecified()
	if local.Addr().Is6() {
		all = netip.IPv6Unspecified()
	}
	return served[netip.AddrPortFrom(all, local.Port())]
}

// connection is a TCP connection as the kernel lists it.
type connection struct {
	local netip.AddrPort
	state string
	inode string // of its socket; "0": it has none, as nobody has accepted it
}

// tcpStates are the names of the states in /proc/net/tcp.
var tcpStates = map[string]string{
	"01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT",
	"07": "CLOSE", "08": "CLOSE_WAIT", "09": "LAST_ACK", "0B": "CLOSING", "0C": "NEW_SYN_RECV",
}

// connections returns the connections from q.Remote, to q.Local if that is
// given, in the network namespace of this process.
func connections(q control.FlowQuery) ([]connection, error) {
	name := "/proc/net/tcp6"
	if q.Remote.Addr().Unmap().Is4() {
		name = "/proc/net/tcp"
	}
	f, err := os.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			return nil, nil
		}
		return nil, fmt.Errorf("listing TCP connections: %w", err)
	}
	defer f.Close()
	remote := netip.AddrPortFrom(q.Remote.Addr().Unmap().WithZone(""), q.Remote.Port())
	var found []connection
	in := bufio.NewScanner(f)
	for in.Scan() {
		// sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode
		fields := strings.Fields(in.Text())
		if len(fields) < 10 || tcpStates[fields[3]] == "" {
			continue
		}
		r, ok1 := parseProcAddress(fields[2])
		l, ok2 := parseProcAddress(fields[1])
		if !ok1 || !ok2 || r != remote || q.Local.IsValid() && l != q.Local {
			continue
		}
		found = append(found, connection{local: l, state: tcpStates[fields[3]], inode: fields[9]})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("listing TCP connections: %w", err)
	}
	return found, nil
}

// holds reports whether the process has the socket with this inode open. The
// error of a process that is gone is no more than that.
func holds(pid int, inode string) (bool, error) {
	if inode == "0" { // of all that have none
		return false, nil
	}
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		// One may have been closed meanwhile.
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && to == "socket:["+inode+"]" {
			return true, nil
		}
	}
	return false, nil
}
