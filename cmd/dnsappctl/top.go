package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

// minInterval is the shortest time between two samples.
const minInterval = 10 * time.Millisecond

func (a *app) topCommand() *cobra.Command {
	var once bool
	var interval time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the traffic of each generation, live",
		Long: `top shows, every second, what each generation receives, serves and forwards, the
flows and connections that it has, what a draining one waits for, where a reload
is, and the last events. Ctrl-C ends it.

  RECV/S     datagrams read from the wire
  SERVED/S   of them, served by the worker that read them
  SIBL/S     of them, handed to another worker of the generation
  FWD/S      of them, handed to a draining generation
  RING/S     datagrams served that came from another worker or generation
  DROP/S     datagrams without an answer
  FLOWS, TCP what it has now; "-" while that is not counted, as in a hand-over
  MSG/S      messages and lines read from TCP connections

On a terminal each frame replaces the last one; elsewhere they follow each other.
With --once there is one frame, of one interval.

With -o json each line is one sample: what was counted since the start, and the
rates of the last interval in "per_second", in total and for each generation.

  dnsappctl top
  dnsappctl top --once --interval 5s
  dnsappctl top -o json | jq -c '{t: .time, r: .per_second.received}'

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&once, "once", false, "print one frame")
	c.Flags().DurationVar(&interval, "interval", time.Second, "time between frames")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if interval < minInterval {
			return fmt.Errorf("--interval %v is shorter than %v", interval, minInterval)
		}
		a.running = true
		err := a.top(c.Context(), interval, once)
		if errors.Is(err, context.Canceled) {
			return nil // Ctrl-C is how it is meant to end
		}
		if err != nil {
			return a.fail(err)
		}
		return nil
	}
	return c
}

// top prints frames until ctx ends.
func (a *app) top(ctx context.Context, interval time.Duration, once bool) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	screen := newScreen(a.out)
	if a.format == text && !once {
		screen.open()
		defer screen.close()
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var last *control.Traffic
	for {
		now, err := limited(ctx, c, (*control.Client).Traffic)
		if err != nil {
			return err
		}
		if last != nil {
			f := newFrame(last, now)
			if a.format == jsonText {
				err = a.printLine(f)
			} else {
				err = screen.show(f.text(screen.size()))
			}
			if err != nil {
				return err
			}
			if once {
				return nil
			}
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// frame is what happened between two samples.
type frame struct {
	*control.Traffic
	Interval    control.Millis    `json:"interval_ms"`
	PerSecond   rates             `json:"per_second"`
	Generations []generationFrame `json:"generations"` // in place of those of Traffic
}

type generationFrame struct {
	control.GenerationTraffic
	PerSecond rates `json:"per_second"`
}

// rates are Counts by the second.
type rates struct {
	Received      float64 `json:"received"`
	Served        float64 `json:"served"`
	Sibling       float64 `json:"sibling"`
	Forwarded     float64 `json:"forwarded"`
	Dropped       float64 `json:"dropped"`
	Ring          float64 `json:"ring"`
	KernelDropped float64 `json:"kernel_dropped"`
	Accepted      float64 `json:"accepted"`
	Messages      float64 `json:"messages"`
}

func newFrame(last, now *control.Traffic) frame {
	f := frame{Traffic: now, Interval: control.Millis(now.Time.Sub(last.Time)), Generations: []generationFrame{}}
	before := make(map[uint32]control.Counts) // one that is new has counted from 0
	for _, g := range last.Generations {
		before[g.Epoch] = g.Counts
	}
	f.PerSecond = perSecond(now.Total.Since(last.Total), f.Interval)
	for _, g := range now.Generations {
		f.Generations = append(f.Generations, generationFrame{g, perSecond(g.Counts.Since(before[g.Epoch]), f.Interval)})
	}
	return f
}

func perSecond(c control.Counts, interval control.Millis) rates {
	s := max(interval.Duration(), time.Microsecond).Seconds()
	rate := func(n uint64) float64 { return float64(n) / s }
	return rates{
		Received: rate(c.Received), Served: rate(c.Served), Sibling: rate(c.Sibling), Forwarded: rate(c.Forwarded),
		Dropped: rate(c.Dropped), Ring: rate(c.Ring), KernelDropped: rate(c.KernelDropped),
		Accepted: rate(c.Accepted), Messages: rate(c.Messages),
	}
}

// text returns the frame as lines for a terminal of this size; 0 is no limit.
func (f frame) text(columns, rows int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dnsapp %s  up %s  %s  step %s\n\n", f.Name, span(f.Uptime.Duration()), stamp(f.Time), stepLine(f.Step, f.Reload, f.Elapsed))

	t := newTable(&b, "EPOCH", "STATE", "WIRE", "READY", "RECV/S", "SERVED/S", "SIBL/S", "FWD/S", "RING/S", "DROP/S", "MSG/S", "FLOWS", "TCP")
	for _, g := range f.Generations {
		wire := "-"
		if g.RxOwner {
			wire = "reads"
		}
		flows, tcp := has(g.Load, g.Drain)
		t.row(append(append([]any{g.Epoch, g.State, wire, fmt.Sprintf("%d/%d", g.Ready, g.Workers)}, g.PerSecond.cells()...), flows, tcp)...)
	}
	t.row(append([]any{"all", "", "", ""}, f.PerSecond.cells()...)...)
	_ = t.Flush() // b takes everything
	for _, g := range f.Generations {
		if g.Drain != nil {
			fmt.Fprintf(&b, "epoch %d waits for %s\n", g.Epoch, g.Drain.Reason)
		}
	}
	if f.Total.KernelDropped > 0 {
		fmt.Fprintf(&b, "\nkernel dropped %s/s, %d since the start (full socket buffers)\n", number(f.PerSecond.KernelDropped), f.Total.KernelDropped)
	}
	if len(f.Recent) > 0 {
		b.WriteByte('\n')
		for _, e := range f.Recent {
			b.WriteString(eventLine(e))
		}
	}
	return fit(b.String(), columns, rows)
}

func (r rates) cells() []any {
	return []any{number(r.Received), number(r.Served), number(r.Sibling), number(r.Forwarded), number(r.Ring), number(r.Dropped), number(r.Messages)}
}

// number returns a rate with three significant digits or so: 0, 0.5, 12, 999,
// 12.3k, 1.25M.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95:
		return fmt.Sprintf("%.1f", v)
	case v < 9_999.5:
		return fmt.Sprintf("%.0f", v)
	case v < 999_950:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.2fM", v/1e6)
}

// fit cuts text to columns and rows; 0 is no limit. A terminal wraps at octets
// that are no characters too, but what is cut here is ASCII.
func fit(s string, columns, rows int) string {
	lines := strings.SplitAfter(s, "\n")
	if rows > 0 && len(lines) > rows {
		lines = lines[:rows]
	}
	if columns > 0 {
		for i, l := range lines {
			if l = strings.TrimRight(l, " \n"); len(l) > columns {
				lines[i] = l[:columns] + "\n"
			}
		}
	}
	return strings.Join(lines, "")
}

// screen is where frames go: a terminal, each in place of the last, or
// anything else, one after the other.
type screen struct {
	out      io.Writer
	terminal bool
	shown    bool
}

const (
	alternate = "\x1b[?1049h\x1b[?25l" // to the alternate screen, without a cursor
	restore   = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	eraseLine = "\x1b[K"
	eraseRest = "\x1b[J"
)

func newScreen(out io.Writer) *screen {
	_, _, terminal := terminalSize(out)
	return &screen{out: out, terminal: terminal}
}

func (s *screen) open() {
	if s.terminal {
		fmt.Fprint(s.out, alternate)
	}
}

func (s *screen) close() {
	if s.terminal {
		fmt.Fprint(s.out, restore)
	}
}

// size returns the size of the terminal, zeros if there is none.
func (s *screen) size() (columns, rows int) {
	columns, rows, _ = terminalSize(s.out)
	return columns, rows
}

// show shows a frame, in one write.
func (s *screen) show(text string) error {
	switch {
	case s.terminal: // overwritten, not erased first: so it does not flicker
		text = home + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", eraseLine+"\n") + eraseLine + eraseRest
	case s.shown:
		text = "\n" + text
	}
	s.shown = true
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
