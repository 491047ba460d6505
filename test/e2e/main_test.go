package e2e

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dnsapp/dnsapp/test/netns"
)

// suite is what all tests share; TestMain sets it once, but for temporary.
var suite struct {
	bin       string   // folder of dnsapp and dnsappctl
	root      string   // of the project
	skipped   error    // why no test can run
	temporary []string // folders to remove at the end
}

// soak has tests run their long form. Tests of load then make as much as the
// machine can, and judge times: it must have nothing else to do.
var soak = flag.Bool("soak", false, "run the long form of tests, at full load: some minutes each")

// clients6 is the prefix that IPv6 flows come from.
var clients6 = netip.MustParsePrefix("fd64::/64")

// second6 is a second IPv6 address of the host.
var second6 = netip.MustParseAddr("fd65::1")

func TestMain(m *testing.M) {
	code, inside, err := netns.Enter()
	switch {
	case err == nil && !inside:
		os.Exit(code)
	case errors.Is(err, netns.ErrNotRoot):
		suite.skipped = err
		os.Exit(m.Run())
	case err == nil:
		err = prepare()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	code = m.Run()
	for _, dir := range suite.temporary {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// prepare finds the project, and builds the two programs unless DNSAPP_BIN
// names a folder that has them.
func prepare() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for suite.root = dir; ; suite.root = filepath.Dir(suite.root) {
		if _, err := os.Stat(filepath.Join(suite.root, "go.mod")); err == nil {
			break
		}
		if suite.root == filepath.Dir(suite.root) {
			return fmt.Errorf("no go.mod above %s", dir)
		}
	}
	if err := errors.Join(netns.AddLocal(clients6), netns.AddAddress(second6)); err != nil {
		return err
	}
	if suite.bin = os.Getenv("DNSAPP_BIN"); suite.bin != "" {
		return nil
	}
	if suite.bin, err = os.MkdirTemp("", "dnsapp-bin-"); err != nil {
		return err
	}
	suite.temporary = append(suite.temporary, suite.bin)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", suite.bin+"/", "./cmd/dnsapp", "./cmd/dnsappctl")
	build.Dir = suite.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
}
