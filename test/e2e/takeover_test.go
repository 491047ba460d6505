package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnsapp/dnsapp/server/exit"
)

// nobody is a user who may do nothing.
const nobody = 65534

// give gives the folder of the server to another user, and lets others look into it.
func (s *server) give(uid int) {
	s.t.Helper()
	if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	}); err != nil {
		s.t.Fatal(err)
	}
}

// A supervisor that wants to take over from another user, or from another network,
// time or pid namespace, is refused with the reason, and changes nothing.
func TestTakeOverFromElsewhere(t *testing.T) {
	as := func(uid uint32) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	for _, c := range []struct {
		name  string
		runs  int      // the user that the instance runs as
		by    []string // what starts the other one
		attr  *syscall.SysProcAttr
		wants string
	}{
		{name: "network", attr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}, wants: "not in the same network namespace"},
		{name: "time", by: []string{"unshare", "--time", "--fork"}, wants: "not in the same time namespace"},
		{name: "pid", by: []string{"unshare", "--pid", "--fork"}, wants: "not in the same pid namespace"},
		{name: "user", attr: as(nobody), wants: "this process runs as user id 65534"},
		{name: "root", runs: nobody, wants: "runs as user id 65534, the one that wants it as 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, settings{reload: upgradeReload}.yaml(), zoneFiles())
			s.give(c.runs)
			s.start(func(cmd *exec.Cmd) { cmd.SysProcAttr = as(uint32(c.runs)) })
			s.awaitReady()
			before := s.status()
			p := startProbe(t)
			args := append(append([]string{}, c.by...), s.exe, "serve", "-c", s.config, "--take-over", s.path("control.sock"))
			other, why := exec.CommandContext(t.Context(), args[0], args[1:]...), new(bytes.Buffer)
			other.SysProcAttr, other.Stderr = c.attr, why
			other.WaitDelay = time.Second
			_ = other.Run() // its exit code is looked at
			if code := other.ProcessState.ExitCode(); code != exit.Refused || !strings.Contains(why.String(), c.wants) {
				t.Errorf("code %d, %s", code, why)
			}
			awaitAnswers(t, p.dns, 20)
			if after := s.status(); after.PID != before.PID || s.epoch() != before.Generations[0].Epoch || after.Standby != nil {
				t.Errorf("pid %d has epoch %d, and %d had %d", after.PID, s.epoch(), before.PID, before.Generations[0].Epoch)
			}
			r := p.stop()
			if err := r.Exact(); err != nil {
				t.Error(err)
			}
			s.ctl("upgrade", "--binary", s.exe) // and one that is not elsewhere is not
			s.stopAll()
		})
	}
}

// The door of the supervisor comes back when it was removed, alone or with the control
// directory, and an upgrade finds it.
func TestDoorPutBack(t *testing.T) {
	config := strings.Replace(settings{reload: upgradeReload}.yaml(), "control: control.sock", "control: ctl/control.sock", 1)
	s := newServer(t, config, zoneFiles())
	if err := os.Symlink("ctl/control.sock", s.path("control.sock")); err != nil { // where dnsappctl looks
		t.Fatal(err)
	}
	s.serve()
	s.awaitReady()
	door := s.path("ctl/supervisor.door")
	p := startProbe(t)
	for i, what := range []string{door, s.path("ctl")} {
		if err := os.RemoveAll(what); err != nil {
			t.Fatal(err)
		}
		s.await(5*time.Second, "the door is back", func() bool {
			info, err := os.Lstat(door)
			return err == nil && info.Mode().Perm() == 0o600 && strings.Count(s.log(), "door of the supervisor was gone") == i+1
		})
	}
	s.reload() // which makes doors for its workers
	s.ctl("upgrade", "--binary", s.next())
	s.ctl("upgrade", "--drain-old")
	s.awaitVersion(nextVersion, false)
	r := p.stop()
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.stopAll()
	if err := os.Remove(s.path("control.sock")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(door); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the door is left (%v)", err)
	}
}

// Hundreds of sockets, more than a message can carry, change hands; a supervisor that
// may not have so many descriptors gets none, and the one before goes on with all.
func TestUpgradeOfManySockets(t *testing.T) {
	var list []string
	for i := range 150 {
		list = append(list, fmt.Sprintf("%q", fmt.Sprintf("127.0.9.%d:5313", i+1)))
	}
	more := "  - {name: many, address: [" + strings.Join(list, ", ") + "], service: identify, affinity: flow}\n"
	s := start(t, settings{workers: 2, reload: upgradeReload, more: more}.yaml(), zoneFiles())
	next, old := s.next(), s.status().Version
	p := startProbe(t)
	answer := func() {
		t.Helper()
		for _, i := range []int{1, 75, 150} {
			for _, network := range []string{"udp", "tcp"} {
				whoAnswers(t, network, fmt.Sprintf("127.0.9.%d:5313", i))
			}
		}
	}
	few := s.script("few", "[ \"$1\" = version ] && exec "+next+" version --handover\nulimit -n 200\nexec "+next+" \"$@\"")
	if _, errs, code := s.tryCtl("upgrade", "--binary", few); code != exit.Failed || !strings.Contains(string(errs), "limit of open files") {
		t.Errorf("with few descriptors: code %d, %s", code, errs)
	}
	s.awaitVersion(old, false)
	answer()
	s.ctl("upgrade", "--binary", next)
	s.awaitVersion(nextVersion, true)
	answer()
	s.ctl("upgrade", "--rollback")
	s.awaitVersion(old, false)
	s.killSupervisor()
	s.serve()
	s.awaitVersion(old, false)
	answer()
	r := p.stop()
	t.Logf("probe: %v", r)
	if err := r.Exact(); err != nil {
		t.Error(err)
	}
	s.stopAll()
}
