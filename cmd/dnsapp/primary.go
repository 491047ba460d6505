package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/exit"
	"github.com/dnsapp/dnsapp/server/logging"
)

func primaryCommand() *cobra.Command {
	var path string
	var ordered bool
	c := &cobra.Command{
		Use:   "primary",
		Short: "The process that owns the devices of the data path DPDK",
		Long: `primary takes the devices, queues, packet buffers and rings that the configuration
names under dpdk, and then sleeps: it serves nothing and uses no CPU. Workers attach to
it. It outlives them, reloads, upgrades and the supervisor, and is found again by them
in the folder of the control socket.

It runs in the foreground and logs to standard error, until TERM, INT, or
dnsappctl primary stop. Should it end while workers live, they go on without it, and a
new one has new shared memory.

It needs a binary built with DPDK (make build-dpdk), hugepages, and rights on them and
on the devices: usually root.

  dnsapp primary -c /etc/dnsapp/dnsapp.yaml
  dnsappctl primary status

Exit codes: 0 stopped, 1 failed, 2 wrong usage, 3 refused.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
			defer stop()
			signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
			if ordered {
				o, err := primary.ReadOrder(os.Stdin)
				if err != nil {
					return err
				}
				log, end := logging.New(config.Log{Level: o.LogLevel, Format: o.LogFormat})
				defer end()
				return primary.Run(ctx, o, log, primary.TellReady())
			}
			cfg, err := config.Load(path)
			if err != nil {
				return refused(path, err)
			}
			log, end := logging.New(cfg.Log)
			defer end()
			return runPrimary(ctx, cfg, log)
		},
	}
	configFlag(c, &path)
	c.Flags().BoolVar(&ordered, "ordered", false, "read from standard input what to make")
	if err := c.Flags().MarkHidden("ordered"); err != nil {
		panic(err) // there is no such flag
	}
	return c
}

// runPrimary is the primary of a configuration, started by hand.
func runPrimary(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	if len(cfg.DPDK.Devices) == 0 {
		return exit.With(exit.Refused, fmt.Errorf("%s: dpdk.devices: no device is named (write one: [{name: wan, device: 0000:3b:00.0}])", cfg.File))
	}
	o := server.PrimaryOrder(cfg)
	if err := os.Mkdir(o.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the control directory: %w", err)
	}
	return primary.Run(ctx, o, log, func() {})
}
