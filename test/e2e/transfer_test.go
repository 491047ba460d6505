package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/test/load"
)

const (
	// transfers is how many connections carry large DNS answers, one after the
	// other.
	transfers = 36

	// transferTimeout is when a transfer counts as dead.
	transferTimeout = 10 * time.Second

	// stallLimit is how long one may have to wait for an answer, with -soak.
	stallLimit = 200 * time.Millisecond
)

// transferWindow returns how many queries are on their way in each transfer:
// with -soak so few that an answer which is late is missed at once, else more
// answers than the buffers hold, so that a client which a busy machine keeps off
// the CPU does not look idle.
func transferWindow() int {
	if *soak {
		return 2
	}
	return 128
}

// transferPace is how often each transfer takes an answer.
func transferPace() time.Duration {
	if *soak {
		return 20 * time.Millisecond
	}
	return 60 * time.Millisecond
}

// transferZone is zone(1) with an RRset of about 50 KB at big.
func transferZone() string {
	var b strings.Builder
	b.WriteString(zone(1))
	for i := range 200 {
		fmt.Fprintf(&b, "big TXT \"%03d %s\"\n", i, strings.Repeat("x", 240))
	}
	return b.String()
}

// transfer is one connection that asks for the same again and again, and whose
// answers must be the same to the octet.
type transfer struct {
	conn  net.Conn
	query []byte // with its length

	asked, answered uint16
	octets          int64
	stall           time.Duration // longest wait for an answer
	frame           []byte
	sum             hash.Hash // of all answers, without their IDs
	want            hash.Hash // of the first, as often
	first           []byte
}

// startTransfers opens the connections.
func startTransfers(t *testing.T) (list []*transfer) {
	t.Helper()
	query, err := new(dns.Msg).SetQuestion("big.example.com.", dns.TypeTXT).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for i := range transfers {
		x := &transfer{sum: sha256.New(), want: sha256.New()}
		x.query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10)
			}), err)
		}}
		if x.conn, err = d.DialContext(t.Context(), "tcp", []netip.AddrPort{dns4, dns6}[i%2].String()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.conn.Close() })
		list = append(list, x)
	}
	return list
}

// run transfers until stop is closed, and then what is still owed.
func (x *transfer) run(stop <-chan struct{}) error {
	r := bufio.NewReaderSize(x.conn, 1<<16)
	for range transferWindow() {
		if err := x.ask(); err != nil {
			return err
		}
	}
	tick := time.NewTicker(transferPace())
	defer tick.Stop()
	for {
		select {
		case <-stop:
			for x.answered != x.asked {
				if err := x.take(r); err != nil {
					return err
				}
			}
			return nil
		case <-tick.C:
		}
		if err := errors.Join(x.take(r), x.ask()); err != nil {
			return fmt.Errorf("after %d octets: %w", x.octets, err)
		}
	}
}

func (x *transfer) ask() error {
	binary.BigEndian.PutUint16(x.query[2:], x.asked)
	x.asked++
	_, err := x.conn.Write(x.query)
	return err
}

// take reads the next answer.
func (x *transfer) take(r *bufio.Reader) (err error) {
	began := time.Now()
	if err := x.conn.SetReadDeadline(began.Add(transferTimeout)); err != nil {
		return err
	}
	if x.frame, err = (*load.DNS)(nil).ReadFrame(r, x.frame); err != nil {
		return err
	}
	x.stall = max(x.stall, time.Since(began))
	if got := binary.BigEndian.Uint16(x.frame); got != x.answered {
		return fmt.Errorf("an answer to query %d instead of %d", got, x.answered)
	}
	x.answered++
	content := x.frame[2:]
	if x.first == nil {
		x.first = bytes.Clone(content)
	}
	x.octets += int64(len(content))
	x.sum.Write(content)
	x.want.Write(x.first)
	return nil
}

// transferring has all transfers go on while meanwhile runs, and returns what went
// wrong with any.
func transferring(t *testing.T, meanwhile func()) (faults []error) {
	t.Helper()
	list := startTransfers(t)
	stop := make(chan struct{})
	ended := make([]error, len(list))
	var wg sync.WaitGroup
	for i, x := range list {
		wg.Go(func() { ended[i] = x.run(stop) })
	}
	meanwhile()
	close(stop)
	wg.Wait()
	var octets int64
	var stall time.Duration
	for i, x := range list {
		switch {
		case ended[i] != nil:
			faults = append(faults, fmt.Errorf("transfer %d: %w", i, ended[i]))
		case !bytes.Equal(x.sum.Sum(nil), x.want.Sum(nil)):
			faults = append(faults, fmt.Errorf("transfer %d: the checksum is not that of its first answer, as often", i))
		case *soak && x.stall > stallLimit:
			faults = append(faults, fmt.Errorf("transfer %d: no answer for %v", i, x.stall))
		}
		octets, stall = octets+x.octets, max(stall, x.stall)
		x.conn.Close()
	}
	t.Logf("%d transfers: %d MB, longest stall %v", len(list), octets/1_000_000, stall.Round(time.Millisecond))
	return faults
}

// transferSpan is how long transfers go on from one change to the next.
func transferSpan() time.Duration {
	if *soak {
		return 10 * time.Second
	}
	return time.Second
}

// overReloads has all transfers go on over three reloads, and returns what went
// wrong with any.
func overReloads(s *server) (faults []error) {
	s.t.Helper()
	var reloads []*reloading
	faults = transferring(s.t, func() {
		<-time.After(transferSpan() / 2)
		for range 3 {
			r := s.startReload()
			r.awaitCommit()
			reloads = append(reloads, r)
			<-time.After(transferSpan()) // the old generations serve on
		}
	})
	for _, r := range reloads {
		r.wait()
	}
	return faults
}

// Connections that carry much stay with the generation that accepted them over
// three reloads, each begun while the one before drains; connections made
// meanwhile are neither refused nor reset.
func TestTransfers(t *testing.T) {
	s := start(t, settings{workers: 2}.yaml(), map[string]string{"example.com.zone": transferZone()})
	fresh, err := load.StartTCP(load.TCPConfig{Targets: []netip.AddrPort{who4, who6}, Clients: 4, Rate: 200, PerConn: 1, Protocol: load.Identify{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fresh.Stop(0) })
	for _, err := range overReloads(s) {
		t.Error(err)
	}
	r := fresh.Stop(2 * time.Second)
	t.Logf("new connections: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
}

// The plain way to reload cuts them off: the test above can fail.
func TestTransfersOfRestartFail(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{mode: restart}"}.yaml(), map[string]string{"example.com.zone": transferZone()})
	faults := overReloads(s)
	if len(faults) < transfers {
		t.Errorf("a restart cut off %d of %d transfers: the test does not see what it is there to see", len(faults), transfers)
	}
}
