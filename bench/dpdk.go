package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/bench/memif/link"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/test/load"
	"github.com/dnsapp/dnsapp/test/proc"
)

// The two hosts on the wire that net_memif is.
var (
	wireServer = netip.MustParseAddr("192.0.2.1")
	wireClient = netip.MustParseAddr("192.0.2.9")

	serverMAC = header.MAC{2, 0, 0, 0, 0, 1}
	clientMAC = header.MAC{2, 0, 0, 0, 0, 2}
)

const (
	wirePort = 53
	// wirePages is the hugepages of 2 MB that both ends take.
	wirePages = 96
)

// dpdkBench is the state of the part.
type dpdkBench struct {
	o       options
	dir     string
	program string // of the other end
	frames  string
}

// dpdkSample is one measurement of the server on DPDK.
type dpdkSample struct {
	rate     float64 // answers/s
	perQuery float64 // CPU, ns
	lost     uint64
}

// benchDPDK measures queries over net_memif, the same over sockets, and what the
// driver alone takes.
func benchDPDK(o options, dir string) (string, error) {
	zone, queries := workload(o.names)
	if err := os.WriteFile(filepath.Join(dir, "example.com.zone"), []byte(zone), 0o644); err != nil {
		return "", err
	}
	b := dpdkBench{o: o, dir: dir, program: filepath.Join(dir, "memif"), frames: filepath.Join(dir, "frames")}
	if err := b.writeFrames(queries); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "dpdk", "-o", b.program, "./bench/memif")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOEXPERIMENT=norandomizedheapbase64")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the other end of the wire: %w\n%s", err, out)
	}
	giveBack, err := takeHugepages(filepath.Join(dir, "huge"), wirePages)
	if err != nil {
		return "", err
	}
	defer giveBack()

	when, busyness := time.Now(), loadAverage()
	var wire, sockets, ratios, rates, driver, echoed []float64
	lost := uint64(0)
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d: dpdk\n", round+1, o.rounds)
		e, err := b.echo()
		if err != nil {
			return "", fmt.Errorf("the echo: %w", err)
		}
		s, err := b.overSockets(queries)
		if err != nil {
			return "", fmt.Errorf("over sockets: %w", err)
		}
		w, err := b.overWire()
		if err != nil {
			return "", fmt.Errorf("over the wire: %w", err)
		}
		driver, echoed = append(driver, e.DriverNs), append(echoed, float64(e.Answered)/e.Elapsed.Seconds())
		sockets = append(sockets, float64(s.perQuery.Nanoseconds()))
		wire, rates = append(wire, w.perQuery), append(rates, w.rate)
		ratios = append(ratios, float64(s.perQuery.Nanoseconds())/w.perQuery)
		lost += w.lost
	}
	var t strings.Builder
	heading(&t, "DPDK over net_memif", when, busyness)
	fmt.Fprintf(&t, "DNS over UDP and IPv4, %d names, a tenth of the queries for names that do not exist; one worker on processor %d, generator on %d;\n", o.names, serverCPU, generatorCPU)
	fmt.Fprintf(&t, "%d interleaved rounds of %v. Medians (lowest to highest). %s.\n\n", o.rounds, o.length, dnsapp(o.dnsapp).version())
	row := func(name, format string, list []float64, scale float64) {
		m, low, high := spread(list)
		fmt.Fprintf(&t, "| %s | "+format+" ("+format+" to "+format+") |\n", name, m*scale, low*scale, high*scale)
	}
	t.WriteString("| | |\n|---|---|\n")
	row("queries answered on one processor, million/s", "%.2f", rates, 1e-6)
	row("CPU per query, all of it, ns", "%.0f", wire, 1)
	row("of it in the driver, as an echo in its place spends it, ns", "%.0f", driver, 1)
	outside := make([]float64, len(wire))
	for i := range wire {
		outside[i] = wire[i] - driver[i]
	}
	row("CPU per query outside the driver, ns", "%.0f", outside, 1)
	row("CPU per query over sockets, same binary and run, ns", "%.0f", sockets, 1)
	row("sockets over DPDK", "%.1f", ratios, 1)
	row("what the generator gets from the echo, million/s", "%.2f", echoed, 1e-6)
	fmt.Fprintf(&t, "\n%d queries were lost.\n", lost)
	return t.String(), nil
}

