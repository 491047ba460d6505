//go:build explore

package table

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/internal/step"
)

const killEnv = "DNSAPP_TABLE_TEST_KILL_AT"

func init() {
	children["record"] = func(t *Table) {
		left, err := strconv.Atoi(os.Getenv(killEnv))
		if err != nil {
			panic(err)
		}
		step.Hook = func(any, bool) {
			if left--; left < 0 {
				unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		}
		t.Record(home(0, 100), 1, xNow)
	}
}

// A process killed before each access of recording a flow, a real process over
// real shared memory, hurts nobody and leaves nothing stuck; another process takes
// the slot at once or a minute later.
func TestKilledAtEveryStep(t *testing.T) {
	for name, e := range vacancies {
		t.Run(name, func(t *testing.T) {
			for k, alive := 0, true; alive; k++ {
				tb, r := sharedTable(t)
				w := newWindow(tb, map[int]entry{15: e})
				alive = killed(t, startChild(t, r, "record", fmt.Sprintf("%s=%d", killEnv, k)))
				if owner, ok := tb.Find(home(0, 100), xNow); ok && owner != 1 || !alive && !ok {
					t.Errorf("killed %v at access %d: found %v at worker %d", alive, k, ok, owner)
				}
				for _, err := range []error{w.intact(), w.claimableLater()} {
					if err != nil {
						t.Errorf("killed %v at access %d: %v", alive, k, err)
					}
				}
				if !alive && k < 4 {
					t.Errorf("the child made %d accesses", k)
				}
				r.Close()
			}
		})
	}
}
