//go:build explore

package grace

import (
	"errors"
	"testing"

	"github.com/dnsapp/dnsapp/internal/explore"
)

// versions is a value that is replaced twice, each time with the old one taken
// away once the domain is quiet.
type versions struct {
	d       *Domain
	current int
	gone    [3]bool
	err     error
}

// use takes the present version and uses it after a while.
func (v *versions) use() {
	explore.Access(&v.current, false)
	mine := v.current
	explore.Access(&v.gone[mine], false)
	if v.gone[mine] {
		v.err = errors.New("used what is gone")
	}
}

// replace is Wait without its waiting: where that would block, the writer ends.
func (v *versions) replace() {
	for old := range 2 {
		explore.Access(&v.current, true)
		v.current = old + 1
		v.d.begin()
		if !v.d.quiet() {
			return
		}
		explore.Access(&v.gone[old], true)
		v.gone[old] = true
	}
}

// In every order of two readers' and a writer's accesses, over two replacements,
// nobody uses what is gone.
func TestExploreSections(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		v := &versions{d: New(func() {})}
		section := func() {
			s := v.d.Enter()
			v.use()
			s.Exit()
		}
		return explore.Scenario{
			Threads: []explore.Thread{{Name: "a", Run: section}, {Name: "b", Run: section}, {Name: "writer", Run: v.replace}},
			Check:   func() error { return v.err },
		}
	})
}

// The same with lanes, which pass a boundary before and after each use.
func TestExploreLanes(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		v := &versions{d: New(func() {})}
		lane := func() func() {
			l := v.d.NewLane()
			return func() {
				for range 2 {
					l.Pass()
					v.use()
				}
				l.Pass()
			}
		}
		return explore.Scenario{
			Threads: []explore.Thread{{Name: "a", Run: lane()}, {Name: "b", Run: lane()}, {Name: "writer", Run: v.replace}},
			Check:   func() error { return v.err },
		}
	})
}
