package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/exit"
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
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve in the foreground",
		Long: `serve checks the configuration, binds its addresses, compiles its zones, starts
the workers and serves until it is told to stop. It logs to standard error.

The process itself, the supervisor, serves no traffic: it keeps the sockets and
the shared memory, so that generations of workers can come and go. Started as
root it binds any port and runs the workers as the configured user.

  dnsapp serve -c /etc/dnsapp/dnsapp.yaml

Signals: HUP reloads; QUIT stops after a drain, TERM after a short one, INT at
once. A faster stop overtakes a slower one.

Exit codes: 0 stopped as told, 1 failed, 2 wrong usage, 3 the configuration is
refused.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return serve(path) },
	}
	configFlag(c, &path)
	return c
}

func serve(path string) error {
	signals := server.Signals()
	cfg, err := config.Load(path)
	if err != nil {
		return refused(path, err)
	}
	s, err := server.New(cfg, server.Options{Version: buildVersion(), Log: logging.New(cfg.Log)})
	if err != nil {
		return err
	}
	code, err := s.Run(signals)
	if err != nil {
		return exit.With(code, err)
	}
	return nil
}

// refused is the error of a configuration that cannot be run.
func refused(path string, err error) error {
	var list config.Problems
	if errors.As(err, &list) {
		return exit.With(exit.Refused, fmt.Errorf("configuration refused:\n%w", err))
	}
	return exit.With(exit.Refused, fmt.Errorf("reading %s: %w", path, err))
}

func checkCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "check",
		Short: "Check a configuration, without touching what runs",
		Long: `check reads a configuration and prints everything that is wrong with it, one
line each: file, line, key, what is wrong, and what would be right.

  dnsapp check -c /etc/dnsapp/dnsapp.yaml

It exits 0 if the configuration is good and 1 if it is not.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(path)
			if err != nil {
				return exit.With(exit.Failed, err)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: good: %d listeners, %d zones\n", path, len(cfg.Listeners), len(cfg.Zones))
			return nil
		},
	}
	configFlag(c, &path)
	return c
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