// writeFrames writes the frames of all queries.
func (b *dpdkBench) writeFrames(queries []load.Query) error {
	var frames []link.Frame
	for i, q := range queries {
		p, err := load.NewDNS([]load.Query{q})
		if err != nil {
			return err
		}
		m := p.AppendRequest(nil, 0, uint32(i))
		m[0], m[1] = byte(i>>8), byte(i)
		frames = append(frames, link.Frame{Data: frameOf(m, uint16(1024+i*31%60000)), Rcode: byte(q.Rcode)})
	}
	return link.Write(b.frames, frames)
}

// frameOf returns a frame with a DNS message from a port of the client to the server.
func frameOf(m []byte, port uint16) []byte {
	const before = header.EthernetSize + header.IPv4Size
	udp := header.UDPSize + len(m)
	f := append(make([]byte, before+header.UDPSize), m...)
	l := header.Link{Peer: serverMAC, Own: clientMAC}
	l.Put(f, header.TypeIPv4)
	src, dst := wireClient.As16(), wireServer.As16()
	header.PutIPv4(f[header.EthernetSize:], &header.IPFields{Src: &src, Dst: &dst, Proto: unix.IPPROTO_UDP, HopLimit: 64, Length: udp})
	header.PutUDP(f[before:], port, wirePort, udp, header.PseudoOf(&src, &dst, unix.IPPROTO_UDP, udp), false)
	return f
}

func (b *dpdkBench) socket() string { return filepath.Join(b.dir, "memif.sock") }

// removeSocket removes what a server has left.
func (b *dpdkBench) removeSocket() { _ = os.Remove(b.socket()) }

// device is what --vdev is told of an end of the wire, without its name.
func (b *dpdkBench) device(role string, mac header.MAC) string {
	return fmt.Sprintf("role=%s,socket=%s,socket-abstract=no,mac=%02x:%02x:%02x:%02x:%02x:%02x",
		role, b.socket(), mac[0], mac[1], mac[2], mac[3], mac[4], mac[5])
}

// otherEnd is a process at an end of the wire.
type otherEnd struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// startEnd runs the other end on a processor, or, as an echo, this one.
func (b *dpdkBench) startEnd(cpu int, mode, role string, mac header.MAC, length time.Duration) (*otherEnd, error) {
	cmd := exec.Command("timeout", strconv.Itoa(int((length + 2*startTimeout).Seconds())), "taskset", "-c", strconv.Itoa(cpu), b.program, mode, "-device", b.device(role, mac), "-prefix", "dnsapp-bench-"+mode,
		"-hugepages", filepath.Join(b.dir, "huge"), "-frames", b.frames, "-for", length.String(), "-warmup", "5s")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &otherEnd{cmd, bufio.NewScanner(out)}, cmd.Start()
}

// startClient runs the generator, once the other side is there to connect to.
func (b *dpdkBench) startClient() (*otherEnd, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		_, err := os.Stat(b.socket())
		if err == nil {
			return b.startEnd(generatorCPU, "load", "client", clientMAC, b.o.length)
		}
		if time.Now().After(deadline) {
			return nil, err
		}
	}
}

// connected waits until the two ends have met.
func (e *otherEnd) connected() error {
	for e.lines.Scan() {
		if e.lines.Text() == "ready" {
			return nil
		}
	}
	return errors.Join(errors.New("the ends of the wire have not met"), e.cmd.Wait())
}

// result waits for the end. begin and end are called around what is measured.
func (e *otherEnd) result(begin, end func()) (r link.Result, err error) {
	found := false
	for e.lines.Scan() {
		switch line := e.lines.Text(); line {
		case "ready":
		case "begin":
			begin()
		case "end":
			end()
		default:
			found = json.Unmarshal([]byte(line), &r) == nil
		}
	}
	if err := e.cmd.Wait(); err != nil {
		return r, err
	}
	if !found {
		return r, errors.New("it has said nothing of what it measured")
	}
	return r, nil
}

// echo measures the driver, with an echo in the server's place.
func (b *dpdkBench) echo() (link.Result, error) {
	nothing := func() {}
	b.removeSocket()
	// It goes on for longer than the generator, which begins a little later.
	server, err := b.startEnd(serverCPU, "echo", "server", serverMAC, b.o.length+2*time.Second)
	if err != nil {
		return link.Result{}, err
	}
	client, err := b.startClient()
	if err != nil {
		return link.Result{}, errors.Join(err, server.cmd.Process.Kill(), server.cmd.Wait())
	}
	got, err1 := client.result(nothing, nothing)
	r, err2 := server.result(nothing, nothing)
	got.DriverNs = r.DriverNs
	return got, errors.Join(err1, err2)
}

