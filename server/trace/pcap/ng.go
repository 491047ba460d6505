package pcap

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"
)

// The blocks and options of pcapng that are written here
// (draft-ietf-opsawg-pcapng-04, sections 3.5 and 4).
const (
	blockSection    = 0x0A0D0D0A
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	byteOrderMagic = 0x1A2B3C4D
	linkEthernet   = 1

	optionEnd             = 0
	optionOS              = 3 // of a section
	optionApplication     = 4
	optionName            = 2 // of an interface
	optionDescription     = 3
	optionTimeResolution  = 9
	optionFilter          = 11
	optionStart           = 2 // of statistics
	optionStop            = 3
	optionReceived        = 4
	optionDropped         = 5
	nanoseconds           = 9 // a power of ten
	filterIsText          = 0
	sectionLengthNotKnown = 1<<64 - 1
)

// ng writes the blocks of one section. Nothing but the pcapng format is known here.
//
// It is written out because the library for it, gopacket/pcapgo, brings tables of all
// layers: 6 MB and 7 ms at the start of every process, workers included. The tests
// read what is written with it.
type ng struct {
	w     *bufio.Writer
	block []byte // under construction
	err   error  // the first of a write
}

func newNg(w io.Writer) *ng { return &ng{w: bufio.NewWriter(w)} }

// begin begins a block. Its length follows at the end.
func (n *ng) begin(typ uint32) {
	n.block = binary.LittleEndian.AppendUint32(n.block[:0], typ)
	n.block = binary.LittleEndian.AppendUint32(n.block, 0)
}

// end writes the block.
func (n *ng) end() error {
	n.block = binary.LittleEndian.AppendUint32(n.block, uint32(len(n.block)+4))
	binary.LittleEndian.PutUint32(n.block[4:], uint32(len(n.block)))
	if n.err == nil {
		_, n.err = n.w.Write(n.block)
	}
	return n.err
}

func (n *ng) u16(v uint16) { n.block = binary.LittleEndian.AppendUint16(n.block, v) }
func (n *ng) u32(v uint32) { n.block = binary.LittleEndian.AppendUint32(n.block, v) }
func (n *ng) u64(v uint64) { n.block = binary.LittleEndian.AppendUint64(n.block, v) }

// time is written with its upper half first.
func (n *ng) time(at time.Time) {
	ns := uint64(at.UnixNano())
	n.u32(uint32(ns >> 32))
	n.u32(uint32(ns))
}

// pad fills the block up to a whole number of words.
func (n *ng) pad() {
	for len(n.block)%4 != 0 {
		n.block = append(n.block, 0)
	}
}

// maxOption bounds an option's value, whose length has two octets.
const maxOption = 1<<16 - 1

func (n *ng) option(code uint16, value string) {
	value = value[:min(len(value), maxOption)]
	n.u16(code)
	n.u16(uint16(len(value)))
	n.block = append(n.block, value...)
	n.pad()
}

func (n *ng) timeOption(code uint16, at time.Time) {
	n.u16(code)
	n.u16(8)
	n.time(at)
}

func (n *ng) countOption(code uint16, v uint64) {
	n.u16(code)
	n.u16(8)
	n.u64(v)
}

func (n *ng) section(application string) error {
	n.begin(blockSection)
	n.u32(byteOrderMagic)
	n.u16(1) // version 1.0
	n.u16(0)
	n.u64(sectionLengthNotKnown)
	n.option(optionOS, "Linux")
	n.option(optionApplication, application)
	n.option(optionEnd, "")
	return n.end()
}

func (n *ng) iface(name, description, filter string, snap int) error {
	n.begin(blockInterface)
	n.u16(linkEthernet)
	n.u16(0)
	n.u32(uint32(snap))
	n.option(optionName, name)
	n.option(optionDescription, description)
	n.option(optionTimeResolution, string(rune(nanoseconds)))
	if filter != "" {
		n.option(optionFilter, string(rune(filterIsText))+filter)
	}
	n.option(optionEnd, "")
	return n.end()
}

// packet writes data, which was of length octets before it was cut.
func (n *ng) packet(iface int, at time.Time, data []byte, length int) error {
	n.begin(blockPacket)
	n.u32(uint32(iface))
	n.time(at)
	n.u32(uint32(len(data)))
	n.u32(uint32(length))
	n.block = append(n.block, data...)
	n.pad()
	return n.end()
}

func (n *ng) statistics(iface int, from, to time.Time, received, dropped uint64) error {
	n.begin(blockStatistics)
	n.u32(uint32(iface))
	n.time(to)
	n.timeOption(optionStart, from)
	n.timeOption(optionStop, to)
	n.countOption(optionReceived, received)
	n.countOption(optionDropped, dropped)
	n.option(optionEnd, "")
	return n.end()
}

func (n *ng) flush() error {
	if n.err == nil {
		n.err = n.w.Flush()
	}
	return n.err
}
