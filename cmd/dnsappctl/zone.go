package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

func (a *app) zoneCommand() *cobra.Command {
	zone := &cobra.Command{
		Use:   "zone",
		Short: "Look at the zones that are served, and load changed ones",
		Args:  cobra.ArbitraryArgs,
		RunE:  needCommand,

		SuggestionsMinimumDistance: 2,
	}
	zone.AddCommand(a.zoneListCommand(), a.zoneReloadCommand(), a.zoneShowCommand())
	return zone
}

func (a *app) zoneListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the zones that are served",
		Long: `list shows the authoritative zones in the order of the configuration: the serial
of the version that is served, its records, the memory it takes (shared by all
workers), and when it was loaded. Below the list is why a newer version of a zone
was refused; its last good version is served.

With -o json the answer is one list.

  dnsappctl zone list
  dnsappctl zone list -o json | jq -r '.[] | "\(.name) \(.serial)"'
  dnsappctl zone list -o json | jq -r '.[] | select(.error != "") | .name'

` + exitCodes,
		Args: cobra.NoArgs,
		RunE: ask(a, func(ctx context.Context, c *control.Client) ([]control.ZoneStatus, error) { return c.Zones(ctx) }, showZones),
	}
}

func (a *app) zoneReloadCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "reload [NAME...]",
		Short: "Load the zones whose files have changed",
		Long: `reload has dnsapp look at the files of the named zones, or of all, and load those
that have changed. The configuration is not read: this is for new content of zones,
and much cheaper than dnsappctl reload, which also loads changed zones. Every worker
of every generation answers from the new versions when the command returns; no query
is lost and no connection closed.

A file whose size, time and place are as they were is not read, and one whose content
is as it was is not compiled. Changed zones are compiled at low priority in processes
of their own.

A zone that cannot be loaded keeps its last good version. Every problem is printed
with its file and line, and again by dnsappctl zone list; the other zones are loaded
all the same, and the command exits with 1. A name that is not served is refused.

A zone reload waits while a reload prepares or hands over. With --timeout the command
gives up waiting after that long, and exits with 4.

` + interrupting + `

With -o json each line is one object: {"event": {...}} for every event, then
{"zones": {...}, "error": {...}, "done": true}.

  dnsappctl zone reload
  dnsappctl zone reload example.com example.org
  dnsappctl zone reload -o json | tail -n 1 | jq '.zones.zones[] | {name, serial}'

` + exitCodes,
		Args: cobra.ArbitraryArgs,
	}
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0: as long as it takes")
	c.RunE = func(c *cobra.Command, names []string) error {
		if timeout < 0 {
			return fmt.Errorf("--timeout %v is negative", timeout)
		}
		a.running = true
		report, err := try(c.Context(), a, "zone reload", timeout, func(ctx context.Context, cl *control.Client) (*control.ZoneReport, error) {
			return cl.ReloadZones(ctx, control.ZoneReloadRequest{Names: names, Timeout: control.Millis(timeout)}, a.showEvent)
		})
		if a.format == jsonText {
			return errors.Join(a.printLine(control.Line{Zones: report, Error: errorOrNil(err), Done: true}), err)
		}
		if report == nil {
			return err
		}
		return errors.Join(showZoneReport(a.out, report), err)
	}
	return c
}

func (a *app) zoneShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show everything about one zone",
		Long: `show describes the version of a zone that is served: serial, records by type, the
files that it was compiled from with their times, the memory it takes (shared by all
workers), when it was loaded, and what is worth a warning in it. If the newest files
could not be loaded it says why. The queries are those since dnsapp was started, over
all versions of the zone.

With -o json the answer is one object.

  dnsappctl zone show example.com
  dnsappctl zone show example.com -o json | jq .serial

` + exitCodes,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			get := func(ctx context.Context, cl *control.Client) (*control.ZoneDetail, error) {
				return cl.Zone(ctx, args[0])
			}
			return ask(a, get, showZone)(c, args)
		},
	}
}

func showZones(w io.Writer, zones []control.ZoneStatus) error {
	t := newTable(w, "ZONE", "SERIAL", "RECORDS", "MEMORY", "LOADED", "FILE")
	for _, z := range zones {
		t.row(z.Name, z.Serial, z.Records, size(z.Bytes), stamp(z.LoadedAt), z.File)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, z := range zones {
		if z.Error != "" {
			fmt.Fprintf(w, "%s: the last good version is served: %s\n", z.Name, z.Error)
		}
	}
	return nil
}

func showZone(w io.Writer, z *control.ZoneDetail) error {
	fmt.Fprintf(w, "zone %s\n", z.Name)
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row("serial", z.Serial)
	t.row("loaded", stamp(z.LoadedAt))
	t.row("memory", size(z.Bytes))
	t.row("queries", fmt.Sprintf("%d: UDP %d, TCP %d; NXDOMAIN %d, truncated %d", z.Queries.Total(), z.Queries.UDP, z.Queries.TCP, z.Queries.NXDomain, z.Queries.Truncated))
	t.row("records", fmt.Sprintf("%d, of %s", z.Records, count(z.Nodes, "name", "names")))
	t.row("content", z.Content)
	if err := t.Flush(); err != nil {
		return err
	}
	if z.Error != "" {
		fmt.Fprintln(w, "\nthe newest version is refused, and this, the last good one, is served:")
		for _, p := range z.Problems {
			fmt.Fprintf(w, "  %s\n", p)
		}
	}

	fmt.Fprintln(w)
	t = newTable(w, "TYPE", "RECORDS")
	for _, c := range z.Types {
		t.row(c.Type, c.Records)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	t = newTable(w, "FILE", "SIZE", "MODIFIED")
	for _, f := range z.Files {
		t.row(f.Path, size(f.Bytes), stamp(f.ModifiedAt))
	}
	if err := t.Flush(); err != nil {
		return err
	}

	if len(z.Warnings) > 0 {
		fmt.Fprintln(w, "\nwarnings:")
		for _, p := range z.Warnings {
			fmt.Fprintf(w, "  %s\n", p)
		}
		if z.WarningsDropped > 0 {
			fmt.Fprintf(w, "  and %d more\n", z.WarningsDropped)
		}
	}
	return nil
}

// maxShownChanges bounds the zones that a report lists for people.
const maxShownChanges = 20

func showZoneReport(w io.Writer, r *control.ZoneReport) error {
	fmt.Fprintf(w, "zone reload %d after %s: %s\n", r.ID, span(r.Elapsed.Duration()), r.Describe())
	for i, z := range r.Zones {
		if i == maxShownChanges {
			fmt.Fprintf(w, "  and %d more\n", r.Changed-i)
			break
		}
		fmt.Fprintf(w, "  %s serial %d -> %d, %d -> %s\n", z.Name, z.OldSerial, z.Serial, z.OldRecords, count(z.Records, "record", "records"))
	}
	if r.Changed > 0 {
		fmt.Fprintf(w, "took     compile %s, swap %s in %s\n", span(r.Compile.Duration()), span(r.Swap.Duration()), count(r.Workers, "worker", "workers"))
	}
	return nil
}