// overSockets measures the same server over loopback.
func (b *dpdkBench) overSockets(queries []load.Query) (sample, error) {
	r, err := start(dnsapp(b.o.dnsapp), b.dir)
	if err != nil {
		return sample{}, err
	}
	s, err := r.sample(traffic{flows: load.MaxFlows, queries: queries}, b.o.length)
	return s, errors.Join(err, r.stop())
}

// onDPDK returns dnsapp at its end of the wire.
func (b *dpdkBench) onDPDK() peer {
	p := dnsapp(b.o.dnsapp)
	p.name = "dnsapp-dpdk"
	p.config = func(dir string) string {
		return fmt.Sprintf(`control: %[1]s/dnsapp/control.sock
state_dir: %[1]s/dnsapp
admin: off
workers: 1
datapath: dpdk
dpdk:
  mbufs: 8191
  max_workers: 1
  file_prefix: dnsapp-bench
  hugepages: %[1]s/huge
  devices:
    - {name: wire, device: "net_memif0,%[2]s", addresses: ["%[3]v/24"]}
zones:
  - {name: example.com, file: %[1]s/example.com.zone}
listeners:
  - {name: dns, address: ["%[3]v:%[4]d"], service: dns}
`, dir, b.device("server", serverMAC), wireServer, wirePort)
	}
	return p
}

// overWire measures the server on DPDK.
func (b *dpdkBench) overWire() (s dpdkSample, err error) {
	b.removeSocket()
	// A worker finds the other end's memory when it attaches, and not later: so the
	// primary comes first, then the other end, and then the worker.
	p := b.onDPDK()
	p.args = func(config string) []string { return []string{"primary", "-c", config} }
	first, err := launch(p, b.dir)
	if err != nil {
		return s, err
	}
	defer func() { _ = first.cmd.Wait() }()
	client, err := b.startClient()
	if err != nil {
		return s, errors.Join(err, b.stopPrimary())
	}
	defer func() { err = errors.Join(err, b.stopPrimary()) }()
	if err := client.connected(); err != nil {
		return s, err
	}
	r, err := launch(b.onDPDK(), b.dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := b.awaitReady(r); err != nil {
		return s, err
	}
	var begin, end time.Duration
	var failed error
	account := func(d *time.Duration) func() {
		return func() {
			pids, err := r.pids()
			if err == nil {
				*d, err = proc.CPU(pids...)
			}
			failed = errors.Join(failed, err)
		}
	}
	got, err := client.result(account(&begin), account(&end))
	if err := errors.Join(err, failed); err != nil {
		return s, err
	}
	if got.Wrong != 0 || got.Answered == 0 {
		return s, fmt.Errorf("%d answers were right, %d wrong, %d of %d queries lost", got.Answered, got.Wrong, got.Lost, got.Sent)
	}
	return dpdkSample{
		rate: float64(got.Answered) / got.Elapsed.Seconds(), perQuery: float64((end - begin).Nanoseconds()) / float64(got.Answered), lost: got.Lost,
	}, nil
}

func (b *dpdkBench) controlSocket() string { return filepath.Join(b.dir, "dnsapp", "control.sock") }

// awaitReady waits until the worker owns the wire.
func (b *dpdkBench) awaitReady(r *running) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(startTimeout); ; <-tick.C {
		if c, err := control.Dial(b.controlSocket()); err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			st, err := c.Status(ctx)
			cancel()
			c.Close()
			if err == nil && st.Step == control.StepSteady && len(st.Generations) == 1 && st.Generations[0].RxOwner {
				return nil
			}
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(r.log)
			return fmt.Errorf("it is not ready after %v\n%s", startTimeout, text)
		}
	}
}

// stopPrimary ends the process that has the devices.
func (b *dpdkBench) stopPrimary() error {
	out, err := exec.Command(filepath.Join(filepath.Dir(b.o.dnsapp), "dnsappctl"), "--control", b.controlSocket(), "primary", "stop").CombinedOutput()
	if err != nil {
		return fmt.Errorf("stopping the primary: %w\n%s", err, out)
	}
	return nil
}
