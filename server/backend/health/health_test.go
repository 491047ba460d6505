package health

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

var errDead = errors.New("dead")

// told is what Run says about a server that is alive or not, a letter for each try:
// "." it answers, "x" it does not. Every word is a check.
func told(t *testing.T, p Plan, down bool, tries string) (all []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		Run(ctx, p, func(context.Context) error {
			if n == len(tries) {
				cancel()
				return nil
			}
			n++
			if tries[n-1] == 'x' {
				return errDead
			}
			return nil
		}, down, func(err error) {
			all = append(all, map[bool]string{true: "up", false: "down"}[err == nil])
		})
	})
	return all
}

func TestRun(t *testing.T) {
	p := Plan{Interval: time.Second, Timeout: time.Second, Tries: 2, Rise: 2}
	for _, c := range []struct {
		tries string
		down  bool
		want  []string
	}{
		{"....", false, nil},
		{".x..x..", false, nil}, // each time the second try succeeds
		{".xx", false, []string{"down"}},
		{".xx.xx..", false, []string{"down", "up"}}, // one good check is not enough
		{".xx..xx", false, []string{"down", "up", "down"}},
		{"..", true, []string{"up"}},
		{"xxxx", true, nil},
	} {
		if diff := cmp.Diff(c.want, told(t, p, c.down, c.tries)); diff != "" {
			t.Errorf("%s, down %v (-want +got):\n%s", c.tries, c.down, diff)
		}
	}
}

// A server that dies is down within an interval, its tries included.
func TestRunIsQuick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Plan{Interval: time.Second, Timeout: 400 * time.Millisecond, Tries: 2, Rise: 1}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		const dies = 3700 * time.Millisecond
		Run(ctx, p, func(ctx context.Context) error {
			if time.Since(began) < dies {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, false, func(error) {
			if took := time.Since(began) - dies; took > p.Interval+2*p.Timeout {
				t.Errorf("down after %v", took)
			}
			cancel()
		})
	})
}

func local(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

// attempt makes a try with a second of time.
func attempt(t *testing.T, try Try) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return try(ctx)
}

func expect(t *testing.T, what string, err error, good bool) {
	t.Helper()
	if (err == nil) != good {
		t.Errorf("%s: %v", what, err)
	}
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	try := TCP(local(l.Addr()))
	expect(t, "it listens", attempt(t, try), true)
	l.Close()
	expect(t, "it is closed", attempt(t, try), false)
}

func TestUDP(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if string(b[:n]) == "ping" {
				_, _ = c.WriteTo([]byte("pong 1"), from)
			}
		}
	}()
	at := local(c.LocalAddr())
	expect(t, "it answers", attempt(t, UDP(at, []byte("ping"), []byte("pong"))), true)
	expect(t, "anything will do", attempt(t, UDP(at, []byte("ping"), nil)), true)
	expect(t, "another answer", attempt(t, UDP(at, []byte("ping"), []byte("pang"))), false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	expect(t, "silence", UDP(at, []byte("what"), nil)(ctx), false)
	c.Close()
	expect(t, "nobody listens", attempt(t, UDP(at, []byte("ping"), nil)), false)
}

func TestDNS(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var rcode atomic.Int64
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if q.Question[0].Name != "example.com." || q.Question[0].Qtype != dns.TypeSOA {
			t.Errorf("the question is %v", q.Question)
		}
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, int(rcode.Load())))
	})}
	go func() { _ = s.ActivateAndServe() }()
	defer func() { _ = s.Shutdown() }()
	try := DNS(local(c.LocalAddr()), []byte("\x07example\x03com\x00"))
	for r, good := range map[int]bool{dns.RcodeSuccess: true, dns.RcodeNameError: true, dns.RcodeServerFailure: false, dns.RcodeRefused: false} {
		rcode.Store(int64(r))
		expect(t, dns.RcodeToString[r], attempt(t, try), good)
	}
}

func TestHTTP(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/moved":
			http.Redirect(w, r, "/nowhere", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	at := local(s.Listener.Addr())
	expect(t, "200", attempt(t, HTTP(at, "/health")), true)
	expect(t, "302", attempt(t, HTTP(at, "/moved")), true)
	expect(t, "503", attempt(t, HTTP(at, "/other")), false)
	s.Close()
	expect(t, "closed", attempt(t, HTTP(at, "/health")), false)
}
