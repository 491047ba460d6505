package dpdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/dnsapp/dnsapp/server/control"
)

// A trace has whole frames of the wire: queries and answers, with their link addresses,
// ARP and echo included, and nothing that the filter does not want.
func TestTraceFrames(t *testing.T) {
	s := start(t, 1, "")
	file := filepath.Join(s.dir, "pcap")
	c, err := control.Dial(filepath.Join(s.dir, "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, end := context.WithTimeout(t.Context(), commandTimeout)
	defer end()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	begun := &first{w: out, seen: make(chan struct{})}
	ended := make(chan *control.TraceReport, 1)
	go func() {
		r, err := c.Trace(ctx, control.TraceRequest{Filter: "port 5399 or arp or icmp6"}, begun)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	<-begun.seen
	const asked = 20
	for range asked {
		if _, err := ask(who4, 2*time.Second); err != nil {
			t.Error(err)
		}
		if _, err := ask(dns4, 10*time.Millisecond); err == nil { // it is malformed, and not wanted
			t.Error("a malformed query was answered")
		}
	}
	<-time.After(20 * time.Millisecond) // what is copied is written
	if err := c.EndTrace(ctx); err != nil {
		t.Fatal(err)
	}
	report := <-ended
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	in, back, n := 0, 0, uint64(0)
	for {
		data, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		eth, _ := p.LinkLayer().(*layers.Ethernet)
		if eth == nil || bytes.Equal(eth.SrcMAC, make([]byte, 6)) {
			t.Fatalf("no frame: %v", p)
		}
		udp, _ := p.TransportLayer().(*layers.UDP)
		switch {
		case udp == nil:
		case udp.DstPort == layers.UDPPort(who4.Port()) && string(udp.Payload) == "who":
			in++
		case udp.SrcPort == layers.UDPPort(who4.Port()) && bytes.HasPrefix(udp.Payload, []byte("epoch=")):
			back++
		default:
			t.Errorf("in the file: %v", p)
		}
	}
	if in != asked || back != asked || report == nil || report.Packets != n || report.Dropped != 0 {
		text, _ := json.Marshal(report)
		t.Errorf("%d queries and %d answers of %d; %d packets, %s", in, back, asked, n, text)
	}
}

// first tells when something was written.
type first struct {
	w    io.Writer
	seen chan struct{}
	told bool
}

func (f *first) Write(b []byte) (int, error) {
	if !f.told {
		f.told = true
		close(f.seen)
	}
	return f.w.Write(b)
}
