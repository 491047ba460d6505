package server

import (
	"errors"
	"path/filepath"

	"github.com/dnsapp/dnsapp/dpdk/primary"
	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/exit"
)

// PrimaryOrder returns what a DPDK primary for cfg is to make, and where: in the
// folder of the control socket, so one supervisor after the other finds it.
func PrimaryOrder(cfg *config.Config) primary.Order {
	d := &cfg.DPDK
	o := primary.Order{
		Dir: filepath.Dir(cfg.Control),
		Spec: primary.Spec{
			Mbufs: d.Mbufs, MbufSize: d.MbufSize, MaxWorkers: d.MaxWorkers, RingSize: d.RingSize, Memory: d.Memory,
			Hugepages: d.Hugepages, FilePrefix: d.FilePrefix,
		},
	}
	for _, dev := range d.Devices {
		o.Spec.Devices = append(o.Spec.Devices, primary.Device(dev))
	}
	return o
}

// checkDatapath refuses the data path that workers cannot serve on.
func checkDatapath(cfg *config.Config) error {
	if cfg.Datapath != config.DPDK {
		return nil
	}
	return exit.With(exit.Refused, errors.New(
		"datapath: dpdk: the workers of this version serve on sockets only (dnsapp primary runs by itself, for trial); write datapath: sockets"))
}
