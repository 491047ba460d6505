package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/test/proc"
)

// target is where each server listens, one at a time.
var target = netip.MustParseAddrPort("127.0.0.1:5300")

// peer is one server: how to configure and to start it with one thread of
// service for example.com.zone of its folder.
type peer struct {
	name    string
	program string
	config  func(dir string) string
	args    func(config string) []string
	version func() string

	behind   bool // it is the server behind the proxies, on the generator's processor
	unpinned bool // it runs on all processors
}

func knot() peer {
	return peer{
		name:    "Knot DNS",
		program: "knotd",
		config: func(dir string) string {
			return fmt.Sprintf(`server:
    rundir: %[1]s
    user: root
    listen: %[2]s@%[3]d
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: %[1]s/knot
log:
  - target: stderr
    any: warning
zone:
  - domain: example.com
    storage: %[1]s
    file: example.com.zone
    zonefile-sync: -1
    zonefile-load: whole
    journal-content: none
`, dir, target.Addr(), target.Port())
		},
		args:    func(config string) []string { return []string{"-c", config} },
		version: func() string { return firstLine("knotd", "--version") },
	}
}

func nsd() peer {
	return peer{
		name:    "NSD",
		program: "/usr/sbin/nsd",
		config: func(dir string) string {
			return fmt.Sprintf(`server:
    server-count: 1
    ip-address: %[2]s@%[3]d
    username: root
    zonesdir: %[1]s
    pidfile: ""
    xfrdfile: %[1]s/xfrd.state
    zonelistfile: %[1]s/zone.list
    xfrdir: %[1]s
    logfile: %[1]s/nsd.log
    database: ""
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
remote-control:
    control-enable: no
zone:
    name: example.com
    zonefile: example.com.zone
`, dir, target.Addr(), target.Port())
		},
		args:    func(config string) []string { return []string{"-d", "-c", config} },
		version: func() string { return firstLine("/usr/sbin/nsd", "-v") },
	}
}

func dnsapp(program string) peer {
	return peer{
		name:    "dnsapp",
		program: program,
		config: func(dir string) string {
			return fmt.Sprintf(`control: %[1]s/dnsapp/control.sock
state_dir: %[1]s/dnsapp
admin: off
workers: 1
lanes: 1
zones:
  - {name: example.com, file: %[1]s/example.com.zone}
listeners:
  - {name: dns, address: ["%[2]v"], service: dns}
`, dir, target)
		},
		args:    func(config string) []string { return []string{"serve", "-c", config} },
		version: func() string { return firstLine(program, "version") },
	}
}

// firstLine returns the first line that a command prints, on either stream.
func firstLine(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	if line == "" && err != nil {
		return err.Error()
	}
	return line
}

// running is a server under measurement.
type running struct {
	cmd *exec.Cmd
	log string
}

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 10 * time.Second
)

// start is launch that waits until the server answers.
func start(p peer, dir string) (*running, error) {
	r, err := launch(p, dir)
	if err != nil {
		return nil, err
	}
	at := target
	if p.behind {
		at = behindTarget
	}
	if err := r.awaitAnswer(at); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// allCPUs is the list of all processors.
func allCPUs() string { return fmt.Sprintf("0-%d", processors()-1) }

// launch runs p on the server's processor, or on all.
func launch(p peer, dir string) (*running, error) {
	config := filepath.Join(dir, strings.ReplaceAll(p.name, " ", "-")+".conf")
	if err := os.WriteFile(config, []byte(p.config(dir)), 0o644); err != nil {
		return nil, err
	}
	for _, sub := range []string{"knot", "dnsapp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	r := &running{log: config + ".log"}
	log, err := os.Create(r.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := append([]string{"-c", strconv.Itoa(serverCPU), p.program}, p.args(config)...)
	if p.behind {
		args[1] = strconv.Itoa(generatorCPU)
	}
	if p.unpinned {
		args[1] = allCPUs()
	}
	r.cmd = exec.Command("taskset", args...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *running) awaitAnswer(at netip.AddrPort) error {
	c := dns.Client{Timeout: 100 * time.Millisecond}
	query := new(dns.Msg).SetQuestion("example.com.", dns.TypeSOA)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		answer, _, err := c.Exchange(query, at.String())
		if err == nil && answer.Rcode == dns.RcodeSuccess && len(answer.Answer) == 1 {
			return nil
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(r.log)
			return fmt.Errorf("it does not answer after %v: %w\n%s", startTimeout, err, text)
		}
	}
}

// pids returns the processes of the server.
func (r *running) pids() ([]int, error) {
	tree, err := proc.Tree(r.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(tree))
	for i, s := range tree {
		pids[i] = s.PID
	}
	return pids, nil
}

// stop ends the server and waits until it is gone.
func (r *running) stop() error {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = r.cmd.Wait() // the exit code after a signal says nothing
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("it has not ended after %v", stopTimeout), r.cmd.Process.Kill())
	}
}
