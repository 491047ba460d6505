package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnsapp/dnsapp/test/netns"
)

// options are the command line.
type options struct {
	dnsapp, dnsappctl string
	coredns           string
	reloads           int
	every             time.Duration // between reloads
	flows             int           // that begin at a time
	flowRate          int           // of each flow
	dnsRate           int
	json              bool
}

// life is how long a flow lives: through one reload at least.
func (o *options) life() time.Duration { return o.every * 5 / 4 }

func main() {
	var o options
	bin := flag.String("bin", "bin", "folder of dnsapp and dnsappctl")
	flag.StringVar(&o.coredns, "coredns", "coredns", "the CoreDNS program")
	flag.IntVar(&o.reloads, "reloads", 5, "reloads of each server")
	flag.DurationVar(&o.every, "every", 2*time.Second, "time between reloads")
	flag.IntVar(&o.flows, "flows", 100, "UDP flows that begin at a time")
	flag.IntVar(&o.flowRate, "flow-rate", 20, "datagrams a second of each flow")
	flag.IntVar(&o.dnsRate, "dns-rate", 5000, "DNS queries a second")
	flag.BoolVar(&o.json, "json", false, "print one JSON object a server instead of the table")
	flag.Parse()
	o.dnsapp, o.dnsappctl = filepath.Join(*bin, "dnsapp"), filepath.Join(*bin, "dnsappctl")
	code, inside, err := netns.Enter()
	if err == nil && !inside {
		os.Exit(code)
	}
	if err != nil && !errors.Is(err, netns.ErrNotRoot) {
		fail(err)
	}
	if err := run(&o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "loss:", err)
	os.Exit(1)
}

func run(o *options) error {
	for _, p := range []*string{&o.dnsapp, &o.dnsappctl} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	var rows []row
	for _, s := range []server{nginx{o}, coredns{o}, dnsapp{o: o, mode: "restart"}, dnsapp{o: o, mode: "graceful"}} {
		fmt.Fprintf(os.Stderr, "%s: %d reloads, one every %v ...\n", s.name(), o.reloads, o.every)
		r, err := try(s, o)
		if missing, ok := errors.AsType[*missingError](err); ok {
			fmt.Fprintf(os.Stderr, "%s: NOT MEASURED: %v\n", s.name(), missing)
			r, err = row{Server: s.name(), Missing: missing.Error()}, nil
		}
		if err != nil {
			return fmt.Errorf("measuring %s: %w", s.name(), err)
		}
		rows = append(rows, r)
	}
	if o.json {
		enc := json.NewEncoder(os.Stdout)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Print(table(o, rows))
	return nil
}

// try measures one server in a folder that is removed afterwards.
func try(s server, o *options) (r row, err error) {
	dir, err := os.MkdirTemp("", "dnsapp-loss-")
	if err != nil {
		return row{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // workers run as another user
		return row{}, err
	}
	ctl, err := s.start(dir)
	if err != nil {
		return row{}, err
	}
	r, err = measure(ctl, o)
	r.Server = s.name()
	return r, errors.Join(err, ctl.stop())
}

// missingError says that a server is not there to be measured.
type missingError struct{ what string }

func (e *missingError) Error() string { return e.what }

// oneLine returns text without its line ends.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
