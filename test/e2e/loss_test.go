package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lossRow is what `bench/loss -json` says of a server.
type lossRow struct {
	Server, Missing, Void, Behind string
	Flows, DNS                    struct{ Sent, Answered, Lost, Duplicate, Wrong uint64 }
	Lived                         int   `json:"flows_lived"`
	Moved                         int   `json:"flows_moved"`
	FirstAnswer                   []int `json:"first_answer_ns"`
}

// The program behind `make demo-loss` finds nothing lost and no flow moved with
// dnsapp; that it would is seen with `mode: restart`. The other servers are
// measured where they are installed, and what they come to is theirs.
func TestDemoLoss(t *testing.T) {
	const reloads = 2
	rows := demoLoss(t, "-reloads", "2", "-every", "400ms", "-flows", "50", "-dns-rate", "2000")
	for _, name := range []string{"nginx, stream UDP", "CoreDNS", "dnsapp, mode: restart", "dnsapp"} {
		r, ok := rows[name]
		switch {
		case !ok:
			t.Errorf("no row of %s", name)
		case r.Missing != "" && !strings.HasPrefix(name, "dnsapp"):
			t.Logf("NOT MEASURED: %s: %s", name, r.Missing)
		case r.DNS.Sent == 0 || len(r.FirstAnswer) != reloads || (r.Flows.Sent == 0) != (name == "CoreDNS"):
			t.Errorf("%s was not loaded and reloaded: %+v", name, r)
		default:
			t.Logf("%+v", r)
		}
	}
	own, plain := rows["dnsapp"], rows["dnsapp, mode: restart"]
	if own.Void == "" && (own.Flows.Lost != 0 || own.DNS.Lost != 0 || own.Moved != 0 || own.Lived == 0) {
		t.Errorf("dnsapp has lost or moved something: %+v", own)
	}
	if plain.Moved == 0 {
		t.Errorf("no flow has moved in a restart: the program sees nothing: %+v", plain)
	}
	for _, r := range []lossRow{own, plain} {
		if n := r.Flows.Duplicate + r.Flows.Wrong + r.DNS.Duplicate + r.DNS.Wrong; n != 0 {
			t.Errorf("%d answers too many or wrong: %+v", n, r)
		}
	}
}

// demoLoss runs bench/loss and returns its rows by server.
func demoLoss(t *testing.T, args ...string) map[string]lossRow {
	t.Helper()
	requireSuite(t)
	program := filepath.Join(t.TempDir(), "loss")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./bench/loss")
	build.Dir = suite.root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	coredns := "coredns"
	if cache, err := os.UserCacheDir(); err == nil { // where bench/loss/coredns.sh puts it
		if found, err := filepath.Glob(filepath.Join(cache, "dnsapp-bench", "coredns-*", "coredns")); err == nil && len(found) > 0 {
			coredns = found[len(found)-1]
		}
	}
	cmd := exec.CommandContext(t.Context(), program, append([]string{"-json", "-bin", suite.bin, "-coredns", coredns}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	rows := map[string]lossRow{}
	for lines := json.NewDecoder(strings.NewReader(string(out))); lines.More(); {
		var r lossRow
		if err := lines.Decode(&r); err != nil {
			t.Fatal(err)
		}
		rows[r.Server] = r
	}
	return rows
}
