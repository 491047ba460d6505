package worker

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/directory"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// A worker whose supervisor is gone gives the next one all it has, obeys it, and
// waits again when that is gone, too.
func TestNextSupervisor(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.listen(config.AffinityFlow, true)
	dir := t.TempDir()
	var err error
	if w.door, err = handover.Open(dir, handover.WorkerDoor(1, 0)); err != nil {
		t.Fatal(err)
	}
	p := w.start(t, func(*Manifest) {})
	unix.Close(w.door)
	if m, _, err := p.link.Receive(); err != nil || m.Op != OpReady {
		t.Fatalf("%+v, %v", m, err)
	}
	p.link.Close()
	for range 3 {
		c, err := handover.Knock(dir, handover.WorkerDoor(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		e, err := ReceiveEstate(c)
		if err != nil {
			t.Fatal(err)
		}
		if e.PID != p.PID || e.Stopping || e.Manifest.Epoch != 1 || len(e.Manifest.Sockets) != len(w.sockets) {
			t.Fatalf("%+v", e)
		}
		r, err := shm.Map(e.FD(e.Manifest.Directory))
		if err != nil {
			t.Fatal(err)
		}
		d, err := directory.Attach(r)
		if err != nil || !d.Worker(0, 0).IsReady(1, p.PID) {
			t.Errorf("the directory does not know the worker (%v)", err)
		}
		r.Close()
		if fd := e.FD(e.Manifest.Directory); fd != -1 {
			t.Errorf("the directory was given twice")
		}
		e.Close()
		c.Close()
	}
	c, err := handover.Knock(dir, handover.WorkerDoor(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	e, err := ReceiveEstate(c)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	if err := handover.ShowSender(c, false); err != nil {
		t.Fatal(err)
	}
	l := LinkOf(c)
	defer l.Close()
	if m, _, err := l.Receive(); err != nil || m.Op != OpReady {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := l.Send(Message{Op: OpQuit}); err != nil {
		t.Fatal(err)
	}
	if status, said := p.ended(); status != 0 {
		t.Errorf("it ended by %s and said:\n%s", spawn.Describe(status), said)
	}
}

// What is no estate is refused.
func TestEstateRefused(t *testing.T) {
	for want, text := range map[string]string{
		"speaks protocol 1":   `{"Protocol": 1}`,
		"no manifest":         `{"Protocol": 7}`,
		"out of range":        `{"Protocol": 7, "Manifest": {"slot": 9, "config": {"workers": 1}}}`,
		"descriptor 7 of 1":   `{"Protocol": 7, "Manifest": {"directory": 7, "config": {"workers": 1}}}`,
		"reading an estate: ": `{`,
	} {
		if _, err := readEstate([]byte(text), []int{0}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Whatever is received is no reason to end, and no descriptor is taken that did not
// come.
func FuzzEstate(f *testing.F) {
	f.Add([]byte(`{"Protocol": 7, "Version": 3, "Manifest": {"slot": 1, "directory": 5, "wakes": [[], [6]], "config": {"workers": 1}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := readEstate(b, []int{100, 101})
		if err != nil {
			return
		}
		for fd := range e.Manifest.descriptors() {
			if got := e.FD(*fd); got != -1 && got != 100 && got != 101 {
				t.Errorf("descriptor %d is %d", *fd, got)
			}
		}
	})
}
