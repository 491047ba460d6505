package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

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
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := buildVersion()
			fmt.Fprintf(c.OutOrStdout(), "dnsapp %s (%s, control API %d)\n", v.Version, v.Go, v.API)
			return nil
		},
	}
}
