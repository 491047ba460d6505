//go:build dpdk

// Command memif is the other end of a net_memif for bench: it asks, or answers
// anything with itself. It is an EAL primary of its own.
//
//	memif load FLAGS   sends the frames of a file over and over, as many as are answered
//	memif echo FLAGS   sends each frame back, and says what the driver's own calls take
//
// It prints "ready" once the other end is there, then "begin" and "end" around what it
// measures, and a Result as JSON at last.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dnsapp/dnsapp/bench/memif/link"
	"github.com/dnsapp/dnsapp/dpdk/eal"
)

// The sizes of what is here: enough for every descriptor, both ways, and a window.
const (
	mbufs       = 4095
	room        = 2048
	descriptors = 1024
	mtu         = 1500
	memory      = 32 // MB
)

// linkTime is how long the other end may take to come.
const linkTime = 20 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "memif:", err)
		os.Exit(1)
	}
}

type options struct {
	device, prefix, huge string
	frames               string
	window               int
	warmup, length       time.Duration
}

func run() error {
	if len(os.Args) < 2 {
		return errors.New("say load or echo")
	}
	var o options
	f := flag.NewFlagSet(os.Args[1], flag.ContinueOnError)
	f.StringVar(&o.device, "device", "", "arguments of net_memif0, such as role=client,socket=`PATH`")
	f.StringVar(&o.prefix, "prefix", "dnsapp-bench", "of the shared memory")
	f.StringVar(&o.huge, "hugepages", "/dev/hugepages", "folder of a hugetlbfs")
	f.StringVar(&o.frames, "frames", "", "`file` of link.Frames to send")
	f.IntVar(&o.window, "window", 512, "frames on their way at a time")
	f.DurationVar(&o.warmup, "warmup", time.Second, "how long before it is measured")
	f.DurationVar(&o.length, "for", 3*time.Second, "how long it is measured")
	if err := f.Parse(os.Args[2:]); err != nil {
		return err
	}
	q, err := open(o)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var r link.Result
	switch os.Args[1] {
	case "load":
		frames, err := link.Read(o.frames)
		if err != nil {
			return err
		}
		g := generator{q: q, frames: frames, window: o.window, b: eal.NewBurst()}
		r = g.run(o.warmup, o.length)
	case "echo":
		e := echo{q: q, b: eal.NewBurst()}
		r = e.run(o.warmup, o.length)
	default:
		return fmt.Errorf("%q is neither load nor echo", os.Args[1])
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// open joins EAL and waits for the other end.
func open(o options) (eal.Queue, error) {
	cpus, err := eal.CPUs()
	if err != nil {
		return eal.Queue{}, err
	}
	if err := eal.Init(eal.Options{
		Primary: true, CPUs: cpus, Prefix: o.prefix, HugeDir: o.huge, Memory: memory, Virtual: []string{"net_memif0," + o.device}, Log: "error",
	}); err != nil {
		return eal.Queue{}, err
	}
	if err := eal.Create(mbufs, room, eal.Layout{Workers: 1, RingSize: 64}); err != nil {
		return eal.Queue{}, err
	}
	d, err := eal.PortByName("net_memif0")
	if err != nil {
		return eal.Queue{}, err
	}
	if err := d.Start(1, descriptors, mtu); err != nil {
		return eal.Queue{}, err
	}
	for deadline := time.Now().Add(linkTime); ; {
		if up, _ := d.Link(); up {
			return eal.Queue{Port: d.Port}, nil
		}
		if time.Now().After(deadline) {
			return eal.Queue{}, fmt.Errorf("nobody is at the other end of %s after %v", o.device, linkTime)
		}
		time.Sleep(time.Millisecond)
	}
}
