package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

func (a *app) watchCommand() *cobra.Command {
	var last int
	c := &cobra.Command{
		Use:   "watch",
		Short: "Print everything that happens, as it happens",
		Long: `watch prints every event of the running dnsapp: what is asked of it, each move of
the reload machine and of each generation, workers that start, are ready or end,
what the receive loops are told and answer, and how requests end. It begins with
the last few events of the past, and goes on until dnsapp stops or Ctrl-C.

A line has the time (UTC), what the event is about (request, report, machine,
generation, worker, lanes, drain, manager, bug), the epoch and the worker, and
what happened.

Watching delays nothing. Events that a slow reader misses are counted in a line
of their own, and leave a hole in "seq" of the JSON.

With -o json each line is one object: {"event": {...}} for every event, then
{"error": {...}, "done": true}, without "error" if dnsapp has stopped as told.

  dnsappctl watch
  dnsappctl watch --last 0 -o json | jq -c '.event | select(.kind == "worker")'

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&last, "last", 20, fmt.Sprintf("how many events of the past to begin with, at most %d", control.MaxLast))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if last < 0 || last > control.MaxLast {
			return fmt.Errorf("--last %d is not from 0 to %d", last, control.MaxLast)
		}
		a.running = true
		err := a.watchEvents(c.Context(), last)
		if errors.Is(err, context.Canceled) {
			return nil // Ctrl-C is how it is meant to end
		}
		if a.format == jsonText {
			return errors.Join(a.printLine(control.Line{Error: errorOrNil(err), Done: true}), err)
		}
		if err == nil {
			fmt.Fprintln(a.out, "dnsapp has stopped")
		}
		return err
	}
	return c
}

func (a *app) watchEvents(ctx context.Context, last int) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Watch(ctx, last, func(e control.Event) {
		if a.format == jsonText {
			_ = a.printLine(control.Line{Event: &e}) // the last line reports a broken output
			return
		}
		fmt.Fprint(a.out, eventLine(e))
	})
}

// eventLine returns an event of the whole supervisor as one line of text.
func eventLine(e control.Event) string {
	whose := ""
	if e.Epoch != 0 {
		whose = "epoch " + strconv.FormatUint(uint64(e.Epoch), 10)
	}
	if e.Worker != nil {
		whose += " worker " + strconv.Itoa(*e.Worker)
	}
	text := strings.ReplaceAll(strings.TrimSpace(e.Text), "\n", "; ")
	if e.Entered {
		text = fmt.Sprintf("%s (%s %s)", text, e.Step, e.Step.Word())
	}
	if e.Reload != 0 {
		text = fmt.Sprintf("%s [reload %d, %.3f s]", text, e.Reload, e.Elapsed.Duration().Seconds())
	}
	return fmt.Sprintf("%s  %-10s  %-17s  %s\n", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), e.Kind, whose, text)
}

func (a *app) abortCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "abort",
		Short: "Give up the reload in progress",
		Long: `abort gives up the reload in progress, as long as the new generation does not have
the wire (T0 to T2): its workers are killed and the old generation serves on, as
if nothing had been asked. Whoever waits for the reload is told that it failed.

It is refused (exit code 3) when no reload is in progress, or when the wire is
changing hands at this moment. After that there is nothing to abort: the new
generation serves; reload again to go back.

  dnsappctl abort

` + exitCodes,
		Args: cobra.NoArgs,
		RunE: ask(a, func(ctx context.Context, c *control.Client) (*control.Aborted, error) { return c.Abort(ctx) }, func(w io.Writer, r *control.Aborted) error {
			if r.Epoch == 0 {
				_, err := fmt.Fprintln(w, "given up: the first generation does not start")
				return err
			}
			_, err := fmt.Fprintf(w, "given up: epoch %d serves on\n", r.Epoch)
			return err
		}),
	}
}

func (a *app) drainCommand() *cobra.Command {
	var now bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "drain EPOCH",
		Short: "Follow the drain of a generation, or end it",
		Long: `drain follows the drain of the generation with this epoch and returns when the
generation is gone: once a second it prints what the drain waits for, and each
move of the generation as it happens.

With --now it ends the drain first: the UDP flows that the generation still has
move to the one that reads the wire, none of their packets is lost, and TCP
connections that are still open are closed.

"dnsappctl status" lists the generations. One that is gone already is no error;
one that does not drain is (exit code 3).

` + interrupting + `

With -o json each line is one object: {"event": {...}} for every event, then
{"error": {...}, "done": true}, without "error" if all went well.

  dnsappctl drain 7
  dnsappctl drain 7 --timeout 1m || dnsappctl drain 7 --now

` + exitCodes,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().BoolVar(&now, "now", false, "end the drain: hand over what is left")
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0: as long as it takes")
	c.ValidArgsFunction = a.completeDraining
	c.RunE = func(c *cobra.Command, args []string) error {
		epoch, err := strconv.ParseUint(args[0], 10, 31)
		if err != nil || epoch == 0 {
			return fmt.Errorf("%q is not an epoch: a whole number from 1, see dnsappctl status", args[0])
		}
		if timeout < 0 {
			return fmt.Errorf("--timeout %v is negative", timeout)
		}
		a.running = true
		return a.follow(c.Context(), "drain", timeout, func(ctx context.Context, cl *control.Client) (*control.ReloadReport, error) {
			req := control.DrainRequest{Epoch: uint32(epoch), Now: now, Timeout: control.Millis(timeout)}
			return nil, cl.Drain(ctx, req, a.showEvent)
		}, fmt.Sprintf("epoch %d is gone", epoch))
	}
	return c
}

// completeDraining completes the epochs of the generations that drain.
func (a *app) completeDraining(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, err := answer(c.Context(), a, func(ctx context.Context, c *control.Client) (*control.Status, error) { return c.Status(ctx) })
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var list []string
	for _, g := range s.Generations {
		if g.Drain != nil {
			list = append(list, fmt.Sprintf("%d\t%s", g.Epoch, g.Drain.Reason))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}
