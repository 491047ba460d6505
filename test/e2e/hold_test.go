package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// holdVariable is what package hold goes by, in a build with its tag.
const holdVariable = "DNSAPP_HOLD"

// holdable builds dnsapp with the places of package hold in it, once, and
// returns the program.
var holdable = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "dnsapp-hold-")
	if err != nil {
		return "", err
	}
	suite.temporary = append(suite.temporary, dir)
	program := filepath.Join(dir, "dnsapp")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "hold", "-o", program, "./cmd/dnsapp")
	build.Dir = suite.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building with -tags hold: %w\n%s", err, out)
	}
	return program, nil
})

// holder has processes of a server wait at places of package hold.
type holder struct {
	l net.Listener

	mu    sync.Mutex // guards rules
	rules map[string]func(*held)
}

// held is a process that waits at a place until release is called.
type held struct {
	pid  int
	conn net.Conn
}

func (h *held) release() { h.conn.Close() }

// newHolder returns a holder for s, and has s run a program that can be held.
func newHolder(s *server) *holder {
	s.t.Helper()
	program, err := holdable()
	if err != nil {
		s.t.Fatal(err)
	}
	s.install(program)
	// Abstract: workers run as a user who may not enter the folder of the test.
	address := "@" + strings.ReplaceAll(strings.TrimPrefix(s.dir, os.TempDir()), "/", "-")
	h := &holder{rules: make(map[string]func(*held))}
	if h.l, err = net.Listen("unix", address); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { h.l.Close() })
	s.env = append(s.env, holdVariable+"="+address)
	go h.serve()
	return h
}

func (h *holder) serve() {
	for {
		c, err := h.l.Accept()
		if err != nil {
			return // it was closed
		}
		go func() {
			line, err := bufio.NewReader(c).ReadString('\n')
			pid, place, _ := strings.Cut(strings.TrimSpace(line), " ")
			at := &held{conn: c}
			if _, scanErr := fmt.Sscan(pid, &at.pid); err != nil || scanErr != nil {
				c.Close() // killed on its way
				return
			}
			h.mu.Lock()
			rule := h.rules[place]
			h.mu.Unlock()
			if rule == nil {
				at.release()
				return
			}
			rule(at)
		}()
	}
}

// at has rule decide on every process that comes to the place from now on; it
// must see to its release. A nil rule lets all pass.
func (h *holder) at(place string, rule func(*held)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rules[place] = rule
}

// letAllPass ends every rule. Who waits already waits on.
func (h *holder) letAllPass() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.rules)
}

// catch holds the first process that comes to the place from now on.
func (h *holder) catch(place string) <-chan *held {
	caught := make(chan *held, 1)
	h.at(place, func(at *held) {
		select {
		case caught <- at:
			h.at(place, nil)
		default:
			at.release()
		}
	})
	return caught
}

// awaitHeld returns what is caught.
func awaitHeld(t *testing.T, caught <-chan *held, place string) *held {
	t.Helper()
	select {
	case at := <-caught:
		return at
	case <-time.After(startTimeout):
		t.Fatalf("nobody came to %q in %v", place, startTimeout)
		return nil
	}
}

// The programs that are shipped have no such places: what would make a process
// wait there is not in them.
func TestProgramCannotBeHeld(t *testing.T) {
	requireSuite(t)
	with, err := holdable()
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]bool{filepath.Join(suite.bin, "dnsapp"): false, with: true} {
		b, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(b, []byte(holdVariable)); got != want {
			t.Errorf("%s names %s: %v, want %v", program, holdVariable, got, want)
		}
	}
}
