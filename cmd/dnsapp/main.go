// Command dnsapp is the server. "dnsapp serve" is the supervisor; the hidden
// commands are the processes that it starts.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/exit"
)

func main() {
	root := rootCommand()
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "dnsapp: "+err.Error())
		os.Exit(exit.Of(err))
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "dnsapp",
		Short: "A DNS, UDP and TCP server that is reloaded under full load without losing a packet",
		Long: `dnsapp serves authoritative DNS and other UDP and TCP services, and replaces its
configuration under full load without losing a packet or breaking a flow.

  dnsapp check -c FILE     what is wrong with a configuration, all of it at once
  dnsapp serve -c FILE     serve in the foreground
  dnsappctl reload         hand over to a new generation with the new configuration
  dnsappctl status         what runs, and what a draining generation waits for

Signals of "dnsapp serve": HUP reloads; QUIT stops after a drain, TERM after a
short one, INT at once.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              noArgs,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() }, // without it, any argument gets help
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.With(exit.Usage, fmt.Errorf("%w (see %s --help)", err, c.CommandPath()))
	})
	root.AddCommand(serveCommand(), checkCommand(), versionCommand(), workerCommand(), compileCommand(), primaryCommand())
	return root
}

// noArgs refuses arguments, and names an unknown command as one.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return exit.With(exit.Usage, fmt.Errorf("unknown argument %q (see %s --help)", args[0], c.CommandPath()))
}
