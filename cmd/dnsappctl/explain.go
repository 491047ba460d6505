package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

func (a *app) explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "Say which worker serves a client, and why",
		Args:  cobra.ArbitraryArgs,
		RunE:  needCommand,

		SuggestionsMinimumDistance: 2,
	}
	c.AddCommand(a.explainFlowCommand())
	return c
}

func (a *app) explainFlowCommand() *cobra.Command {
	var local string
	var udp, tcp bool
	c := &cobra.Command{
		Use:   "flow ADDR:PORT",
		Short: "Say which worker serves the flow of a client, and why",
		Long: `flow says which generation and worker serve the flow of the client with this
address and port, and what becomes of its next packet. IPv6 addresses are written
as [2001:db8::1]:5353, link-local ones with their interface: [fe80::1%eth0]:5353.

For UDP it looks into the flow tables and asks the rules of the dispatcher in
their order; "=>" marks the one that decides:

  1  by QUIC connection ID
  2  the flow is alive in the table of the generation that reads the wire
  3  it is alive in the table of a draining generation that publishes its flows
  4  otherwise it is new: whoever reads the packet serves and records it

A TCP connection stays with the worker that accepted it (--tcp).

Without --local all addresses that are served are tried, and those where the client
is known are shown; if it is known nowhere, all of them.

  dnsappctl explain flow 192.0.2.7:40001
  dnsappctl explain flow --tcp --local 192.0.2.1:53 192.0.2.7:40001

` + exitCodes,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().StringVar(&local, "local", "", "the address and port that the client asks, `ADDR:PORT`")
	c.Flags().BoolVar(&udp, "udp", false, "the flow is UDP (default)")
	c.Flags().BoolVar(&tcp, "tcp", false, "the flow is TCP")
	c.MarkFlagsMutuallyExclusive("udp", "tcp")
	c.ValidArgsFunction = cobra.NoFileCompletions
	c.RunE = func(c *cobra.Command, args []string) error {
		q := control.FlowQuery{Transport: "udp"}
		if tcp {
			q.Transport = "tcp"
		}
		var err error
		if q.Remote, err = parseEndpoint(args[0]); err != nil {
			return err
		}
		if local != "" {
			if q.Local, err = parseEndpoint(local); err != nil {
				return fmt.Errorf("--local: %w", err)
			}
		}
		return ask(a, func(ctx context.Context, c *control.Client) (*control.FlowAnswer, error) {
			return c.ExplainFlow(ctx, q)
		}, showFlows)(c, nil)
	}
	return c
}

func parseEndpoint(s string) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil || ap.Port() == 0 {
		return ap, fmt.Errorf("%q is no address with a port, such as 192.0.2.7:40001 or [2001:db8::7]:40001", s)
	}
	return ap, nil
}

func showFlows(w io.Writer, a *control.FlowAnswer) error {
	for i, f := range a.Flows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s %v -> %v (listener %s, %s)\n", a.Transport, a.Remote, f.Local, f.Listener, f.Service)
		if f.State != "" {
			fmt.Fprintf(w, "state    %s\n", f.State)
		}
		fmt.Fprintf(w, "owner    %s\n", ownerLine(f.Owner))
		for _, r := range f.Rules {
			fmt.Fprintf(w, "%s\n", ruleLine(r))
		}
		if _, err := fmt.Fprintf(w, "verdict  %s\n", f.Verdict); err != nil {
			return err
		}
	}
	return nil
}

func ownerLine(o *control.FlowOwner) string {
	if o == nil {
		return "nobody"
	}
	text := fmt.Sprintf("epoch %d (%s) worker %d", o.Epoch, o.State, o.Worker)
	if o.PID != 0 {
		text += fmt.Sprintf(", pid %d", o.PID)
	} else {
		text += ", dead"
	}
	if o.Packets > 0 {
		more := ""
		if o.AtLeast {
			more = " or more"
		}
		text += fmt.Sprintf("; %s%s, the last one %s ago", count(o.Packets, "packet", "packets"), more, span(o.Age.Duration()))
	}
	return text
}

func ruleLine(r control.FlowRule) string {
	mark := "  "
	if r.Decides {
		mark = "=>"
	}
	name := map[int]string{0: "listener", 1: "QUIC", 2: "own table", 3: "draining", 4: "new flow"}[r.Rule]
	number := " "
	if r.Rule > 0 {
		number = fmt.Sprint(r.Rule)
	}
	if r.Epoch != 0 && r.Rule != 4 {
		name = fmt.Sprintf("%s, epoch %d", name, r.Epoch)
	}
	text := r.Text
	if !r.Reached {
		text = "(not reached) " + text
	}
	return strings.TrimRight(fmt.Sprintf("rule %s %s %-22s  %s", number, mark, name, text), " ")
}
