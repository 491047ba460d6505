package e2e

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// takerPlaces are where a supervisor that takes over waits, beside those of its
// reload.
var takerPlaces = []string{"offered", "before taken", "after taken"}

// upgradePlaces are the places at which supervisors are killed, all of them with -soak.
func upgradePlaces() []string {
	if *soak {
		return append(slices.Clone(takerPlaces), slices.Sorted(maps.Values(places))...)
	}
	return append(slices.Clone(takerPlaces), places[atT1], places[atParked], places[atT3])
}

// Whichever of the two supervisors is killed at any step of an upgrade, or of its way
// back, the other one has the instance in the end; with both killed the next one has.
// Nobody who asks sees anything of it. With -soak every step is tried.
func TestUpgradeKilled(t *testing.T) {
	for _, way := range []struct {
		name string
		args []string // of dnsappctl, but for the binary
	}{
		{"upgrade", []string{"upgrade", "--binary"}},
		{"rollback", []string{"upgrade", "--rollback"}},
	} {
		for _, victim := range []string{"taker", "giver", "both"} {
			t.Run(way.name+"/"+victim, func(t *testing.T) {
				s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
				h := newHolder(s)
				s.serve()
				s.awaitReady()
				next, old := s.next(), s.status().Version
				p := startProbe(t)
				back := way.name == "rollback"
				for _, place := range upgradePlaces() {
					giver, args := s.cmd.Process.Pid, append(slices.Clone(way.args), next)
					takes, gives := nextVersion, old
					if back {
						s.ctl("upgrade", "--binary", next)
						s.awaitVersion(nextVersion, true)
						giver, args, takes, gives = s.status().PID, way.args, old, nextVersion
					}
					caught := h.catch(place)
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						s.tryCtl(args...)
					}()
					at := awaitHeld(t, caught, place)
					awaitAnswers(t, p.dns, 10)
					if (at.pid == s.cmd.Process.Pid) != back {
						t.Fatalf("%s: process %d waits, and %d was started first", place, at.pid, s.cmd.Process.Pid)
					}
					if victim != "taker" {
						kill(t, giver, syscall.SIGKILL)
					}
					if victim != "giver" {
						kill(t, at.pid, syscall.SIGKILL)
					}
					at.release()
					<-ended
					awaitAnswers(t, p.dns, 10)
					switch victim {
					case "taker":
						s.awaitVersion(gives, false)
						giver = s.status().PID
					case "giver":
						s.awaitVersion(takes, false)
						giver = s.status().PID
					}
					// Whoever has it now gives way to one that was started first.
					if victim != "both" && giver != s.cmd.Process.Pid {
						kill(t, giver, syscall.SIGKILL)
					}
					if victim == "both" || giver != s.cmd.Process.Pid {
						s.awaitExit(5 * time.Second)
						s.serve()
						s.awaitVersion(old, false)
					}
				}
				awaitAnswers(t, p.who, 10)
				r := p.stop()
				t.Logf("probe: %v", r)
				if err := r.Exact(); err != nil {
					t.Error(err)
				}
				if l := s.ledger(); sum(l.Dropped) != 0 || sum(l.RingDropped) != 0 || l.KernelDropped != 0 {
					t.Errorf("ledger %+v", l)
				}
			})
		}
	}
}

// A supervisor that has committed and dies while the generation before its own drains
// is replaced by the one before; that one may die first.
func TestKilledWhileDraining(t *testing.T) {
	s := start(t, settings{workers: 2, reload: "{udp_idle: 1m}"}.yaml(), zoneFiles())
	next, old := s.next(), s.status().Version
	flows := identify(t, 20, 200)
	awaitAnswers(t, flows, 20)
	has := func(version string) {
		t.Helper()
		s.await(startTimeout, version+" has the instance", func() bool { st, ok := s.tryStatus(); return ok && st.Version == version && st.Step.Committed() })
		awaitAnswers(t, flows, 20)
	}
	s.ctl("upgrade", "--binary", next, "--wait", "commit")
	has(nextVersion)
	s.killSupervisor() // the one before
	s.await(startTimeout, "nobody stands by", func() bool { st, ok := s.tryStatus(); return ok && st.Standby == nil })
	has(nextVersion)
	s.ctl("upgrade", "--binary", s.exe, "--wait", "commit")
	has(old)
	first, second := s.status().Standby.PID, s.status().PID
	kill(t, first, syscall.SIGKILL) // both at once
	kill(t, second, syscall.SIGKILL)
	awaitAnswers(t, flows, 20)
	s.serve()
	has(old)
	r := flows.Stop(time.Second)
	t.Logf("flows: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.stopAll()
}

// A supervisor that dies while the one before it stands by is replaced by that one,
// under a service manager, too.
func TestStandbyTakesBack(t *testing.T) {
	s := newServer(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	// It is read from the first: its queue takes ten messages, and the next are lost.
	told := make(chan string, 1000)
	go func() {
		for b := make([]byte, 1<<16); ; {
			n, err := manager.Read(b)
			if err != nil {
				close(told)
				return
			}
			if _, rest, ok := strings.Cut(string(b[:n]), "MAINPID="); ok {
				main, _, _ := strings.Cut(rest, "\n")
				told <- main
			}
		}
	}()
	s.env = append(s.env, "NOTIFY_SOCKET="+s.path("notify"))
	s.serve()
	s.awaitReady()
	old := s.status().Version
	p := startProbe(t)
	s.ctl("upgrade", "--binary", s.next())
	s.awaitVersion(nextVersion, true)
	kill(t, s.status().PID, syscall.SIGKILL)
	s.awaitVersion(old, false)
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	// Who the main process is was told at each change.
	var mains []string
	if err := manager.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	for main := range told {
		if len(mains) == 0 || mains[len(mains)-1] != main {
			mains = append(mains, main)
		}
	}
	if pid := fmt.Sprint(s.cmd.Process.Pid); len(mains) < 3 || mains[0] != pid || mains[len(mains)-1] != pid {
		t.Errorf("main processes %v; it was to be %s in the end", mains, pid)
	}
}

// With both supervisors killed the workers serve on, and the next supervisor adopts
// them.
func TestBothSupervisorsKilled(t *testing.T) {
	s := start(t, settings{workers: 2, reload: upgradeReload}.yaml(), zoneFiles())
	old := s.status().Version
	s.ctl("upgrade", "--binary", s.next())
	p := startProbe(t)
	epoch, pid := s.epoch(), s.status().PID
	s.signal(syscall.SIGKILL)
	kill(t, pid, syscall.SIGKILL)
	s.awaitExit(5 * time.Second)
	awaitAnswers(t, p.dns, 100)
	s.serve()
	s.awaitVersion(old, false)
	if got := s.epoch(); got != epoch+1 {
		t.Errorf("epoch %d after %d", got, epoch)
	}
	r := p.stop()
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
}
