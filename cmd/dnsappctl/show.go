package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

func (a *app) statusCommand() *cobra.Command {
	var epoch uint32
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what runs, and what a draining generation waits for",
		Long: `status shows the running dnsapp: its configuration, the generations that live and
what the draining ones wait for, their workers, the listeners, the last reload,
and what became of every packet since the start.

The packet line adds up: received = served + sibling + forwarded + dropped + in
hand. "in hand" is what a worker holds at this moment; what stays there was in
the hands of a worker that was killed.

With --epoch it shows one generation, and what each of its workers waits for.

With -o json the answer is one object; every duration in it is in milliseconds.

  dnsappctl status
  dnsappctl status --epoch 7
  dnsappctl status -o json | jq -r '.generations[] | select(.rx_owner) | .epoch'

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().Uint32Var(&epoch, "epoch", 0, "show this generation, `N`, alone")
	c.RunE = func(c *cobra.Command, args []string) error {
		get := func(ctx context.Context, c *control.Client) (*control.Status, error) { return c.Status(ctx) }
		if !c.Flags().Changed("epoch") {
			return ask(a, get, showStatus)(c, args)
		}
		return ask(a, func(ctx context.Context, c *control.Client) (*control.Generation, error) {
			s, err := get(ctx, c)
			if err != nil {
				return nil, err
			}
			return pick(s, epoch)
		}, showGeneration)(c, args)
	}
	return c
}

// pick returns the generation with this epoch.
func pick(s *control.Status, epoch uint32) (*control.Generation, error) {
	var live []string
	for i := range s.Generations {
		g := &s.Generations[i]
		if g.Epoch == epoch {
			return g, nil
		}
		live = append(live, strconv.FormatUint(uint64(g.Epoch), 10))
	}
	return nil, control.Refuse("there is no epoch %d (there are: %s)", epoch, strings.Join(live, ", "))
}

// showGeneration prints one generation.
func showGeneration(w io.Writer, g *control.Generation) error {
	wire := ""
	if g.RxOwner {
		wire = ", reads the wire"
	}
	fmt.Fprintf(w, "epoch %d %s%s; slot %d, started %s\n", g.Epoch, g.State, wire, g.Slot, stamp(g.StartedAt))
	if g.Drain != nil {
		fmt.Fprintf(w, "waits for %s\n", g.Drain.Reason)
	} else {
		flows, tcp := has(g.Load, nil)
		fmt.Fprintf(w, "UDP flows %s, TCP connections %s\n", flows, tcp)
	}
	fmt.Fprintln(w)
	t := newTable(w, "WORKER", "PID", "STATE", "LANES", "UP", "RESPAWNS", "WAITS FOR")
	for _, p := range g.Workers {
		waits := "-"
		if p.Drain != nil {
			waits = p.Drain.Reason
		}
		t.row(p.Index, p.PID, workerState(p), g.Lanes, span(p.Uptime.Duration()), p.Respawns, waits)
	}
	return t.Flush()
}

// has returns how many flows and connections a generation has, "-" where that is
// not known.
func has(load *control.Load, drain *control.Drain) (flows, tcp string) {
	switch {
	case drain != nil:
		return strconv.Itoa(drain.Flows), strconv.Itoa(drain.TCP)
	case load != nil:
		return strconv.Itoa(load.Flows), strconv.Itoa(load.TCP)
	}
	return "-", "-"
}

// table writes rows of cells, aligned, under a heading.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, heading ...any) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(heading...)
	return t
}

func (t table) row(cells ...any) {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteByte('\t')
		}
		fmt.Fprint(&b, c)
	}
	fmt.Fprintln(t, b.String())
}

// stateLine says whether the state file is any good, at now.
func stateLine(f *control.StateFile, now time.Time) string {
	line := f.Path + ", not saved yet"
	if !f.SavedAt.IsZero() {
		line = fmt.Sprintf("%s, saved %s ago", f.Path, span(now.Sub(f.SavedAt)))
	}
	if f.Error != "" {
		line += "; " + f.Error
	}
	return line
}

func showStatus(w io.Writer, s *control.Status) error {
	fmt.Fprintf(w, "dnsapp %s (%s), pid %d, up %s\n", s.Name, s.Version, s.PID, span(s.Uptime.Duration()))
	now := s.StartedAt.Add(s.Uptime.Duration()) // the supervisor's clock, not ours
	admin := "off"
	if s.Admin != "" {
		admin = "http://" + s.Admin + "/"
	}
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row("config", fmt.Sprintf("%s, loaded %s (%s ago)", s.ConfigFile, stamp(s.ConfigLoadedAt), span(now.Sub(s.ConfigLoadedAt))))
	t.row("admin", admin)
	if f := s.StateFile; f != nil {
		t.row("state", stateLine(f, now))
	}
	t.row("step", stepLine(s.Step, s.Reload, s.Elapsed))
	t.row("zones", s.Zones)
	if b := s.Standby; b != nil {
		t.row("standby", fmt.Sprintf("pid %d (%s), since %s (%s ago)", b.PID, b.Version, stamp(b.Since), span(now.Sub(b.Since))))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	t = newTable(w, "EPOCH", "SLOT", "STATE", "WIRE", "WORKERS", "LANES", "FLOWS", "TCP", "AGE", "WAITS FOR")
	for _, g := range s.Generations {
		wire, waits := "-", "-"
		if g.RxOwner {
			wire = "reads"
		}
		if g.Drain != nil {
			waits = g.Drain.Reason
		}
		flows, tcp := has(g.Load, g.Drain)
		t.row(g.Epoch, g.Slot, g.State, wire, len(g.Workers), g.Lanes*len(g.Workers), flows, tcp, span(now.Sub(g.StartedAt)), waits)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	t = newTable(w, "EPOCH", "WORKER", "PID", "STATE", "UP", "RESPAWNS")
	for _, g := range s.Generations {
		for _, p := range g.Workers {
			t.row(g.Epoch, p.Index, p.PID, workerState(p), span(p.Uptime.Duration()), p.Respawns)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	t = newTable(w, "LISTENER", "SERVICE", "AFFINITY", "TRANSPORT", "ADDRESS")
	for _, l := range s.Listeners {
		for _, a := range l.Addresses {
			t.row(l.Name, l.Service, l.Affinity, strings.Join(l.Transport, ","), a)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	showLedger(w, s.Ledger)
	if s.LastReload != nil {
		fmt.Fprintf(w, "\nlast reload, asked for %s ago\n", span(now.Sub(s.LastReload.StartedAt)))
		showReport(w, s.LastReload)
	}
	return nil
}

// stepLine says where the machine is: "T3 (drain), reload 2 for 1.2s".
func stepLine(s control.Step, reload uint64, elapsed control.Millis) string {
	text := string(s)
	if word := s.Word(); word != text {
		text += " (" + word + ")"
	}
	if reload != 0 {
		text += fmt.Sprintf(", reload %d for %s", reload, span(elapsed.Duration()))
	}
	return text
}

func workerState(p control.Worker) string {
	switch {
	case p.Gone:
		return "gone"
	case p.Ready:
		return "ready"
	}
	return "starting"
}

// showLedger prints what became of every packet; a line of zeros is left out,
// except the first.
func showLedger(w io.Writer, l control.Ledger) {
	fmt.Fprintf(w, "packets  received %d = served %d + sibling %d + forwarded %d + dropped %s + in hand %d\n",
		l.Received, l.Served, l.Sibling, l.Forwarded, reasons(l.Dropped), l.InHand)
	if l.RingTaken > 0 {
		fmt.Fprintf(w, "rings    taken %d, served %d, dropped %s\n", l.RingTaken, l.RingServed, reasons(l.RingDropped))
	}
	if l.TCPAccepted > 0 {
		fmt.Fprintf(w, "tcp      accepted %d, closed %d; messages %d, answered %d, dropped %s\n",
			l.TCPAccepted, l.TCPClosed, l.TCPQueries, l.TCPAnswers, reasons(l.TCPDropped))
	}
	if l.KernelDropped > 0 {
		fmt.Fprintf(w, "kernel   dropped %d before they could be read (full socket buffers)\n", l.KernelDropped)
	}
}

// reasons returns a sum and its parts: 4 (send 1, short 3).
func reasons(m map[string]uint64) string {
	var sum uint64
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(m)) {
		sum += m[r]
		parts = append(parts, fmt.Sprintf("%s %d", r, m[r]))
	}
	if len(parts) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(parts, ", "))
}

// showReport prints how a reload went, in a few lines.
func showReport(w io.Writer, r *control.ReloadReport) {
	what := fmt.Sprintf("reload %d", r.ID)
	if r.ID == 0 { // of another supervisor
		what = "upgrade"
	}
	fmt.Fprintf(w, "%s %s after %s", what, r.Outcome, span(r.Elapsed.Duration()))
	if r.ToEpoch != 0 {
		fmt.Fprintf(w, ": epoch %d -> %d", r.FromEpoch, r.ToEpoch)
	}
	if r.Reason != "" && len(r.Problems) == 0 { // else it says the same
		fmt.Fprintf(w, " (%s)", r.Reason)
	}
	fmt.Fprintln(w)
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  %s\n", p)
	}
	if len(r.Steps) > 0 {
		steps := make([]string, len(r.Steps))
		for i, s := range r.Steps {
			steps[i] = fmt.Sprintf("%s %s", s.Step.Word(), span(s.Elapsed.Duration()))
		}
		fmt.Fprintf(w, "steps    %s\n", strings.Join(steps, ", "))
	}
	if r.ToEpoch == 0 {
		return
	}
	if r.Commit > 0 {
		fmt.Fprintf(w, "commit   %s after the request\n", span(r.Commit.Duration()))
	}
	fmt.Fprintf(w, "gap      %s without a reader\n", span(r.Gap.Duration()))
	if r.Outcome == control.OutcomeDone {
		fmt.Fprintf(w, "drain    %s -> %s; handed over %s\n", load(r.DrainStart), load(r.DrainEnd), count(r.Handed, "flow", "flows"))
	}
	showLedger(w, r.Window)
}

func load(l control.Load) string {
	return count(l.Flows, "flow", "flows") + ", " + count(l.TCP, "TCP connection", "TCP connections") + ", " + count(l.Queries, "query", "queries")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// stamp returns t as people and other tools read it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span returns d with three significant digits or so: 0.361ms, 4.12s, 1h2m.
func span(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d <= 0:
		return "0s"
	case ms < 99.95:
		return fmt.Sprintf("%.3gms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0fms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// size returns n bytes in the unit that suits.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
