package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
)

// plan prints what a reload would do. Its error says that it would be refused,
// or that nobody could be asked.
func (a *app) plan(ctx context.Context, timeout time.Duration) error {
	p, err := a.askPlan(ctx, timeout)
	if err != nil {
		return a.fail(err)
	}
	if a.format == jsonText { // its problems are in it
		return errors.Join(a.printJSON(p), p.Err())
	}
	return errors.Join(showPlan(a.out, p), p.Err())
}

// askPlan asks for a plan. Zones are compiled for it, which may take long.
func (a *app) askPlan(ctx context.Context, timeout time.Duration) (*control.Plan, error) {
	c, err := a.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	// A plan may take long: whether anybody answers at all is asked before.
	if _, err := limited(ctx, c, (*control.Client).Version); err != nil {
		return nil, err
	}
	p, err := c.Plan(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return nil, errors.New("interrupted; nothing was touched")
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer after %v; nothing was touched", timeout)
	}
	return p, err
}

func showPlan(w io.Writer, p *control.Plan) error {
	serves := "nothing serves yet"
	if p.FromEpoch != 0 {
		serves = fmt.Sprintf("epoch %d serves", p.FromEpoch)
	}
	fmt.Fprintln(w, "dry run: nothing was touched; "+serves)
	t := newTable(w, "config", p.ConfigFile)
	switch {
	case len(p.Problems) > 0:
	case len(p.Changes) == 0:
		t.row("", "no change")
	}
	for _, c := range p.Changes {
		t.row("change", c)
	}
	for _, z := range p.Zones {
		t.row("compile", zoneLine(z))
	}
	if p.Kept > 0 {
		t.row("keep", count(p.Kept, "zone, unchanged", "zones, unchanged"))
	}
	for _, p := range p.Warnings {
		t.row("warning", p)
	}
	if p.Drain != nil {
		t.row("drain", fmt.Sprintf("epoch %d: %s", p.FromEpoch, p.Drain.Describe()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !p.Accepted {
		return nil // the error says why
	}
	when := ""
	if p.After != "" {
		when = ", after " + p.After
	}
	_, err := fmt.Fprintf(w, "a reload would be accepted%s\n", when)
	return err
}

func zoneLine(z control.ZonePlan) string {
	switch {
	case z.Error:
		return z.Name + " refused: " + z.File
	case z.New:
		return fmt.Sprintf("%s new: serial %d, %s", z.Name, z.Serial, count(z.Records, "record", "records"))
	case !z.Changed:
		return fmt.Sprintf("%s touched, not changed: serial %d, %s", z.Name, z.Serial, count(z.Records, "record", "records"))
	}
	return fmt.Sprintf("%s changed: serial %d -> %d, records %d -> %d", z.Name, z.OldSerial, z.Serial, z.OldRecords, z.Records)
}
