//go:build dpdk

package primary

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/eal"
)

// job is what a secondary of the tests does.
type job struct {
	Lease Lease  `json:"lease"`
	Role  string `json:"role"` // a key of roles
	Peer  int    `json:"peer"` // lcore id at the other end of the rings
}

// worker is a secondary of the tests at work.
type worker struct {
	job
	layout  eal.Layout
	queue   eal.Queue
	in, out *eal.Burst
	moved   atomic.Uint64 // packets
	bad     atomic.Uint64 // packets that are not what they should be
}

// roles are the loops of secondaries, one turn of each.
var roles = map[string]func(*worker){
	"source": func(w *worker) { // numbered packets to the peer; what comes back is freed
		w.fresh()
		w.moved.Add(uint64(w.layout.Ring(eal.Frames, w.Lease.Lcore, w.Peer).Push(w.out)))
		w.out.Free()
		w.layout.Ring(eal.Sends, w.Peer, w.Lease.Lcore).Pull(w.in)
		w.in.Free()
	},
	"bounce": func(w *worker) { // what the peer sends goes back to it
		n := w.layout.Ring(eal.Frames, w.Peer, w.Lease.Lcore).Pull(w.in)
		w.check()
		w.layout.Ring(eal.Sends, w.Lease.Lcore, w.Peer).Push(w.in)
		w.in.Free()
		w.moved.Add(uint64(n))
	},
	"wire": func(w *worker) { // from the wire to the peer, and from the peer to the wire
		w.queue.Receive(w.in)
		w.moved.Add(uint64(w.layout.Ring(eal.Frames, w.Lease.Lcore, w.Peer).Push(w.in)))
		w.in.Free()
		w.layout.Ring(eal.Sends, w.Peer, w.Lease.Lcore).Pull(w.out)
		w.queue.Send(w.out)
		w.out.Free()
	},
	"mirror": func(w *worker) { // frames of the peer go back, to whom they came from
		w.layout.Ring(eal.Frames, w.Peer, w.Lease.Lcore).Pull(w.in)
		for i := range w.in.N {
			f := w.in.Data(i)
			for j := range 6 {
				f[j], f[6+j] = f[6+j], f[j]
			}
		}
		w.moved.Add(uint64(w.layout.Ring(eal.Sends, w.Lease.Lcore, w.Peer).Push(w.in)))
		w.in.Free()
	},
	"blast": func(w *worker) { // as much as the device takes; what comes is checked
		w.fresh()
		w.queue.Send(w.out)
		w.out.Free()
		w.moved.Add(uint64(w.queue.Receive(w.in)))
		w.check()
		w.in.Free()
	},
	"loop": func(w *worker) { // what the device receives, it sends
		w.moved.Add(uint64(w.queue.Receive(w.in)))
		w.queue.Send(w.in)
		w.in.Free()
	},
	"hoard": func(w *worker) { // holds mbufs
		if w.in.N == 0 && w.in.Alloc(50) {
			w.moved.Store(50)
		}
	},
	"sleep": func(*worker) {},
}

const frameSize = 100

// fresh fills out with numbered packets whose octets follow from their number.
func (w *worker) fresh() {
	if !w.out.Alloc(32) {
		return
	}
	for i := range w.out.N {
		w.out.Resize(i, frameSize)
		f := w.out.Data(i)
		binary.BigEndian.PutUint64(f, w.moved.Load()+uint64(i))
		for j := 8; j < frameSize; j++ {
			f[j] = f[7] + byte(j)
		}
	}
}

// check counts what fresh has not made.
func (w *worker) check() {
	for i := range w.in.N {
		f := w.in.Data(i)
		good := len(f) == frameSize
		for j := 8; good && j < frameSize; j++ {
			good = f[j] == f[7]+byte(j)
		}
		if !good {
			w.bad.Add(1)
		}
	}
}

// tally is what a secondary answers to a line on standard input.
type tally struct{ Moved, Bad uint64 }

// secondary is the main function of a secondary: it reads a job, says a line when it
// is attached, and works until standard input ends.
func secondary() error {
	runtime.LockOSThread()
	lines := bufio.NewScanner(os.Stdin)
	w := &worker{}
	lines.Scan()
	if err := json.Unmarshal(lines.Bytes(), &w.job); err != nil {
		return err
	}
	turn := roles[w.Role]
	cpus, err := eal.CPUs()
	if err != nil {
		return err
	}
	if err := eal.Init(eal.Options{Lcore: w.Lease.Lcore, CPUs: cpus, Prefix: w.Lease.Prefix, HugeDir: w.Lease.Hugepages, Log: "error"}); err != nil {
		return err
	}
	if w.layout, err = eal.Attach(w.Lease.Lcore); err != nil {
		return err
	}
	if len(w.Lease.Devices) > 0 {
		d, err := eal.PortByName(w.Lease.Devices[0])
		if err != nil {
			return err
		}
		d.Link()
		w.queue.Port = d.Port
	}
	w.in, w.out = eal.NewBurst(), eal.NewBurst()
	var over atomic.Bool
	enc := json.NewEncoder(os.Stdout)
	fmt.Println("attached")
	go func() {
		for lines.Scan() {
			if err := enc.Encode(tally{w.moved.Load(), w.bad.Load()}); err != nil {
				break
			}
		}
		over.Store(true)
	}()
	for !over.Load() {
		turn(w)
	}
	w.in.Free()
	w.out.Free()
	return nil
}

// child runs the command of a process of the tests.
func child(command string) error {
	switch command {
	case "primary":
		o, err := ReadOrder(os.Stdin)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		defer stop()
		signal.Ignore(unix.SIGPIPE)
		return Run(ctx, o, slog.New(slog.NewTextHandler(os.Stderr, nil)), TellReady())
	case "secondary":
		return secondary()
	}
	return fmt.Errorf("no command %q", command)
}
