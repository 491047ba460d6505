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
	var units []string
	for _, name := range []string{"dnsapp-notify.service", "dnsapp-primary.service"} {
		unit := filepath.Join(dir, name)
		text := strings.ReplaceAll(read(t, "packaging", "systemd", name), "/usr/bin/", dir+"/")
		if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		units = append(units, unit)
	}
	// The drop-in is checked with the unit that it is of.
	drop := filepath.Join(dir, "dnsapp-notify.service.d")
	if err := os.Mkdir(drop, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(drop, "dpdk.conf"), []byte(read(t, "packaging", "systemd", "dnsapp.service.d", "dpdk.conf")), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) != 0 {
		t.Errorf("%v:\n%s", err, out)
	}
}

// With DPDK the folder of the control socket, where the primary's files are, stays for
// as long as either unit lives, and stopping the primary stops dnsapp first.
func TestPrimaryUnit(t *testing.T) {
	primary, drop := settings(read(t, "packaging", "systemd", "dnsapp-primary.service")), settings(read(t, "packaging", "systemd", "dnsapp.service.d", "dpdk.conf"))
	server := settings(read(t, "packaging", "systemd", "dnsapp.service"))
	for _, line := range []string{"RuntimeDirectory=dnsapp", "RuntimeDirectoryMode=0700", "Environment=CONFIG=/etc/dnsapp/dnsapp.yaml", "EnvironmentFile=-/etc/default/dnsapp"} {
		if !slices.Contains(primary, line) || !slices.Contains(server, line) {
			t.Errorf("%s is not in both units", line)
		}
	}
	for unit, want := range map[string][]string{
		"dnsapp-primary.service": {"RuntimeDirectoryPreserve=yes", "ExecStop=/usr/bin/dnsappctl primary stop", "Restart=no"},
		"dpdk.conf":              {"RuntimeDirectoryPreserve=yes", "Requires=dnsapp-primary.service", "After=dnsapp-primary.service", "PrivateDevices=no"},
	} {
		has := primary
		if unit == "dpdk.conf" {
			has = drop
		}
		for _, line := range want {
			if !slices.Contains(has, line) {
				t.Errorf("%s lacks %s", unit, line)
			}
		}
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
		"lib/systemd/system/dnsapp-primary.service":   "\nExecStart=/opt/x/bin/dnsapp primary",
		"share/dnsapp/dnsapp.service.d/dpdk.conf":     "\nRequires=dnsapp-primary.service",
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
