package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

func (a *app) backendCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "backend",
		Short: "Look at the servers that proxies send to",
		Args:  cobra.ArbitraryArgs,
		RunE:  needCommand,

		SuggestionsMinimumDistance: 2,
	}
	c.AddCommand(a.backendListCommand(), a.backendShowCommand())
	return c
}

func (a *app) backendListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the backends and their servers",
		Long: `list shows the backends in the order of the configuration, and for each server its
state, as ordered by dnsappctl server, its health, its weight, and the flows it has in
all generations. A weight that is not that of the file has the latter in parentheses.

Health is up, down (its checks fail), or out (flows at it failed one after the other;
it is tried again after health.fail_timeout).

With -o json the answer is one list.

  dnsappctl backend list
  dnsappctl backend list -o json | jq -r '.[].servers[] | select(.health != "up") | .name'

` + exitCodes,
		Args: cobra.NoArgs,
		RunE: ask(a, func(ctx context.Context, c *control.Client) ([]control.BackendStatus, error) { return c.Backends(ctx) }, showBackends),
	}
}

func (a *app) backendShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show everything about one backend",
		Long: `show describes a backend: what list shows, and for each server why it is down, and
the flows, datagrams and failures since it was first known. They are kept over reloads
for a server that keeps its name and address.

With -o json the answer is one object.

  dnsappctl backend show app
  dnsappctl backend show app -o json | jq '.servers[] | {name, flows, refused}'

` + exitCodes,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			get := func(ctx context.Context, cl *control.Client) (*control.BackendStatus, error) {
				list, err := cl.Backends(ctx)
				if err != nil {
					return nil, err
				}
				for i := range list {
					if list[i].Name == args[0] {
						return &list[i], nil
					}
				}
				return nil, control.Refuse("there is no backend %q", args[0])
			}
			return ask(a, get, showBackend)(c, args)
		},
	}
}

func (a *app) serverCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "Take servers of a backend out, and put them back",
		Long: `server changes what a server of a backend gets, at once, without a reload. The order
holds in all generations and over reloads, until the file says something else of that
server than it did; dnsappctl diff shows it.

` + exitCodes,
		Args: cobra.ArbitraryArgs,
		RunE: needCommand,

		SuggestionsMinimumDistance: 2,
	}
	c.AddCommand(
		a.stateCommand("enable", "enabled", "Give a server new flows again", "enable takes drain and disable back."),
		a.stateCommand("drain", "draining", "Give a server no new flows",
			"drain leaves the flows of a server with it, and gives new ones to others. backend list\nshows how many are left."),
		a.stateCommand("disable", "disabled", "Give a server nothing",
			"disable gives new flows to other servers, and moves those that the server has: the next\ndatagram of a client begins a new flow at another server. Answers that are under way to\nits client meanwhile are lost."),
		a.weightCommand(),
	)
	return c
}

func (a *app) stateCommand(name, state, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " BACKEND SERVER",
		Short: short,
		Long:  long + "\n\n  dnsappctl server " + name + " app a\n\n" + exitCodes,
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return a.order(c, control.ServerRequest{Backend: args[0], Server: args[1], State: state})
		},
	}
}

func (a *app) weightCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "weight BACKEND SERVER WEIGHT",
		Short: "Change the share of new flows that a server gets",
		Long: `weight sets the weight of a server, from 0 to 256. With 0 it gets no new flow and
keeps those it has.

  dnsappctl server weight app a 10

` + exitCodes,
		Args: cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			w, err := strconv.Atoi(args[2])
			if err != nil {
				return fmt.Errorf("weight %q is not a whole number", args[2])
			}
			return a.order(c, control.ServerRequest{Backend: args[0], Server: args[1], Weight: &w})
		},
	}
}

func (a *app) order(c *cobra.Command, req control.ServerRequest) error {
	return ask(a, func(ctx context.Context, cl *control.Client) (*control.ServerStatus, error) {
		return cl.OrderServer(ctx, req)
	}, func(w io.Writer, s *control.ServerStatus) error {
		_, err := fmt.Fprintf(w, "%s/%s is %s, %s, with weight %s and %s\n",
			req.Backend, s.Name, s.State, s.Health, weight(s), count(s.Flows, "flow", "flows"))
		return err
	})(c, nil)
}

func (a *app) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff",
		Short: "Show where the running state differs from the file",
		Long: `diff shows what operators have ordered beside the configuration (dnsappctl server),
and what a reload would change because the file has changed since. A file that cannot
be loaded is no failure of diff: it says why.

With -o json the answer is one object; in orders, old is what the running configuration
says, in changes it is what runs.

  dnsappctl diff
  dnsappctl diff -o json | jq -e '.orders == [] and .changes == []'

` + exitCodes,
		Args: cobra.NoArgs,
		RunE: ask(a, func(ctx context.Context, c *control.Client) (*control.Diff, error) { return c.Diff(ctx) }, showDiff),
	}
}

// weight is a weight, with that of the file if they differ.
func weight(s *control.ServerStatus) string {
	if s.Weight == s.FileWeight {
		return strconv.Itoa(s.Weight)
	}
	return fmt.Sprintf("%d (file: %d)", s.Weight, s.FileWeight)
}

func showBackends(w io.Writer, list []control.BackendStatus) error {
	t := newTable(w, "BACKEND", "POLICY", "SERVER", "ADDRESS", "STATE", "HEALTH", "WEIGHT", "FLOWS")
	for _, b := range list {
		if len(b.Servers) == 0 {
			t.row(b.Name, b.Policy, "-", "-", "-", "-", "-", "-")
		}
		for i := range b.Servers {
			s := &b.Servers[i]
			name := s.Name
			if s.Backup {
				name += " (backup)"
			}
			t.row(b.Name, b.Policy, name, s.Address, s.State, s.Health, weight(s), s.Flows)
		}
	}
	return t.Flush()
}

func showBackend(w io.Writer, b *control.BackendStatus) error {
	fmt.Fprintf(w, "backend %s, policy %s, check %s\n\n", b.Name, b.Policy, b.Check)
	if err := showBackends(w, []control.BackendStatus{*b}); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t := newTable(w, "SERVER", "LIMIT", "BEGUN", "SENT", "RECEIVED", "REFUSED", "SILENT")
	for _, s := range b.Servers {
		limit := "-"
		if s.MaxFlows > 0 {
			limit = strconv.Itoa(s.MaxFlows)
		}
		t.row(s.Name, limit, s.Begun, s.Sent, s.Received, s.Refused, s.Silent)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range b.Servers {
		if s.Why != "" {
			fmt.Fprintf(w, "%s is down: %s\n", s.Name, s.Why)
		}
	}
	return nil
}

func showDiff(w io.Writer, d *control.Diff) error {
	if d.Same() {
		_, err := fmt.Fprintf(w, "no difference from %s\n", d.ConfigFile)
		return err
	}
	t := newTable(w, "config", d.ConfigFile)
	for _, c := range d.Orders {
		t.row("order", c)
	}
	for _, c := range d.Changes {
		t.row("change", c)
	}
	for _, p := range d.Problems {
		t.row("problem", p)
	}
	return t.Flush()
}
