// Command load sends identify or DNS requests at a fixed rate and says what
// became of each:
//
//	load -flows 2000 -rate 20000 -for 10s 127.0.0.1:5399 '[::1]:5399'
//	load -dns www.example.com/A -rate 30000 -for 10s 127.0.0.1:5353
//	load -dns www.example.com/A -tcp -clients 8 -rate 2000 -for 10s 127.0.0.1:5353
//
// It exits 0 where every request was answered once and rightly, else 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/test/load"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	var (
		queries = flag.String("dns", "", "ask DNS `NAME/TYPE[/CLASS],...` instead of identify")
		tcp     = flag.Bool("tcp", false, "ask over TCP")
		flows   = flag.Int("flows", 100, "UDP flows")
		clients = flag.Int("clients", 8, "TCP clients")
		perConn = flag.Int("per-conn", 0, "TCP requests per connection (0: until the server closes)")
		rate    = flag.Int("rate", 1000, "requests per second")
		length  = flag.Duration("for", 5*time.Second, "how long to send")
		grace   = flag.Duration("grace", time.Second, "how long to wait for the last answers")
	)
	flag.Parse()
	var targets []netip.AddrPort
	for _, a := range flag.Args() {
		target, err := netip.ParseAddrPort(a)
		if err != nil {
			return fmt.Errorf("reading the targets: %w", err)
		}
		targets = append(targets, target)
	}
	if len(targets) == 0 {
		return errors.New("no target given, such as 127.0.0.1:5399")
	}
	protocol, err := protocolOf(*queries)
	if err != nil {
		return err
	}

	var g interface {
		Stop(grace time.Duration) load.Report
	}
	if *tcp {
		g, err = load.StartTCP(load.TCPConfig{Targets: targets, Clients: *clients, Rate: *rate, PerConn: *perConn, Protocol: protocol})
	} else {
		g, err = load.StartUDP(load.UDPConfig{Targets: targets, Flows: *flows, Rate: *rate, Protocol: protocol})
	}
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-time.After(*length):
	}
	report := g.Stop(*grace)
	fmt.Println(report)
	return report.Exact()
}

// protocolOf reads the -dns flag.
func protocolOf(list string) (load.Protocol, error) {
	if list == "" {
		return load.Identify{}, nil
	}
	var queries []load.Query
	for item := range strings.SplitSeq(list, ",") {
		part := strings.Split(item, "/")
		if len(part) < 2 || len(part) > 3 {
			return nil, fmt.Errorf("reading %q: want NAME/TYPE or NAME/TYPE/CLASS", item)
		}
		q := load.Query{Name: part[0], Rcode: load.AnyRcode, EDNS: 1232}
		var known bool
		if q.Type, known = dns.StringToType[strings.ToUpper(part[1])]; !known {
			return nil, fmt.Errorf("reading %q: unknown type", item)
		}
		if len(part) == 3 {
			if q.Class, known = dns.StringToClass[strings.ToUpper(part[2])]; !known {
				return nil, fmt.Errorf("reading %q: unknown class", item)
			}
		}
		queries = append(queries, q)
	}
	return load.NewDNS(queries)
}
