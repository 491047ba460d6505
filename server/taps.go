package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/tap"
)

// The TAP devices by which this host's kernel has a part in devices of DPDK. Each
// generation has descriptors of its own of them, made of those of the one before: a
// device is there, and up, for as long as any generation wants it.

// noTAP is the descriptor of a device in which the kernel has no part.
const noTAP = -1

// macTime is how long the primary may take to tell the link addresses of devices.
const macTime = 5 * time.Second

// wantsTAPs reports whether the kernel has a part in a device of cfg.
func wantsTAPs(cfg *config.Config) bool {
	if cfg.Datapath != config.DPDK {
		return false
	}
	for _, d := range cfg.DPDK.Devices {
		if d.Kernel.TAP != "" {
			return true
		}
	}
	return false
}

// linkAddresses asks the primary for the link addresses of the devices, which TAP
// devices have, too. There are none to be asked for where no TAP device is wanted.
func linkAddresses(ctx context.Context, cfg *config.Config) ([]header.MAC, error) {
	if !wantsTAPs(cfg) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, macTime)
	defer cancel()
	st, err := primary.NewClient(filepath.Dir(cfg.Control)).Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the primary for link addresses: %w", err)
	}
	if len(st.Ports) != len(cfg.DPDK.Devices) {
		return nil, fmt.Errorf("the primary has %d devices, the configuration %d", len(st.Ports), len(cfg.DPDK.Devices))
	}
	macs := make([]header.MAC, len(st.Ports))
	for i, p := range st.Ports {
		hw, err := net.ParseMAC(p.MAC)
		if err != nil || len(hw) != len(macs[i]) {
			return nil, fmt.Errorf("device %s has the link address %q", p.Name, p.MAC)
		}
		macs[i] = header.MAC(hw)
	}
	return macs, nil
}

// openTAPs gives g descriptors of its TAP devices: of those that other generations
// have, or of new ones, which are made as they are wanted. Within the loop.
func (s *Supervisor) openTAPs(g *generation, macs []header.MAC) error {
	if !wantsTAPs(g.cfg) {
		return nil
	}
	for i := range g.cfg.DPDK.Devices {
		d := &g.cfg.DPDK.Devices[i]
		fd, err := noTAP, error(nil)
		if d.Kernel.TAP != "" {
			if other, at := s.tapOf(d.Kernel.TAP, g); other != nil {
				fd, err = unix.FcntlInt(uintptr(other.taps[at]), unix.F_DUPFD_CLOEXEC, 3)
			} else if fd, err = tap.Open(d.Kernel.TAP); err == nil {
				if err = tap.Configure(d.Kernel.TAP, tapSettings(d, macs[i]), tap.Settings{}); err != nil {
					unix.Close(fd)
				}
			}
		}
		if err != nil {
			s.closeTAPs(g)
			return config.Problems{{
				File: g.cfg.File, Key: fmt.Sprintf("dpdk.devices[%d].kernel.tap", i), Msg: err.Error(),
				Fix: "name a TAP device that nobody else has, or one that is missing; it takes CAP_NET_ADMIN",
			}}
		}
		g.taps = append(g.taps, fd)
	}
	return nil
}

// tapOf returns another generation than g that has the TAP device with this name,
// and where in its list; nil if there is none.
func (s *Supervisor) tapOf(name string, g *generation) (*generation, int) {
	for _, o := range s.gens {
		if o == nil || o == g {
			continue
		}
		for i, fd := range o.taps {
			if fd != noTAP && o.cfg.DPDK.Devices[i].Kernel.TAP == name {
				return o, i
			}
		}
	}
	return nil, 0
}

func tapSettings(d *config.Device, mac header.MAC) tap.Settings {
	return tap.Settings{MAC: mac, MTU: d.MTU, Addresses: d.TAPAddresses()}
}

// settleTAPs gives TAP devices that g has from an older generation the addresses that
// g wants for them. Within the loop, when g owns the wire.
func (s *Supervisor) settleTAPs(g *generation) (err error) {
	for i, fd := range g.taps {
		if fd == noTAP {
			continue
		}
		d := &g.cfg.DPDK.Devices[i]
		before := tap.Settings{}
		if o, at := s.tapOf(d.Kernel.TAP, g); o != nil {
			before.Addresses = o.cfg.DPDK.Devices[at].TAPAddresses()
		}
		err = errors.Join(err, tap.Configure(d.Kernel.TAP, tapSettings(d, header.MAC{}), before))
	}
	return err
}

// closeTAPs closes g's descriptors of TAP devices.
func (s *Supervisor) closeTAPs(g *generation) {
	for _, fd := range g.taps {
		if fd == noTAP {
			continue
		}
		if err := unix.Close(fd); err != nil && !errors.Is(err, unix.EINTR) {
			s.log.Warn("closing a TAP device", "error", err)
		}
	}
	g.taps = nil
}

// manifestTAPs lists g's TAP devices, by device, for a manifest: 0 for none. add takes
// a descriptor along.
func (g *generation) manifestTAPs(add func(int) int) (list []int) {
	for _, fd := range g.taps {
		n := 0
		if fd != noTAP {
			n = add(fd)
		}
		list = append(list, n)
	}
	return list
}
