package pcap

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/trace"
)

func endpoint(text string) burst.Endpoint { return burst.EndpointOf(netip.MustParseAddrPort(text)) }

var day = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)

// What is written is read back: every packet with its interface, time, addresses,
// payload and right checksums, and the statistics.
func TestDatagrams(t *testing.T) {
	var file bytes.Buffer
	w := New(&file, Options{Snap: 100, Filter: "port 53", About: "dnsapp test"})
	old, err := w.Interface("epoch 3 worker 0", "start 1")
	if err != nil {
		t.Fatal(err)
	}
	next, err := w.Interface("epoch 4 worker 0", "start 1")
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte("y"), 3000)
	records := []struct {
		iface int
		r     trace.Record
	}{
		{next, trace.Record{Src: endpoint("192.0.2.1:4000"), Dst: endpoint("198.51.100.9:53"), Data: []byte("query"), Length: 5}},
		{old, trace.Record{Src: endpoint("198.51.100.9:53"), Dst: endpoint("192.0.2.1:4000"), Data: []byte("an answer"), Length: 9, Sent: true}},
		{next, trace.Record{Src: endpoint("[2001:db8::1]:4000"), Dst: endpoint("[2001:db8::9]:53"), Data: []byte("odd"), Length: 3}},
		{old, trace.Record{Src: endpoint("[2001:db8::9]:53"), Dst: endpoint("[2001:db8::1]:4000"), Data: long[:100], Length: 3000, Sent: true}},
		{old, trace.Record{Src: endpoint("198.51.100.9:53"), Dst: endpoint("192.0.2.1:4000"), Length: 0}},
		{next, trace.Record{Src: endpoint("198.51.100.9:53"), Dst: endpoint("192.0.2.1:4000"), Data: []byte("z"), Length: 1 << 31}}, // what no datagram has
	}
	for i, o := range records {
		if _, err := w.Packet(o.iface, &o.r, day.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Stats(old, day, day.Add(time.Second), 3, 1), w.Stats(next, day, day.Add(time.Second), 2, 0), w.Flush()); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(file.Bytes()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range records {
		data, ci, err := r.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		if ci.InterfaceIndex != o.iface || !ci.Timestamp.Equal(day.Add(time.Duration(i))) {
			t.Errorf("packet %d: %+v", i, ci)
		}
		if i == 5 {
			continue
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.Default)
		udp, _ := p.TransportLayer().(*layers.UDP)
		if udp == nil {
			t.Fatalf("packet %d is %v", i, p)
		}
		src, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Src().Raw())
		dst, _ := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Dst().Raw())
		if netip.AddrPortFrom(src, uint16(udp.SrcPort)) != o.r.Src.AddrPort() || netip.AddrPortFrom(dst, uint16(udp.DstPort)) != o.r.Dst.AddrPort() {
			t.Errorf("packet %d: %v:%d > %v:%d", i, src, udp.SrcPort, dst, udp.DstPort)
		}
		if !bytes.Equal(udp.Payload, o.r.Data) || int(udp.Length) != 8+o.r.Length || ci.Length-ci.CaptureLength != o.r.Length-len(o.r.Data) {
			t.Errorf("packet %d: payload %q, UDP length %d, %+v", i, udp.Payload, udp.Length, ci)
		}
		if cut := len(o.r.Data) < o.r.Length; cut {
			if udp.Checksum != 0 {
				t.Errorf("packet %d is cut and has the checksum %#x", i, udp.Checksum)
			}
			continue
		}
		got := udp.Checksum
		if err := udp.SetNetworkLayerForChecksum(p.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, udp, gopacket.Payload(udp.Payload)); err != nil {
			t.Fatal(err)
		}
		if got != udp.Checksum {
			t.Errorf("packet %d: UDP checksum %#x, want %#x", i, got, udp.Checksum)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last packet: %v", err)
	}
	for i, want := range map[int]struct {
		name              string
		received, dropped uint64
	}{old: {"epoch 3 worker 0", 3, 1}, next: {"epoch 4 worker 0", 2, 0}} {
		f, err := r.Interface(i)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name != want.name || f.LinkType != layers.LinkTypeEthernet || f.Statistics.PacketsReceived != want.received || f.Statistics.PacketsDropped != want.dropped {
			t.Errorf("interface %d: %+v", i, f)
		}
	}
}

// Frames are written as they are.
func TestFrames(t *testing.T) {
	var file bytes.Buffer
	w := New(&file, Options{Snap: 64})
	i, err := w.Interface("epoch 1 worker 0", "")
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte{7}, 64)
	if n, err := w.Packet(i, &trace.Record{Frame: true, Data: frame, Length: 1500}, day); err != nil || n != 64 {
		t.Fatal(n, err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	data, ci, err := r.ReadPacketData()
	if err != nil || !bytes.Equal(data, frame) || ci.Length != 1500 || r.LinkType() != layers.LinkTypeEthernet {
		t.Errorf("%x, %+v, %v, link type %v", data, ci, err, r.LinkType())
	}
}

// failing takes no octet.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A writer without an interface has nothing to say, and errors are told.
func TestNothing(t *testing.T) {
	w := New(failing{}, Options{})
	if err := errors.Join(w.Stats(0, day, day, 0, 0), w.Flush()); err != nil {
		t.Error(err)
	}
	if _, err := w.Interface("epoch 1 worker 0", ""); err != nil { // it is buffered
		t.Fatal(err)
	}
	if err := w.Flush(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}
