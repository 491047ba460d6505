//go:build !dpdk

package wire

import (
	"errors"

	"github.com/dnsapp/dnsapp/dpdk/primary"
)

// Attach returns an error: this program was built without DPDK.
func Attach(*primary.Lease) (Wire, error) {
	return nil, errors.New("attaching to the devices: this binary was built without DPDK; build it with make build-dpdk")
}
