package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/trace"
)

func (a *app) traceCommand() *cobra.Command {
	var req control.TraceRequest
	var path string
	var during time.Duration
	c := &cobra.Command{
		Use:   "trace --pcap FILE",
		Short: "Write what is received and sent to a pcap file",
		Long: `trace writes the datagrams that the workers receive and send to a file in the format
pcapng, which tcpdump, tshark and Wireshark read. FILE "-" is standard output. It goes
on until Ctrl-C, and over reloads.

Each worker of each generation is an interface of its own in the file, "epoch 7 worker
0": so the file tells who had which packet. A datagram that one generation reads and
forwards to another is that of the one which serves it.

With kernel sockets the headers in the file are made up around what was read and sent:
IP addresses, ports, lengths and checksums are right, MAC addresses, TTL and the like
are not those of the wire. With DPDK it has the frames themselves: a received one is of
the worker that read it, a sent one of the worker that made it. TCP on kernel sockets is
not in it, nor is what was dropped before a service had it; dnsappctl status counts
that.

Serving never waits for a trace. What comes faster than it is written is lost to the
file, and counted: here, and in the file for each interface. At most 64 MiB of memory
are used, for as long as the trace runs, and there is one trace at a time.

--filter takes a part of the language of pcap-filter(7):

  [src|dst|src or dst|src and dst] host ADDRESS
  [src|dst|src or dst|src and dst] net PREFIX
  [src|dst|src or dst|src and dst] port N
  [src|dst|src or dst|src and dst] portrange N-N
  ip, ip6, udp, tcp, icmp, icmp6, arp     alone, or before one of the above
  vlan [N], less N, greater N, inbound, outbound

joined by and, or, not, and parentheses. As there, "and" and "or" bind alike and from the
left, and "not" binds closest. Names are not looked up.

  dnsappctl trace --pcap today.pcap --filter "host 192.0.2.1 and port 53" --for 10s
  dnsappctl trace --pcap - --count 100 | tcpdump -nr -
  dnsappctl trace --pcap - | tshark -r - -T fields -e frame.interface_name -e dns.qry.name

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().StringVar(&path, "pcap", "", "write to `FILE`; -: standard output")
	c.Flags().StringVar(&req.Filter, "filter", "", "take what matches `EXPR` only")
	c.Flags().Uint64Var(&req.Count, "count", 0, "end after `N` packets; 0: no limit")
	c.Flags().DurationVar(&during, "for", 0, "end after this long; 0: no limit")
	c.Flags().IntVar(&req.Snap, "snaplen", 0, "keep `N` octets of each payload or frame; 0: all")
	if err := errors.Join(c.MarkFlagRequired("pcap"), c.MarkFlagFilename("pcap", "pcap", "pcapng")); err != nil {
		panic(err) // there is no such flag
	}
	a.complete(c, "filter", "udp", "port 53", "not port 53", "ip6", "inbound", "outbound")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if _, err := trace.Parse(req.Filter); err != nil {
			return fmt.Errorf("--filter: %w", err)
		}
		if during < 0 || req.Snap < 0 || req.Snap > control.MaxSnap {
			return fmt.Errorf("--for %v and --snaplen %d: not negative, and at most %d octets", during, req.Snap, control.MaxSnap)
		}
		out := &traceFile{path: path}
		about := a.out
		if path == "-" {
			if _, _, terminal := terminalSize(a.out); terminal {
				return errors.New("--pcap -: standard output is a terminal; name a file, or a program that reads it")
			}
			out.w, about = a.out, a.err
		}
		a.running = true
		req.For = control.Millis(during)
		cl, err := a.dial()
		if err != nil {
			return err
		}
		defer cl.Close()
		report, err := cl.Trace(c.Context(), req, out)
		err = errors.Join(err, out.close())
		if a.format == jsonText {
			return errors.Join(printTrace(about, report, err), err)
		}
		if report != nil {
			showTrace(about, report)
		}
		return err
	}
	return c
}

// traceFile is a file that is made when there is something to write to it, so that a
// trace which is refused leaves what was there before.
type traceFile struct {
	path string
	file *os.File
	w    io.Writer
}

func (f *traceFile) Write(b []byte) (int, error) {
	if f.w == nil {
		// Only its owner reads what the clients of the server have sent.
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return 0, err
		}
		f.file, f.w = file, file
	}
	return f.w.Write(b)
}

func (f *traceFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

func printTrace(w io.Writer, r *control.TraceReport, err error) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Report *control.TraceReport `json:"report,omitempty"`
		Error  *control.Error       `json:"error,omitempty"`
	}{r, errorOrNil(err)})
}

func showTrace(w io.Writer, r *control.TraceReport) {
	fmt.Fprintf(w, "%d packets, %d octets in %.3f s; %d lost (%s)\n", r.Packets, r.Bytes, r.Elapsed.Duration().Seconds(), r.Dropped, r.Reason)
	for _, o := range r.Workers {
		fmt.Fprintf(w, "  epoch %d worker %d: %d packets, %d lost\n", o.Epoch, o.Worker, o.Packets, o.Dropped)
	}
}
