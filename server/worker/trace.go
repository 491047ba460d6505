package worker

import (
	"context"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/packet"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/trace"
)

// A datagram of a client is copied where it is served, so that the trace says which
// worker of which generation has it: not by a reader that forwards it. On a NIC whole
// frames are copied: those received by who reads the queue, those sent by who has made
// them.

// TraceRef is what a worker is to copy, and the region that it copies to.
type TraceRef struct {
	FD     int    `json:"fd"`
	Filter string `json:"filter"`
	Snap   int    `json:"snap"`
}

// beginTrace has the lanes copy what ref says, in place of what they copied before.
// It takes the descriptor over.
func (w *Worker) beginTrace(ctx context.Context, ref *TraceRef) {
	taps, region, err := openTrace(ref)
	if err == nil && len(taps) < len(w.lanes) {
		err = shm.ErrLayout
	}
	if err != nil { // it is about watching, not about serving
		w.log.Error("this worker is not traced", "error", err)
		return
	}
	for i, l := range w.lanes {
		l.tap.Store(taps[i])
	}
	w.retireTrace(ctx, region)
}

func openTrace(ref *TraceRef) ([]*trace.Tap, *shm.Region, error) {
	f, err := trace.Parse(ref.Filter)
	if err != nil {
		unix.Close(ref.FD)
		return nil, nil, err
	}
	r, err := shm.Map(ref.FD)
	if err != nil {
		unix.Close(ref.FD)
		return nil, nil, err
	}
	taps, err := trace.Taps(r, f, ref.Snap)
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	return taps, r, nil
}

// endTrace has the lanes copy nothing.
func (w *Worker) endTrace(ctx context.Context) {
	for _, l := range w.lanes {
		l.tap.Store(nil)
	}
	w.retireTrace(ctx, nil)
}

// retireTrace closes the region that the lanes copied to so far, when none can be
// in it any more. next is the one that they copy to now, nil for none.
func (w *Worker) retireTrace(ctx context.Context, next *shm.Region) {
	old := w.traced
	w.traced = next
	if old == nil {
		return
	}
	go func() {
		if w.zoneUsers.Wait(ctx) != nil {
			return // the process ends, and its mappings with it
		}
		if err := old.Close(); err != nil {
			w.log.Error("closing a trace", "error", err)
		}
	}()
}

// traceReceived copies what a lane has got of its clients.
func (l *lane) traceReceived(b *burst.Burst) {
	if t := l.tap.Load(); t != nil {
		t.Received(b)
	}
}

// traceSent copies what a lane has sent to its clients.
func (l *lane) traceSent(b *burst.Burst) {
	if t := l.tap.Load(); t != nil {
		t.Sent(b, mono.Now())
	}
}

// traceFrames copies frames that a lane has received, before anything is written to them.
func (l *lane) traceFrames(frames []packet.Frame, now int64) {
	if t := l.tap.Load(); t != nil {
		for i := range frames {
			t.Frame(frames[i].Data, now, false)
		}
		t.Flush()
	}
}

// traceFrame copies a frame that a lane sends.
func (l *lane) traceFrame(frame []byte) {
	if t := l.tap.Load(); t != nil {
		t.Frame(frame, mono.Now(), true)
		t.Flush()
	}
}

// traceServer copies what a proxy has sent to a server: those datagrams of b that
// which lists, the first with header before it.
func (l *lane) traceServer(fd int, b *burst.Burst, which []uint8, header []byte) {
	t := l.tap.Load()
	if t == nil {
		return
	}
	local, remote, ok := ends(fd)
	if !ok {
		return
	}
	now := mono.Now()
	for _, at := range which {
		t.Datagram(&local, &remote, header, b.Packets[at].Payload, now, true)
		header = nil
	}
	t.Flush()
}

// traceAnswers copies what a proxy has got from a server: the replies of b from
// number from on.
func (l *lane) traceAnswers(fd int, b *burst.Burst, from int) {
	t := l.tap.Load()
	if t == nil {
		return
	}
	local, remote, ok := ends(fd)
	if !ok {
		return
	}
	now := mono.Now()
	for i := from; i < b.N; i++ {
		t.Answers(&remote, &local, &b.Packets[i], now, false)
	}
	t.Flush()
}

// ends returns the addresses of a connected socket. That takes two system calls,
// which only what is traced pays for.
func ends(fd int) (local, remote burst.Endpoint, ok bool) {
	from, err1 := unix.Getsockname(fd)
	to, err2 := unix.Getpeername(fd)
	if err1 != nil || err2 != nil {
		return local, remote, false // it was closed by an error meanwhile
	}
	return endpointOf(from), endpointOf(to), true
}

func endpointOf(sa unix.Sockaddr) burst.Endpoint {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return burst.EndpointOf(netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)))
	case *unix.SockaddrInet6:
		return burst.EndpointOf(netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)))
	}
	return burst.Endpoint{}
}
