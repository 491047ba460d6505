// Package pcap writes what is traced as a pcapng file, which tcpdump, Wireshark and
// others read.
//
// Invariant: each worker of each generation is an interface of its own in the file,
// so whoever reads it sees who had which packet; and at the end of the file there
// is, for each of them, how many packets are missing.
//
// Kernel sockets give payloads and addresses. The headers around them are made here:
// addresses, ports, lengths and checksums are right, the rest was not seen (MAC
// addresses and identification 0, TTL 64). From DPDK come whole frames. The link type
// is ETHERNET for both: libpcap 1.10 takes only one interface of type RAW.
package pcap

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/packet/header"
	"github.com/dnsapp/dnsapp/server/trace"
)

// Options say what is the same in the whole file.
type Options struct {
	Snap   int    // octets of each payload or frame that are kept at most
	Filter string // as asked for
	About  string // who writes the file
}

// Writer writes one file. It belongs to one goroutine.
type Writer struct {
	o      Options
	ng     *ng
	ifaces int
	buf    []byte
}

// New returns a writer to w. Nothing is written before the first interface is.
func New(w io.Writer, o Options) *Writer {
	return &Writer{o: o, ng: newNg(w), buf: make([]byte, headers+1<<16)}
}

// headers is the most octets of headers that are made here.
const headers = header.EthernetSize + header.IPv6Size + header.UDPSize

// Interface begins an interface and returns its number, from 0.
func (w *Writer) Interface(name, description string) (int, error) {
	if w.ifaces == 0 {
		if err := w.ng.section(w.o.About); err != nil {
			return 0, fmt.Errorf("writing a trace: %w", err)
		}
	}
	if err := w.ng.iface(name, description, w.o.Filter, w.o.Snap+headers); err != nil {
		return 0, fmt.Errorf("writing a trace: %w", err)
	}
	w.ifaces++
	return w.ifaces - 1, nil
}

// Packet writes a record of an interface, whose time was at. It returns how many
// octets of packet it wrote.
func (w *Writer) Packet(iface int, r *trace.Record, at time.Time) (int, error) {
	data, length := r.Data, r.Length
	if !r.Frame {
		data, length = w.datagram(r)
	}
	if err := w.ng.packet(iface, at, data, length); err != nil {
		return 0, fmt.Errorf("writing a trace: %w", err)
	}
	return len(data), nil
}

// hopLimit is that of the headers that are made here.
const hopLimit = 64

// datagram puts headers before the payload of r, and returns the packet and the
// length that it would have if it were not cut. It is valid until the next call.
func (w *Writer) datagram(r *trace.Record) (packet []byte, length int) {
	link, ipSize, typ := header.Link{}, header.IPv6Size, uint16(header.TypeIPv6)
	if r.Src.Is4() {
		ipSize, typ = header.IPv4Size, header.TypeIPv4
	}
	ip := w.buf[link.Put(w.buf, typ):]
	whole := min(r.Length, 1<<16-1-ipSize-header.UDPSize)
	udp := header.UDPSize + whole
	f := header.IPFields{Src: &r.Src.IP, Dst: &r.Dst.IP, Proto: unix.IPPROTO_UDP, HopLimit: hopLimit, Length: udp}
	if ipSize == header.IPv4Size {
		header.PutIPv4(ip, &f)
	} else {
		header.PutIPv6(ip, &f)
	}
	body := ip[ipSize:]
	n := copy(body[header.UDPSize:header.UDPSize+whole], r.Data)
	if n == whole {
		sum := header.PseudoOf(&r.Src.IP, &r.Dst.IP, f.Proto, udp)
		header.PutUDP(body, r.Src.Port, r.Dst.Port, udp, sum, false)
	} else { // what is cut has no checksum
		binary.BigEndian.PutUint16(body[0:], r.Src.Port)
		binary.BigEndian.PutUint16(body[2:], r.Dst.Port)
		binary.BigEndian.PutUint16(body[4:], uint16(udp))
		binary.BigEndian.PutUint16(body[6:], 0)
	}
	return w.buf[:header.EthernetSize+ipSize+header.UDPSize+n], header.EthernetSize + ipSize + udp
}

// Stats writes, for an interface, that between two instants so many packets were
// written or left out by the writer's caller, and so many more were lost.
func (w *Writer) Stats(iface int, from, to time.Time, received, dropped uint64) error {
	if w.ifaces == 0 { // none could be written
		return nil
	}
	if err := w.ng.statistics(iface, from, to, received, dropped); err != nil {
		return fmt.Errorf("writing a trace: %w", err)
	}
	return nil
}

// Flush writes what is buffered.
func (w *Writer) Flush() error {
	if err := w.ng.flush(); err != nil {
		return fmt.Errorf("writing a trace: %w", err)
	}
	return nil
}
