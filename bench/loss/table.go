package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// table returns the rows for people.
func table(o *options, rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d reloads of each, one every %v; %d flows begin every %v, each of %d datagrams/s for %v; %d DNS queries/s\n\n",
		o.reloads, o.every, o.flows, o.every/2, o.flowRate, o.life(), o.dnsRate)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tUDP FLOWS\t\t\t\t\tDNS\t\t\tFIRST NEW ANSWER\t\tLONGEST")
	fmt.Fprintln(w, "SERVER\tflows\tmoved\tsent\tanswered\tlost\tsent\tanswered\tlost\tmedian\tmax\tsilence")
	var notes []string
	for _, r := range rows {
		if r.Missing != "" {
			fmt.Fprintf(w, "%s\tnot measured\n", r.Server)
			notes = append(notes, r.Server+": not measured: "+r.Missing)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Server, flowCells(r), r.DNS.cells(), firstCells(r.FirstAnswer), ms(r.Silence))
		if r.Void != "" {
			notes = append(notes, r.Server+": VOID: "+r.Void)
		}
		if r.Behind != "" {
			notes = append(notes, r.Server+": the generator fell behind: "+r.Behind)
		}
		for what, c := range map[string]count{"flows": r.Flows, "DNS": r.DNS} {
			if c.Duplicate+c.Wrong > 0 {
				notes = append(notes, fmt.Sprintf("%s: %s: %d answers too many, %d wrong", r.Server, what, c.Duplicate, c.Wrong))
			}
		}
	}
	_ = w.Flush() // b takes everything
	b.WriteString(`
moved: another process answers than before (nginx: another port asks what is behind it); every flow lives through a reload
first new answer: from the order to reload until a new client sees the new configuration
`)
	for _, n := range notes {
		b.WriteString(n + "\n")
	}
	return b.String()
}

func flowCells(r row) string {
	if r.Lived == 0 {
		return "-\t-\t-\t-\t-"
	}
	return fmt.Sprintf("%d\t%d\t%s", r.Lived, r.Moved, r.Flows.cells())
}

func (c count) cells() string { return fmt.Sprintf("%d\t%d\t%d", c.Sent, c.Answered, c.Lost) }

// firstCells are the median and the largest of sorted durations.
func firstCells(d []time.Duration) string {
	if len(d) == 0 {
		return "-\t-"
	}
	return ms(d[len(d)/2]) + "\t" + ms(d[len(d)-1])
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
