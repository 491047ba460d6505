// Package manual writes the manual pages of a command and its subcommands from
// their help.
//
// Invariant: a page says what --help says, in the sections that manual readers
// know. There is no second text to forget: where the help is right, so is the
// page.
//
// The help is text for a terminal: paragraphs, and lines that are indented by two
// spaces, which stay as they are. A last block of such lines that all run a
// program is the section EXAMPLES, and a paragraph that begins with "Exit codes:"
// the section EXIT STATUS.
package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section is the section of the pages: system administration.
const Section = "8"

// Pages returns the pages of root and of everything below it, by file name.
func Pages(root *cobra.Command) map[string][]byte {
	pages := map[string][]byte{}
	add(pages, root)
	return pages
}

func add(pages map[string][]byte, c *cobra.Command) {
	pages[name(c)+"."+Section] = []byte(page(c))
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
			add(pages, sub)
		}
	}
}

// name returns the name of c's page.
func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func page(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s %s \"\" dnsapp \"dnsapp manual\"\n.nh\n", strings.ToUpper(escape(name(c))), Section)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name(c)), escape(lower(c.Short)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s.fi\n", synopsis(c))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	description, examples, status := sections(text)
	b.WriteString(".SH DESCRIPTION\n" + blocks(description))
	options(&b, "COMMANDS", commands(c))
	options(&b, "OPTIONS", flags(c.NonInheritedFlags()))
	options(&b, "OPTIONS OF EVERY COMMAND", flags(c.InheritedFlags()))
	if len(examples) > 0 {
		b.WriteString(".SH EXAMPLES\n" + blocks(examples))
	}
	if status != "" {
		b.WriteString(".SH EXIT STATUS\n" + paragraph(strings.TrimPrefix(status, "Exit codes: ")))
	}
	if related := seeAlso(c); related != "" {
		b.WriteString(".SH SEE ALSO\n" + related)
	}
	return b.String()
}

// lower returns a heading as the list of all pages has it.
func lower(s string) string {
	first, rest, _ := strings.Cut(s, " ")
	if strings.ToUpper(first) == first && len(first) > 1 { // DNS
		return s
	}
	return strings.TrimSpace(strings.ToLower(first[:1]) + first[1:] + " " + rest)
}

// synopsis returns how c is called.
func synopsis(c *cobra.Command) string {
	line := `\fB` + escape(c.CommandPath()) + `\fR`
	if c.HasAvailableSubCommands() { // it does nothing without one
		return line + " \\fIcommand\\fR ...\n"
	}
	if _, args, ok := strings.Cut(c.Use, " "); ok {
		line += ` \fI` + escape(args) + `\fR`
	}
	if c.HasAvailableFlags() {
		line += " [\\fIoption\\fR ...]"
	}
	return line + "\n"
}

// sections takes a help text apart into the blocks of its description and of its
// examples, and the paragraph about exit codes.
func sections(text string) (description, examples []string, status string) {
	for block := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(block, "Exit codes:") {
			status = block
			continue
		}
		description = append(description, block)
	}
	if n := len(description) - 1; n > 0 && runs(description[n]) {
		description, examples = description[:n], description[n:]
	}
	return description, examples, status
}

// runs reports whether every line of a block runs one of our programs.
func runs(block string) bool {
	for line := range strings.SplitSeq(block, "\n") {
		if !strings.HasPrefix(line, "  dnsapp") || strings.Contains(strings.TrimSpace(line), "  ") {
			return false
		}
	}
	return true
}

// blocks returns paragraphs, and what is indented as it is.
func blocks(list []string) string {
	var b strings.Builder
	for _, block := range list {
		lines := strings.Split(block, "\n")
		for len(lines) > 0 {
			n := 0
			verbatim := strings.HasPrefix(lines[0], "  ")
			for n < len(lines) && strings.HasPrefix(lines[n], "  ") == verbatim {
				n++
			}
			if verbatim {
				b.WriteString(".PP\n.RS 4\n.nf\n")
				for _, l := range lines[:n] {
					b.WriteString(line(l[2:]))
				}
				b.WriteString(".fi\n.RE\n")
			} else {
				b.WriteString(paragraph(strings.Join(lines[:n], "\n")))
			}
			lines = lines[n:]
		}
	}
	return b.String()
}

func paragraph(text string) string {
	var b strings.Builder
	b.WriteString(".PP\n")
	for l := range strings.SplitSeq(text, "\n") {
		b.WriteString(line(l))
	}
	return b.String()
}

// line returns one line of text, which must not begin like a request.
func line(s string) string {
	s = escape(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s + "\n"
}

// escape returns s as the formatter prints it: with its backslashes, and with
// hyphens that can be copied into a shell.
func escape(s string) string { return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s) }

// item is a term and what it means.
type item struct{ term, text string }

func options(b *strings.Builder, heading string, list []item) {
	if len(list) == 0 {
		return
	}
	b.WriteString(".SH " + heading + "\n")
	for _, i := range list {
		fmt.Fprintf(b, ".TP\n%s\n%s", i.term, line(i.text))
	}
}

func commands(c *cobra.Command) []item {
	var list []item
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			list = append(list, item{`\fB` + escape(sub.Name()) + `\fR`, sub.Short})
		}
	}
	return list
}

func flags(set *pflag.FlagSet) []item {
	var list []item
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		term := `\fB` + escape("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			term = `\fB` + escape("-"+f.Shorthand) + `\fR, ` + term
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			term += ` \fI` + escape(value) + `\fR`
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			usage += " (default " + f.DefValue + ")"
		}
		list = append(list, item{term, usage})
	})
	return list
}

func seeAlso(c *cobra.Command) string {
	var names []string
	if c.HasParent() {
		names = append(names, name(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" && sub.Name() != "help" {
			names = append(names, name(sub))
		}
	}
	switch c.CommandPath() {
	case "dnsapp":
		names = append(names, "dnsappctl")
	case "dnsappctl":
		names = append(names, "dnsapp")
	}
	for i, n := range names {
		names[i] = `\fB` + escape(n) + `\fR(` + Section + ")"
	}
	return strings.Join(names, ",\n") + "\n"
}
