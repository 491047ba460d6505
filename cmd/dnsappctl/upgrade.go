package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

func (a *app) upgradeCommand() *cobra.Command {
	until := wait(control.WaitDone)
	var timeout time.Duration
	var binary string
	var drainOld, rollback bool
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Hand over to another binary, without a stop",
		Long: `upgrade has dnsapp start another binary as the next supervisor. That one takes over
the sockets, the shared memory and the workers, and then reloads: a new generation
of its own workers gets the traffic, and the old one finishes its flows, as in a
reload. No packet is lost and no connection is closed.

The old supervisor stands by from the commit on, and does nothing. Until it is ended
with --drain-old, --rollback gives everything back to it: the old binary reloads, and
the new one ends. Both can be had while the old generation still drains. Reloads are
refused meanwhile.

  (default)    start the binary, and hand over to it  (signal USR2)
  --drain-old  end the supervisor that stands by      (signal WINCH)
  --rollback   give everything back to it

Without --binary it is the file that the running binary came from, with what is in it
now. A binary that cannot share memory with the running one is refused: compare what
"dnsapp version --handover" prints. One that ends, hangs, or whose reload fails, is
given up, with the reason, and the old one goes on as before.

` + interrupting + `

With -o json each line is one object, as for reload.

  dnsappctl upgrade
  dnsappctl upgrade --binary /opt/dnsapp-2/dnsapp
  dnsappctl upgrade --rollback
  dnsappctl upgrade --drain-old

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().StringVar(&binary, "binary", "", "`PATH` of the binary to start; default: where the running one came from")
	c.Flags().BoolVar(&drainOld, "drain-old", false, "end the supervisor that stands by")
	c.Flags().BoolVar(&rollback, "rollback", false, "give everything back to the supervisor that stands by")
	c.Flags().Var(&until, "wait", "what to wait for")
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0: as long as it takes")
	c.MarkFlagsMutuallyExclusive("binary", "drain-old", "rollback")
	a.complete(c, "wait", string(control.WaitDone), string(control.WaitCommit))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if timeout < 0 {
			return fmt.Errorf("--timeout %v is negative", timeout)
		}
		req := control.UpgradeRequest{Action: control.UpgradeStart, Wait: control.Wait(until), Timeout: control.Millis(timeout)}
		done := ""
		switch {
		case drainOld:
			req.Action, done = control.UpgradeDrainOld, "the old supervisor has ended"
		case rollback:
			req.Action = control.UpgradeRollback
		case binary != "":
			path, err := filepath.Abs(binary)
			if err != nil {
				return fmt.Errorf("--binary %s: %w", binary, err)
			}
			req.Binary = path
		}
		a.running = true
		return a.follow(c.Context(), "upgrade", timeout, func(ctx context.Context, cl *control.Client) (*control.ReloadReport, error) {
			return cl.Upgrade(ctx, req, a.showEvent)
		}, done)
	}
	return c
}
