package health

import (
	"context"
	"time"
)

// Plan is how often and how hard a server is checked.
type Plan struct {
	Interval time.Duration
	Timeout  time.Duration // of a try
	Tries    int           // that must fail for a check to fail
	Rise     int           // checks in a row that must succeed for a server to be up again
}

// Try asks a server once. It returns nil if that serves, else why not; it ends
// with ctx.
type Try func(ctx context.Context) error

// Run checks a server until ctx ends. The server is taken for up unless down. It
// calls tell whenever that changes: with nil when the server has come up, else
// with why it is down.
func Run(ctx context.Context, p Plan, try Try, down bool, tell func(err error)) {
	tick := time.NewTicker(p.Interval)
	defer tick.Stop()
	for good := 0; ; {
		err := check(ctx, p, try)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			good = 0
			if !down {
				down = true
				tell(err)
			}
		case down:
			if good++; good >= p.Rise {
				down, good = false, 0
				tell(nil)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check tries until one succeeds, or Tries have failed. It returns why the last
// one has.
func check(ctx context.Context, p Plan, try Try) (err error) {
	for range p.Tries {
		once, cancel := context.WithTimeout(ctx, p.Timeout)
		err = try(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}
