package main

import (
	"runtime"
	"runtime/debug"

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
