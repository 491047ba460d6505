package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// pipes is a listener whose connections are pipes, for tests in fake time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// servePipe serves b, in a synctest bubble, and returns a connection to it.
func servePipe(t *testing.T, b Backend) net.Conn {
	s := NewServer(b, slog.New(slog.DiscardHandler))
	s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, peer{unix.Ucred{Uid: uint32(os.Geteuid())}, c})
	}
	l := make(pipes)
	go func() { _ = s.http.Serve(l) }()
	here, there := net.Pipe()
	l <- there
	t.Cleanup(func() {
		here.Close()
		close(l)
		synctest.Wait()
		_ = s.http.Close()
	})
	return here
}

// None of the server's time-outs touches a reload that takes a day.
func TestLongReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := servePipe(t, &fakeBackend{
			reload: func(ctx context.Context, _ ReloadOptions, emit func(Event)) (*ReloadReport, error) {
				for range 24 {
					select {
					case <-time.After(time.Hour):
						emit(Event{Step: StepDrain})
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return &ReloadReport{OK: true}, nil
			},
		})
		c := &Client{first: make(chan net.Conn, 1), peer: -1}
		c.first <- conn
		c.http = c.newHTTP()
		defer c.Close()
		events := 0
		report, err := c.Reload(t.Context(), ReloadRequest{}, func(Event) { events++ })
		if err != nil || !report.OK || events != 24 {
			t.Errorf("after %d events: %+v, %v", events, report, err)
		}
	})
}

// A client that takes nothing for writeTimeout counts as gone.
func TestStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		conn := servePipe(t, &fakeBackend{
			reload: func(ctx context.Context, _ ReloadOptions, _ func(Event)) (*ReloadReport, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			},
		})
		began := time.Now()
		_, _ = io.WriteString(conn, "POST /v1/reload HTTP/1.1\r\nHost: dnsapp\r\nContent-Length: 0\r\n\r\n")
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the backend's context ended by %v", err)
		}
		if d := time.Since(began); d != writeTimeout {
			t.Errorf("it ended after %v, want %v", d, writeTimeout)
		}
	})
}
