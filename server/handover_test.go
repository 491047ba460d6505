package server

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/worker"
)

// That a worker that has just ended cannot be told something is no error; that one that
// lives cannot is.
func TestDelivered(t *testing.T) {
	var text bytes.Buffer
	s := &Supervisor{log: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	g := &generation{}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	link, err := worker.NewLink(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	send := func() error { return link.Send(worker.Message{Op: worker.OpDrain}) }
	s.delivered("draining a worker", g, &process{}, send())
	unix.Close(pair[1])
	err = send()
	if err == nil {
		t.Fatal("sent to nobody")
	}
	s.delivered("draining a worker", g, &process{}, err)
	if text.Len() != 0 {
		t.Errorf("logged: %s", text.String())
	}
	s.delivered("draining a worker", g, &process{index: 3}, errors.New("out of descriptors"))
	if !strings.Contains(text.String(), "level=ERROR") || !strings.Contains(text.String(), "worker=3") {
		t.Errorf("logged: %q", text.String())
	}
}
