//go:build dpdk

package primary

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/dpdk/eal"
)

// Limits of the server, against clients that do not go on.
const (
	maxQuestion  = 64 << 10 // octets
	readTimeout  = 5 * time.Second
	closeTimeout = time.Second
)

// serve answers on l until the function it returns is called.
func (p *process) serve(l net.Listener) (stop func()) {
	mux := http.NewServeMux()
	handle(mux, "GET /status", func(struct{}) (*Status, error) { return p.status() })
	handle(mux, "POST /lease", p.lease)
	handle(mux, "POST /stop", p.stop)
	s := &http.Server{Handler: mux, ReadTimeout: readTimeout, ConnContext: withPeer}
	go func() { _ = s.Serve(l) }()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = s.Shutdown(ctx) // an error: a client that does not read
	}
}

type peerKey struct{}

// withPeer notes whether a client may ask: root and the primary's own user may.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	may := false
	if u, ok := c.(*net.UnixConn); ok {
		if raw, err := u.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // an error: may stays false
				cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
				may = err == nil && (cred.Uid == 0 || cred.Uid == uint32(os.Geteuid()))
			})
		}
	}
	return context.WithValue(ctx, peerKey{}, may)
}

func handle[Q, A any](mux *http.ServeMux, pattern string, answer func(Q) (A, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var q Q
		var a any
		code := http.StatusOK
		if may, _ := r.Context().Value(peerKey{}).(bool); !may {
			code, a = http.StatusForbidden, map[string]string{"error": "only root and the user of the primary may ask"}
		} else if err := json.NewDecoder(io.LimitReader(r.Body, maxQuestion)).Decode(&q); err != nil && !errors.Is(err, io.EOF) {
			code, a = http.StatusBadRequest, map[string]string{"error": "the question is no JSON: " + err.Error()}
		} else if a, err = answer(q); err != nil {
			code, a = http.StatusConflict, map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(a) // an error: who asked has gone
	})
}

// stop ends the primary, once this has been answered.
func (p *process) stop(r StopRequest) (struct{}, error) {
	return struct{}{}, p.do(func() error {
		if n := p.living(); n > 0 && !r.Force {
			return fmt.Errorf("%d secondaries live: stop dnsapp first, or use --force", n)
		}
		close(p.end)
		return nil
	})
}

// status describes the primary.
func (p *process) status() (*Status, error) {
	s := &Status{State: p.state, Digest: p.state.Spec.Digest(), DPDK: eal.Version(), StartedAt: p.started}
	return s, p.do(func() error {
		s.Deaths, s.Mended, s.Stuck, s.HeapFree = p.deaths, p.mended, p.stuck, eal.HeapFree()
		for i, d := range p.ports {
			one := Port{
				Name: p.state.Spec.Devices[i].Name, Device: d.Name, Port: d.Port, Driver: d.Driver, MAC: d.MAC.String(), MTU: d.MTU,
				Queues: p.state.Spec.Devices[i].Queues,
			}
			one.Up, one.Mbps = d.Link()
			c, err := d.Stats()
			if err != nil {
				return err
			}
			one.RxPackets, one.TxPackets, one.RxMissed, one.RxErrors, one.TxErrors = c.RxPackets, c.TxPackets, c.RxMissed, c.RxErrors, c.TxErrors
			s.Ports = append(s.Ports, one)
		}
		audit, err := eal.TakeAudit(p.live(), false)
		if err != nil && !errors.Is(err, eal.ErrBusy) {
			return err
		}
		if audit != nil {
			s.Pool = &Pool{
				Size: audit.Size, Free: audit.Free, Rings: audit.Rings, Primary: audit.Process[0], Rx: sum(audit.Rx), Tx: sum(audit.Tx),
				Astray: audit.Astray, Duplicate: audit.Duplicate,
			}
		}
		for _, l := range p.leases {
			one := l.Secondary
			if audit != nil {
				one.Mbufs = audit.Process[l.Lcore]
			}
			s.Secondaries = append(s.Secondaries, one)
		}
		slices.SortFunc(s.Secondaries, func(a, b Secondary) int { return cmp.Compare(a.Lcore, b.Lcore) })
		return nil
	})
}

func sum(counts map[int]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
