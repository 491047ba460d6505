package e2e

import (
	"bufio"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/dnsapp/dnsapp/test/load"
)

// answerTimeout is how long a single question may take.
const answerTimeout = 5 * time.Second

// ask asks one DNS question ("udp" or "tcp") of class IN.
func ask(t *testing.T, network string, target netip.AddrPort, name string, qtype uint16) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name, qtype)
	c := dns.Client{Net: network, Timeout: answerTimeout}
	answer, _, err := c.Exchange(m, target.String())
	if err != nil {
		t.Fatalf("asking %v for %s: %v", target, name, err)
	}
	return answer
}

// soaSerial returns the serial of example.com.
func soaSerial(t *testing.T, target netip.AddrPort) uint32 {
	t.Helper()
	answer := ask(t, "udp", target, "example.com.", dns.TypeSOA)
	if len(answer.Answer) != 1 {
		t.Fatalf("no SOA record:\n%v", answer)
	}
	soa, ok := answer.Answer[0].(*dns.SOA)
	if !ok {
		t.Fatalf("no SOA record:\n%v", answer)
	}
	return soa.Serial
}

// whoAnswers asks identify once, over the network of the connection.
func whoAnswers(t *testing.T, network, target string) load.Tag {
	t.Helper()
	c, err := net.DialTimeout(network, target, answerTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return whoAnswersOn(t, c)
}

// whoAnswersOn asks identify on a connection.
func whoAnswersOn(t *testing.T, c net.Conn) load.Tag {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("who\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(c).ReadSlice('\n')
	if err != nil {
		t.Fatalf("asking %v who answers: %v", c.RemoteAddr(), err)
	}
	tag, err := load.ParseTag(line)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

// probe is a light load that sees whether anything is disturbed: 1,000 queries/s
// for the generation, by name and by identify.
type probe struct{ dns, who *load.UDP }

// generationQuery asks DNS what identify tells.
var generationQuery = load.Query{Name: "generation.dnsapp", Type: dns.TypeTXT, Class: dns.ClassCHAOS, Rcode: load.NoError}

func startProbe(t *testing.T) *probe {
	t.Helper()
	generation, err := load.NewDNS([]load.Query{generationQuery})
	if err != nil {
		t.Fatal(err)
	}
	var p probe
	if p.dns, err = load.StartUDP(load.UDPConfig{Targets: []netip.AddrPort{dns4, dns6}, Flows: 16, Rate: 500, Sources: []netip.Prefix{clients6}, Protocol: generation}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.dns.Close)
	p.who = identify(t, 16, 500)
	awaitAnswers(t, p.dns, 50)
	awaitAnswers(t, p.who, 50)
	return &p
}

// stop returns the accounts of both halves.
func (p *probe) stop() load.Report {
	r := p.dns.Stop(time.Second)
	r.Add(p.who.Stop(time.Second))
	return r
}

// awaitAnswers waits until g has had n more answers.
func awaitAnswers(t *testing.T, g *load.UDP, n uint64) {
	t.Helper()
	n += g.Report().Answered
	if !awaiting(20*time.Second, func() bool { return g.Report().Answered >= n }) {
		t.Fatalf("no %d answers in 20 s: %v", n, g.Report())
	}
}
