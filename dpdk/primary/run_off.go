//go:build !dpdk

package primary

import (
	"context"
	"errors"
	"log/slog"

	"github.com/dnsapp/dnsapp/server/exit"
)

// Run refuses: there is no DPDK in this binary.
func Run(context.Context, Order, *slog.Logger, func()) error {
	return exit.With(exit.Refused, errors.New("this binary was built without DPDK; build it with make build-dpdk, which needs libdpdk-dev"))
}
