package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server"
	"github.com/dnsapp/dnsapp/server/control"
)

// version is set by the linker to the release.
var version = "devel"

// buildVersion describes this binary.
func buildVersion() control.Version {
	v := control.Version{Version: version, Go: runtime.Version(), API: control.APIVersion}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}

func versionCommand() *cobra.Command {
	var terms bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `version prints the version of this binary.

With --handover it prints the numbers that another binary must have, too, for the two
to take over from each other without a stop: the versions of what they say to each
other and to the workers, and of each kind of shared memory.

  test "$(dnsapp version --handover)" = "$(./new/dnsapp version --handover)"`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if terms {
				fmt.Fprintln(c.OutOrStdout(), server.Terms())
				return nil
			}
			v := buildVersion()
			fmt.Fprintf(c.OutOrStdout(), "dnsapp %s (%s, control API %d)\n", v.Version, v.Go, v.API)
			return nil
		},
	}
	c.Flags().BoolVar(&terms, "handover", false, "print the numbers that two binaries must agree on")
	return c
}
