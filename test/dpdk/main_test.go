package dpdk

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dnsapp/dnsapp/test/netns"
)

// suite is what all tests share. TestMain sets it once.
var suite struct {
	bin     string // folder of the programs
	skipped string // why no test can run; "": they can
}

// soak has tests run their long form: many rounds, some minutes each.
var soak = flag.Bool("soak", false, "run the long form of tests: many rounds, some minutes each")

// rounds returns how many rounds a test has, of which the long form has long.
func rounds(short, long int) int {
	if *soak {
		return long
	}
	return short
}

func TestMain(m *testing.M) {
	code, inside, err := netns.Enter()
	switch {
	case err == nil && !inside:
		os.Exit(code)
	case errors.Is(err, netns.ErrNotRoot):
		suite.skipped = err.Error()
		os.Exit(m.Run())
	case err == nil:
		err = prepare()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dpdk:", err)
		os.Exit(1)
	}
	code = m.Run()
	os.RemoveAll(suite.bin)
	os.Exit(code)
}

// prepare builds the programs, where libdpdk is the version that the binding knows.
func prepare() error {
	if err := exec.Command("pkg-config", "--exists", "libdpdk >= 22.11 libdpdk < 22.12").Run(); err != nil {
		suite.skipped = "there is no libdpdk 22.11 (apt-get install libdpdk-dev pkg-config)"
		return nil
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if suite.bin, err = os.MkdirTemp("", "dnsapp-dpdk-"); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", "dpdk", "-o", suite.bin+"/", "./cmd/dnsapp", "./cmd/dnsappctl")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOEXPERIMENT=norandomizedheapbase64")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
}
