package manual

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// A page has what the help has, in its sections, and nothing in it is taken for
// an order to the formatter.
func TestPage(t *testing.T) {
	root := &cobra.Command{Use: "dnsappx", Short: "Try it", Run: func(*cobra.Command, []string) {}}
	root.PersistentFlags().StringP("output", "o", "text", "output `FORMAT`")
	sub := &cobra.Command{
		Use:   "do-it NAME",
		Short: "Do it",
		Long: `do-it does it.
.hidden is a name, and C:\ a path.

  one    the first
  two    the second
after them

  dnsappx do-it a
  dnsappx do-it b | tee c

Exit codes: 0 done.`,
		Run: func(*cobra.Command, []string) {},
	}
	sub.Flags().Bool("now", false, "at once")
	sub.Flags().Int("secret", 0, "not told")
	if err := sub.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(sub, &cobra.Command{Use: "hidden", Hidden: true, Run: sub.Run})
	pages := Pages(root)
	if len(pages) != 2 {
		t.Errorf("%d pages", len(pages))
	}
	want := `.TH DNSAPPX\-DO\-IT 8 "" dnsapp "dnsapp manual"
.nh
.SH NAME
dnsappx\-do\-it \- do it
.SH SYNOPSIS
.nf
\fBdnsappx do\-it\fR \fINAME\fR [\fIoption\fR ...]
.fi
.SH DESCRIPTION
.PP
do\-it does it.
\&.hidden is a name, and C:\e a path.
.PP
.RS 4
.nf
one    the first
two    the second
.fi
.RE
.PP
after them
.SH OPTIONS
.TP
\fB\-\-now\fR
at once
.SH OPTIONS OF EVERY COMMAND
.TP
\fB\-o\fR, \fB\-\-output\fR \fIFORMAT\fR
output FORMAT (default text)
.SH EXAMPLES
.PP
.RS 4
.nf
dnsappx do\-it a
dnsappx do\-it b | tee c
.fi
.RE
.SH EXIT STATUS
.PP
0 done.
.SH SEE ALSO
\fBdnsappx\fR(8)
`
	if d := cmp.Diff(want, string(pages["dnsappx-do-it.8"])); d != "" {
		t.Errorf("page differs (-want +got):\n%s", d)
	}
	if main := string(pages["dnsappx.8"]); !strings.Contains(main, ".SH COMMANDS\n.TP\n\\fBdo\\-it\\fR\nDo it\n") || strings.Contains(main, "hidden") {
		t.Errorf("main page:\n%s", main)
	}
}

func TestLower(t *testing.T) {
	for in, want := range map[string]string{"Do it": "do it", "DNS server": "DNS server", "A server": "a server", "Stop": "stop"} {
		if got := lower(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
