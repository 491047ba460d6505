package packaging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var root = filepath.Join("..", "..")

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{root}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// settings returns the lines of a unit that are no comments.
func settings(unit string) []string {
	var list []string
	for line := range strings.Lines(unit) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

// The two units are one, but for how systemd learns of a reload.
func TestUnitsAgree(t *testing.T) {
	newer, older := settings(read(t, "packaging", "systemd", "dnsapp.service")), settings(read(t, "packaging", "systemd", "dnsapp-notify.service"))
	only := func(a, b []string) (list []string) {
		for _, line := range a {
			if !slices.Contains(b, line) {
				list = append(list, line)
			}
		}
		return list
	}
	if d := cmp.Diff([]string{"Type=notify-reload"}, only(newer, older)); d != "" {
		t.Errorf("only in dnsapp.service (-want +got):\n%s", d)
	}
	want := []string{"Type=notify", "ExecReload=/usr/bin/dnsappctl reload --wait commit", "Alias=dnsapp.service"}
	if d := cmp.Diff(want, only(older, newer)); d != "" {
		t.Errorf("only in dnsapp-notify.service (-want +got):\n%s", d)
	}
	for _, line := range []string{
		"KillMode=process", // workers outlive the supervisor
		"FileDescriptorStoreMax=2048",
		"NoNewPrivileges=yes",     // does not touch setuid(2)
		"RuntimeDirectory=dnsapp", // of the control socket
		"RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK",
	} {
		if !slices.Contains(newer, line) {
			t.Errorf("dnsapp.service lacks %s", line)
		}
	}
	for _, line := range newer {
		if key, _, _ := strings.Cut(line, "="); key == "ProtectProc" || key == "ProcSubset" {
			t.Errorf("%s hides the workers from the supervisor", line)
		}
	}
}

// systemd finds nothing wrong with the unit that it knows.
func TestUnitsVerify(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: there is no systemd-analyze")
	}
	dir := t.TempDir()
	for _, program := range []string{"dnsapp", "dnsappctl"} {
		if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unit := filepath.Join(dir, "dnsapp-notify.service")
	text := strings.ReplaceAll(read(t, "packaging", "systemd", "dnsapp-notify.service"), "/usr/bin/", dir+"/")
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Everything is installed, under the prefix, with completions that the binaries
// themselves have made and units that name them.
func TestInstall(t *testing.T) {
	bin, dest := t.TempDir(), t.TempDir()
	for _, program := range []string{"dnsapp", "dnsappctl"} {
		script := fmt.Sprintf("#!/bin/sh\necho \"%s $*\"\n", program)
		if err := os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(filepath.Join(root, "packaging", "install.sh"), bin, dest, "/opt/x").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for file, want := range map[string]string{
		"bin/dnsapp":    "#!/bin/sh",
		"bin/dnsappctl": "#!/bin/sh",
		"share/bash-completion/completions/dnsappctl": "dnsappctl completion bash\n",
		"share/bash-completion/completions/dnsapp":    "dnsapp completion bash\n",
		"share/zsh/site-functions/_dnsappctl":         "dnsappctl completion zsh\n",
		"share/fish/vendor_completions.d/dnsapp.fish": "dnsapp completion fish\n",
		"share/man/man8/dnsapp.8":                     ".TH DNSAPP 8",
		"share/man/man8/dnsappctl-reload.8":           ".TH DNSAPPCTL\\-RELOAD 8",
		"lib/systemd/system/dnsapp.service":           "\nExecStart=/opt/x/bin/dnsapp serve",
		"lib/systemd/system/dnsapp-notify.service":    "\nExecReload=/opt/x/bin/dnsappctl reload",
	} {
		b, err := os.ReadFile(filepath.Join(dest, "opt", "x", file))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %q", file, want)
		}
		if strings.Contains(string(b), "=/usr/bin/") {
			t.Errorf("%s still names /usr/bin", file)
		}
	}
}
