package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/exit"
)

// endTimeout is how long a primary may take to close its devices.
const endTimeout = 30 * time.Second

func (a *app) primaryCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "primary",
		Short: "Show or stop the process that owns the DPDK devices",
		Long: `primary is about the process dnsapp primary, which owns the devices of the data path
DPDK. It has a socket of its own in the folder of the control socket, so it answers
when the supervisor does not.

` + exitCodes,
		Args: cobra.ArbitraryArgs, // RunE knows better what is wrong
		RunE: needCommand,
	}
	c.AddCommand(a.primaryStatusCommand(), a.primaryStopCommand())
	return c
}

func (a *app) primaryStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the devices, who is attached, and where the packet buffers are",
		Long: `status shows the primary: its devices, the processes that are attached to it, and
where every packet buffer is at this moment. The pool line adds up: size = free + rings
+ primary + rx + tx + astray + those of each process. rx and tx are with the devices;
astray is what a killed process has left, until it is swept.

  dnsappctl primary status
  dnsappctl primary status -o json | jq .pool

` + exitCodes,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a.running = true
			ctx, cancel := context.WithTimeout(c.Context(), askTimeout)
			defer cancel()
			s, err := a.primary().Status(ctx)
			if err != nil {
				return a.fail(ofPrimary(err))
			}
			if a.format == jsonText {
				return a.printJSON(s)
			}
			return showPrimary(a.out, s)
		},
	}
}

func (a *app) primaryStopCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "Stop the primary, last of all",
		Long: `stop closes the devices and ends the primary. While workers are attached it is
refused: stop dnsapp first. With --force the primary ends all the same and closes
nothing: the workers go on, and nothing is repaired any more when one of them dies.

  dnsappctl stop
  dnsappctl primary stop

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&force, "force", false, "also while workers are attached")
	c.RunE = func(c *cobra.Command, _ []string) error {
		a.running = true
		ctx, cancel := context.WithTimeout(c.Context(), endTimeout)
		defer cancel()
		pid, err := a.primary().End(ctx, primary.StopRequest{Force: force})
		if err != nil {
			return a.fail(ofPrimary(err))
		}
		if a.format == jsonText {
			return a.printJSON(map[string]int{"stopped": pid})
		}
		_, err = fmt.Fprintf(a.out, "the primary, pid %d, has ended\n", pid)
		return err
	}
	return c
}

// primary is the client of the primary beside the control socket.
func (a *app) primary() *primary.Client { return primary.NewClient(filepath.Dir(a.path)) }

// ofPrimary gives an error of the primary its exit code.
func ofPrimary(err error) error {
	if errors.Is(err, primary.ErrNone) {
		return exit.With(exit.Unreachable, err)
	}
	if _, ok := errors.AsType[*primary.RefusedError](err); ok {
		return exit.With(exit.Refused, err)
	}
	return err
}

func showPrimary(w io.Writer, s *primary.Status) error {
	fmt.Fprintf(w, "primary pid %d, up %s; %s, prefix %s, digest %s\n", s.PID, span(time.Since(s.StartedAt)), s.DPDK, s.Prefix, s.Digest)
	if s.Stuck != "" {
		fmt.Fprintf(w, "STUCK: %s; start dnsapp again with a new primary\n", s.Stuck)
	}
	if p := s.Pool; p != nil {
		fmt.Fprintf(w, "pool %d = free %d + rings %d + primary %d + rx %d + tx %d + astray %d", p.Size, p.Free, p.Rings, p.Primary, p.Rx, p.Tx, p.Astray)
		for _, m := range s.Secondaries {
			fmt.Fprintf(w, " + pid %d %d", m.PID, m.Mbufs)
		}
		fmt.Fprintln(w)
	} else {
		fmt.Fprintln(w, "pool: in use at every look")
	}
	fmt.Fprintf(w, "deaths %d, after which %d packet buffers were given back\n\n", s.Deaths, s.Mended)
	t := newTable(w, "DEVICE", "PORT", "DRIVER", "MAC", "MTU", "QUEUES", "LINK", "RX", "TX", "MISSED", "ERRORS")
	for _, p := range s.Ports {
		link := "down"
		if p.Up {
			link = fmt.Sprintf("%d Mbit/s", p.Mbps)
		}
		t.row(p.Name+" ("+p.Device+")", p.Port, p.Driver, p.MAC, p.MTU, p.Queues, link, p.RxPackets, p.TxPackets, p.RxMissed, p.RxErrors+p.TxErrors)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	t = newTable(w, "LCORE", "SLOT", "WORKER", "PID", "STATE", "MBUFS")
	for _, m := range s.Secondaries {
		state := "attached"
		if m.Dead {
			state = "dead, being swept"
		}
		t.row(m.Lcore, m.Slot, m.Worker, m.PID, state, m.Mbufs)
	}
	return t.Flush()
}
