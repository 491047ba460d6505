package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dnsapp/dnsapp/server/control"
)

// askTimeout is how long a supervisor may take to answer a question.
const askTimeout = 5 * time.Second

const exitCodes = `Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused (nothing was touched),
4 taken up, not finished when --timeout was over (it goes on), 5 no dnsapp answers.`

// format is the value of --output.
type format string

const (
	text     format = "text"
	jsonText format = "json"
)

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "text|json" }

func (f *format) Set(s string) error {
	switch format(s) {
	case text, jsonText:
		*f = format(s)
		return nil
	}
	return errors.New("it is text or json")
}

func (a *app) rootCommand() *cobra.Command {
	a.format = text
	path := control.DefaultPath
	if p, ok := a.env("DNSAPP_CONTROL"); ok && p != "" {
		path = p
	}
	root := &cobra.Command{
		Use:   "dnsappctl",
		Short: "Control a running dnsapp",
		Long: `dnsappctl controls a running dnsapp over its control socket, which only root and
the user that runs dnsapp may use.

The socket is that of --control, else that of the environment variable
DNSAPP_CONTROL, else ` + control.DefaultPath + `.

  dnsappctl status          what runs, and what a draining generation waits for
  dnsappctl top             the traffic of each generation, live
  dnsappctl watch           everything that happens, as it happens
  dnsappctl trace           what is received and sent, to a pcap file
  dnsappctl reload          hand over to a new generation with the new configuration
  dnsappctl abort           give up the reload in progress
  dnsappctl drain EPOCH     follow the drain of a generation, or end it
  dnsappctl upgrade         hand over to another binary, without a stop
  dnsappctl explain flow    which worker serves a client, and why
  dnsappctl backend list    the servers that proxies send to
  dnsappctl server drain    give a server no new flows
  dnsappctl diff            where the running state differs from the file
  dnsappctl stop            finish what is under way, then exit

With -o json the output is JSON for scripts: one object for a question, one
object a line for what goes on (reload, drain, upgrade, stop, watch, top). An error
is then also the last object on standard output:
{"error": {"code": ..., "message": ..., "problems": [...]}}.

` + exitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // RunE knows better what is wrong
		RunE:          needCommand,

		SuggestionsMinimumDistance: 2,
	}
	root.PersistentFlags().StringVar(&a.path, "control", path, "control socket `PATH`")
	root.PersistentFlags().VarP(&a.format, "output", "o", "output format")
	a.complete(root, "output", string(text), string(jsonText))
	root.AddCommand(
		a.statusCommand(), a.topCommand(), a.watchCommand(), a.traceCommand(),
		a.reloadCommand(), a.abortCommand(), a.drainCommand(), a.upgradeCommand(), a.stopCommand(),
		a.explainCommand(), a.zoneCommand(), a.primaryCommand(), a.backendCommand(), a.serverCommand(), a.diffCommand(), a.versionCommand(),
	)
	return root
}

// needCommand is the RunE of a command that is only there for its subcommands.
func needCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%s needs a command: %s", c.CommandPath(), strings.Join(names(c), ", "))
	}
	err := fmt.Errorf("%s has no command %q", c.CommandPath(), args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return err
}

func names(c *cobra.Command) []string {
	var list []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			list = append(list, sub.Name())
		}
	}
	return list
}

// complete makes a shell complete the values of a flag.
func (a *app) complete(c *cobra.Command, flag string, values ...string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // there is no such flag
	}
}

// ask is the RunE of a command that asks one thing: it prints the answer as
// JSON or by show.
func ask[T any](a *app, get func(context.Context, *control.Client) (T, error), show func(io.Writer, T) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		a.running = true
		v, err := answer(c.Context(), a, get)
		if err != nil {
			return a.fail(err)
		}
		if a.format == jsonText {
			return a.printJSON(v)
		}
		return show(a.out, v)
	}
}

func answer[T any](ctx context.Context, a *app, get func(context.Context, *control.Client) (T, error)) (T, error) {
	var none T
	c, err := a.dial()
	if err != nil {
		return none, err
	}
	defer c.Close()
	return limited(ctx, c, func(c *control.Client, ctx context.Context) (T, error) { return get(ctx, c) })
}

// limited asks a question that is answered at once, within askTimeout.
func limited[T any](ctx context.Context, c *control.Client, get func(*control.Client, context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return get(c, ctx)
}

// fail returns err, and prints it as JSON where output is JSON.
func (a *app) fail(err error) error {
	if a.format == jsonText {
		return errors.Join(a.printJSON(control.Line{Error: asLine(err)}), err)
	}
	return err
}

// printJSON prints an answer for scripts, indented for people who look.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (a *app) versionCommand() *cobra.Command {
	var clientOnly bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of dnsappctl and of the running dnsapp",
		Long: `version prints the version of dnsappctl and that of the dnsapp that answers on the
control socket; with --client only the first, without asking.

  dnsappctl version
  dnsappctl version --client -o json

` + exitCodes,
		Args: cobra.NoArgs,
	}
	c.Flags().BoolVar(&clientOnly, "client", false, "do not ask the running dnsapp")
	c.RunE = func(c *cobra.Command, _ []string) error {
		a.running = true
		v := versions{Client: buildVersion()}
		var err error
		if !clientOnly {
			var s control.Version
			s, err = answer(c.Context(), a, func(ctx context.Context, c *control.Client) (control.Version, error) { return c.Version(ctx) })
			if err == nil {
				v.Server = &s
			}
		}
		if a.format == jsonText {
			v.Error = errorOrNil(err)
			return errors.Join(a.printJSON(v), err)
		}
		showVersion(a.out, "dnsappctl", v.Client)
		if v.Server != nil {
			showVersion(a.out, "dnsapp", *v.Server)
		}
		return err
	}
	return c
}

// versions is the answer of the version command.
type versions struct {
	Client control.Version  `json:"client"`
	Server *control.Version `json:"server,omitempty"` // absent if it was not asked, or did not answer
	Error  *control.Error   `json:"error,omitempty"`
}

func errorOrNil(err error) *control.Error {
	if err == nil {
		return nil
	}
	return asLine(err)
}

func showVersion(w io.Writer, program string, v control.Version) {
	revision := ""
	if v.Revision != "" {
		revision = ", revision " + v.Revision
	}
	fmt.Fprintf(w, "%-9s  %s (%s%s, control API %d)\n", program, v.Version, v.Go, revision, v.API)
}
