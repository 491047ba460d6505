package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/exit"
)

// grace is how long after --timeout the supervisor's own answer may come, which
// says what it waits for.
const grace = 2 * time.Second

const interrupting = `Ctrl-C stops watching and nothing else: what was begun goes on.`

// wait is the value of --wait.
type wait control.Wait

func (w *wait) String() string { return string(*w) }
func (w *wait) Type() string   { return "done|commit" }

func (w *wait) Set(s string) error {
	switch control.Wait(s) {
	case control.WaitDone, control.WaitCommit:
		*w = wait(s)
		return nil
	}
	return errors.New("it is done or commit")
}

func (a *app) reloadCommand() *cobra.Command {
	until := wait(control.WaitDone)
	var timeout time.Duration
	var dryRun bool
	c := &cobra.Command{
		Use:   "reload",
		Short: "Hand over to a new generation with the new configuration",
		Long: `reload has dnsapp read its configuration again, start a new generation of workers
with it and give them the traffic. The old generation finishes the flows it has
and goes. No packet is lost and no flow changes its generation meanwhile.

A configuration that is wrong, or a change that a reload cannot make, is refused:
nothing is touched, and every problem is printed. A reload that fails before the
new generation has the wire leaves the old one as it was.

Each step is printed as it begins:

  T0 prepare    read and check the configuration, compile changed zones
  T1 window     start the new workers
  T2 hand-over  stop every reader, flip, start the new readers; then it is committed
  T3 drain      the old generation finishes its flows
  T4 release    what it still has is handed over
  T5 reap       its processes end

By default the command waits until all of that is done. With --wait commit it
returns when the new generation has the wire; with --timeout it gives up waiting
after that long, and exits with 4. A supervisor that does not even take the reload
up, in 10 seconds or --timeout, is given up with exit code 5, and will not do it
later either.

With --dry-run nothing is touched. It prints what would change in the configuration,
which zones would be compiled (they are, and thrown away, so that what is wrong with
them shows), and what the old generation would have to finish. It exits with 0 if the
reload would be accepted, with 3 if it would be refused, with 1 if that is not known
after --timeout.

` + interrupting + `

With -o json each line is one object: {"event": {...}} for every event, then
{"report": {...}, "error": {...}, "done": true}. With --dry-run it is one object.

  dnsappctl reload
  dnsappctl reload --dry-run && dnsappctl reload
  dnsappctl reload --wait commit
  dnsappctl reload --timeout 30s || dnsappctl status
  dnsappctl reload -o json | tail -n 1 | jq .report.gap_ms

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().Var(&until, "wait", "what to wait for")
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0: as long as it takes")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would happen, and touch nothing")
	c.MarkFlagsMutuallyExclusive("dry-run", "wait")
	a.complete(c, "wait", string(control.WaitDone), string(control.WaitCommit))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if timeout < 0 {
			return fmt.Errorf("--timeout %v is negative", timeout)
		}
		a.running = true
		if dryRun {
			return a.plan(c.Context(), timeout)
		}
		return a.follow(c.Context(), "reload", timeout, func(ctx context.Context, cl *control.Client) (*control.ReloadReport, error) {
			req := control.ReloadRequest{Wait: control.Wait(until), Timeout: control.Millis(timeout)}
			return cl.Reload(ctx, req, a.showEvent)
		}, "")
	}
	return c
}

func (a *app) stopCommand() *cobra.Command {
	var fast, now bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "stop",
		Short: "Finish what is under way, then exit",
		Long: `stop has dnsapp take no new work, finish what is under way, and exit. It returns
when the process has gone, so that another one can be started at once.

TCP connections in use are drained. UDP has no end to wait for: what is queued is
answered, and then nobody reads it any more. (To replace a server without losing
flows, reload it.)

  (default)  drain for up to reload.shutdown_timeout   (signal QUIT)
  --fast     drain for up to 2 seconds                 (signal TERM)
  --now      do not drain                              (signal INT)

A faster stop overtakes a slower one that is under way.

` + interrupting + `

With -o json each line is one object: {"event": {...}} for every event, then
{"error": {...}, "done": true}, without "error" if all went well.

  dnsappctl stop
  dnsappctl stop --timeout 30s || dnsappctl stop --now

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&fast, "fast", false, "drain for up to 2 seconds")
	c.Flags().BoolVar(&now, "now", false, "do not drain")
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0: as long as it takes")
	c.MarkFlagsMutuallyExclusive("fast", "now")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if timeout < 0 {
			return fmt.Errorf("--timeout %v is negative", timeout)
		}
		kind := control.StopGraceful
		switch {
		case fast:
			kind = control.StopFast
		case now:
			kind = control.StopNow
		}
		a.running = true
		return a.follow(c.Context(), "stop", timeout, func(ctx context.Context, cl *control.Client) (*control.ReloadReport, error) {
			return nil, cl.Stop(ctx, control.StopRequest{Kind: kind, Timeout: control.Millis(timeout)}, a.showEvent)
		}, "stopped")
	}
	return c
}

// follow starts a long request by call and prints how it ended: by its report
// or, if it has none, by done.
func (a *app) follow(ctx context.Context, what string, timeout time.Duration, call func(context.Context, *control.Client) (*control.ReloadReport, error), done string) error {
	report, err := try(ctx, a, what, timeout, call)
	if a.format == jsonText {
		l := control.Line{Report: report, Error: errorOrNil(err), Done: true}
		return errors.Join(a.printLine(l), err)
	}
	switch {
	case report == nil && err == nil:
		fmt.Fprintln(a.out, done)
	case report == nil || report.Outcome == control.OutcomeRefused: // the error says it all
	default:
		r := *report
		if err != nil {
			r.Problems = nil // the error has them
		}
		showReport(a.out, &r)
	}
	return err
}

// try sends a long request by call, and says of an end of waiting what it means.
func try[T any](ctx context.Context, a *app, what string, timeout time.Duration, call func(context.Context, *control.Client) (T, error)) (T, error) {
	c, err := a.dial()
	if err != nil {
		var none T
		return none, err
	}
	defer c.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+grace)
		defer cancel()
	}
	report, err := call(ctx, c)
	silent, ok := errors.AsType[*control.SilentError](err)
	switch {
	case ok:
		err = fmt.Errorf("the %s has not begun, and is withdrawn: %w", what, silent)
	case errors.Is(err, context.Canceled):
		err = exit.With(exit.Draining, fmt.Errorf("stopped watching; the %s goes on", what))
	case errors.Is(err, context.DeadlineExceeded):
		err = exit.With(exit.Draining, fmt.Errorf("the %s is not finished after %v and goes on", what, timeout))
	}
	return report, err
}

// showEvent prints one event, as it happens.
func (a *app) showEvent(e control.Event) {
	if a.format == jsonText {
		_ = a.printLine(control.Line{Event: &e}) // the last line reports a broken output
		return
	}
	step := ""
	if e.Entered {
		step = string(e.Step)
		if w := e.Step.Word(); w != step {
			step += " " + w
		}
	}
	// One write a line: it is seen at once, and whole.
	fmt.Fprintf(a.out, "%9.3f s  %-12s  %s\n", e.Elapsed.Duration().Seconds(), step, strings.TrimSpace(e.Text))
}

// printLine prints one line of JSON.
func (a *app) printLine(l any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
