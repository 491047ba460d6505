package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/logging"
	"github.com/dnsapp/dnsapp/server/worker"
	"github.com/dnsapp/dnsapp/server/zones"
)

// configFlag adds the flag that names the configuration file.
func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", "/etc/dnsapp/dnsapp.yaml", "configuration `FILE`")
}

func serveCommand() *cobra.Command {
	var path string
	var daemon bool
	var timeout time.Duration
	var fd int
	var fresh bool
	var from string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve in the foreground, or as a daemon",
		Long: `serve checks the configuration, binds its addresses, compiles its zones, starts
the workers and serves until it is told to stop. It logs to standard error.

The process itself, the supervisor, serves no traffic: it keeps the sockets and
the shared memory, so that generations of workers can come and go. Started as
root it binds any port and runs the workers as the configured user.

With --daemon it goes on in the background, in a session of its own, and the
command returns when it serves, or with the reason why it does not. Standard error
stays what it is: redirect it to a file. Service managers need no --daemon: where
NOTIFY_SOCKET is set, sd_notify tells them when it serves, reloads and stops.

Where the configuration has a pid_file, it holds the process id of the supervisor
while it serves.

Workers outlive their supervisor. serve adopts those that an earlier one on the same
control socket has left: it ends what was under way, and reloads. With --fresh it
ends them instead, and all they have.

After a full stop nothing is left to adopt. Where the configuration has a state_file,
what was ordered of servers, their health and the counters go on from that.

With --take-over it takes the sockets, the memory and the workers of a supervisor
that runs, which stands by from then on, and reloads: so does "dnsappctl upgrade",
which starts another binary like that. Both must be the same user, in the same
network, time and pid namespaces, and agree on the numbers of "dnsapp version
--handover". It waits for a supervisor for upgrade.timeout.

Signals: HUP reloads; USR2 starts the binary anew, as "dnsappctl upgrade" does, and
WINCH ends the supervisor that stands by; QUIT stops after a drain, TERM after a
short one, INT at once. A faster stop overtakes a slower one.

  dnsapp serve -c /etc/dnsapp/dnsapp.yaml
  dnsapp serve -c /etc/dnsapp/dnsapp.yaml --daemon 2>>/var/log/dnsapp.log

Exit codes: 0 stopped as told, or a daemon serves; 1 failed, or the daemon did not
serve in time; 2 wrong usage; 3 the configuration is refused.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !daemon {
				return serve(path, server.Options{Ready: tellReady(fd), Fresh: fresh, TakeOver: from})
			}
			if timeout < 0 {
				return exit.With(exit.Usage, fmt.Errorf("--timeout %v is negative", timeout))
			}
			ctx, stop := signal.NotifyContext(c.Context(), unix.SIGINT, unix.SIGTERM)
			defer stop()
			var more []string
			if fresh {
				more = append(more, "--fresh")
			}
			if from != "" {
				socket, err := filepath.Abs(from)
				if err != nil {
					return err
				}
				more = append(more, "--take-over", socket)
			}
			return daemonize(ctx, path, timeout, more...)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&daemon, "daemon", false, "go on in the background, and return when it serves")
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "with --daemon: how long it may take until it serves; 0: as long as it takes")
	c.Flags().BoolVar(&fresh, "fresh", false, "end the workers that an earlier supervisor has left, instead of adopting them")
	c.Flags().StringVar(&from, "take-over", "", "take over from the supervisor with this control `SOCKET`, and reload")
	c.MarkFlagsMutuallyExclusive("fresh", "take-over")
	c.Flags().IntVar(&fd, "ready-fd", 0, "pipe to tell that it serves")
	if err := c.Flags().MarkHidden("ready-fd"); err != nil {
		panic(err) // there is no such flag
	}
	return c
}

func serve(path string, o server.Options) (err error) {
	why := handover.TakeWhy()
	defer func() { why.Say(err) }()
	signals := server.Signals()
	signal.Ignore(unix.SIGPIPE) // who reads the log may go: the server stays
	cfg, err := config.Load(path)
	if err != nil {
		return refused(path, err)
	}
	log, end := logging.New(cfg.Log)
	defer end()
	o.Version, o.Log = buildVersion(), log
	code, err := server.Serve(cfg, o, signals)
	if err != nil {
		return exit.With(code, err)
	}
	return nil
}

// refused is the error of a configuration that cannot be run.
func refused(path string, err error) error {
	if _, ok := errors.AsType[config.Problems](err); ok {
		return exit.With(exit.Refused, fmt.Errorf("configuration refused:\n%w", err))
	}
	return exit.With(exit.Refused, fmt.Errorf("reading %s: %w", path, err))
}

func checkCommand() *cobra.Command {
	var path string
	var schema bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration, without touching what runs",
		Long: `check reads a configuration and prints everything that is wrong with it, one
line each: file, line, key, what is wrong, and what would be right.

With --schema it prints a JSON Schema of the configuration instead, which editors and
generators understand. It is made from what check checks by.

  dnsapp check -c /etc/dnsapp/dnsapp.yaml
  dnsapp check --schema > dnsapp.schema.json

Exit codes: 0 the configuration is good, 1 it is not, 2 wrong usage.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if schema {
				if c.Flags().Changed("config") {
					return exit.With(exit.Usage, errors.New("--schema is about no configuration in particular: leave --config out"))
				}
				_, err := c.OutOrStdout().Write(config.JSONSchema())
				return err
			}
			cfg, err := config.Load(path)
			if err != nil {
				return exit.With(exit.Failed, err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: good: %s, %s\n", path, count(len(cfg.Listeners), "listener"), count(len(cfg.Zones), "zone"))
			return nil
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of the configuration")
	return c
}

func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "A worker process; started by serve",
		Hidden: true,
		Args:   noArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGQUIT)
			defer stop()
			signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
			return worker.Run(ctx)
		},
	}
}

func compileCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "compile",
		Short:  "A zone compiler process; started by serve",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(*cobra.Command, []string) error { return zones.Compile() },
	}
}
