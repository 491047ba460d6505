package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/exit"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	ms  = control.Millis(time.Millisecond)
	sec = control.Millis(time.Second)
)

// Every command prints what testdata says, in both formats.
func TestGolden(t *testing.T) {
	refused := &backend{reload: func(context.Context, control.ReloadOptions, func(control.Event)) (*control.ReloadReport, error) {
		e := control.Refuse("reload refused; nothing was changed")
		e.Problems = []control.Problem{
			{File: "/etc/dnsapp/dnsapp.yaml", Line: 4, Key: "workers", Message: "is 0", Want: "a whole number from 1 to 64"},
			{File: "/etc/dnsapp/dnsapp.yaml", Line: 9, Key: "zones[0].file", Message: `there is no file "a.zone"`},
		}
		return &control.ReloadReport{ID: 3, Outcome: control.OutcomeRefused, Elapsed: 2 * ms, StartedAt: day, FromEpoch: 2, Problems: e.Problems}, e
	}}
	aborted := &backend{reload: func(context.Context, control.ReloadOptions, func(control.Event)) (*control.ReloadReport, error) {
		return &control.ReloadReport{
			ID: 3, Outcome: control.OutcomeAborted, Elapsed: 2000 * ms, StartedAt: day, FromEpoch: 2, Reason: "worker 1 is not ready after 2 s",
			Steps: []control.StepTime{{Step: control.StepPrepare, Elapsed: 3 * ms}, {Step: control.StepWindow, Elapsed: 1997 * ms}},
		}, errors.New("reload failed: worker 1 is not ready after 2 s")
	}}
	draining := &backend{reload: func(ctx context.Context, _ control.ReloadOptions, emit func(control.Event)) (*control.ReloadReport, error) {
		emit(control.Event{Time: day, Elapsed: 23 * ms, Step: control.StepDrain, Entered: true, Epoch: 1, Text: "3 UDP flows"})
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	late := &backend{abort: func(context.Context) (*control.Aborted, error) {
		return nil, control.Refuse("refused; nothing was changed: too late: the wire is changing hands")
	}}
	same := &backend{plan: func() *control.Plan {
		return &control.Plan{Accepted: true, ConfigFile: "/etc/dnsapp/dnsapp.yaml", FromEpoch: 2, Kept: 1}
	}}
	wrong := &backend{plan: func() *control.Plan {
		return &control.Plan{
			ConfigFile: "/etc/dnsapp/dnsapp.yaml", FromEpoch: 2,
			Zones: []control.ZonePlan{{Name: "a.example.", File: "/etc/dnsapp/a.zone", Error: true}},
			Problems: []control.Problem{
				{File: "/etc/dnsapp/a.zone", Line: 3, Message: "www: no TTL"}, {Message: "listener dns: udp 127.0.0.1:53 is taken by nsd (pid 7)"},
			},
		}
	}}
	stale := &backend{zones: func(_ context.Context, names []string, _ func(control.Event)) (*control.ZoneReport, error) {
		p := []control.Problem{{File: "/etc/dnsapp/a.zone", Line: 3, Key: "a.example.", Message: "www: no TTL"}}
		r := &control.ZoneReport{ID: 8, StartedAt: day, Elapsed: 9 * ms, Compile: 9 * ms, Checked: len(names), Changed: 21, Failed: 1, Workers: 1, Problems: p}
		r.Reason = "the last good version of 1 zone is served on"
		for i := range uint32(21) {
			r.Zones = append(r.Zones, control.ZoneChange{Name: "b.example.", OldSerial: i, Serial: i + 1, OldRecords: 3, Records: 1})
		}
		return r, &control.Error{Code: control.CodeFailed, Message: r.Reason, Problems: p}
	}}
	unknown := &backend{zones: func(context.Context, []string, func(control.Event)) (*control.ZoneReport, error) {
		e := control.Refuse("no zone was looked at")
		e.Problems = []control.Problem{{Key: "nope.", Message: "is not served", Want: "dnsappctl zone list says which are"}}
		return nil, e
	}}
	nowhere := &backend{flow: func(q control.FlowQuery) (*control.FlowAnswer, error) {
		return nil, control.Refuse("nothing serves %s %v; dnsappctl status lists the listeners", q.Transport, q.Local)
	}}
	for _, c := range []struct {
		name string
		b    *backend
		args string
		code int
	}{
		{"status", &backend{}, "status", exit.Done},
		{"status-epoch", &backend{}, "status --epoch 1", exit.Done},
		{"status-active", &backend{}, "status --epoch 2", exit.Done},
		{"status-no-epoch", &backend{}, "status --epoch 9", exit.Refused},
		{"backend-list", &backend{}, "backend list", exit.Done},
		{"backend-show", &backend{}, "backend show app", exit.Done},
		{"backend-show-unknown", &backend{}, "backend show nope", exit.Refused},
		{"server-drain", &backend{}, "server drain app a", exit.Done},
		{"server-weight", &backend{}, "server weight app a 9", exit.Done},
		{"server-enable-unknown", &backend{}, "server enable app z", exit.Refused},
		{"diff", &backend{}, "diff", exit.Done},
		{"zone-list", &backend{}, "zone list", exit.Done},
		{"zone-show", &backend{}, "zone show example.com.", exit.Done},
		{"zone-show-stale", &backend{}, "zone show big.example.", exit.Done},
		{"zone-show-unknown", &backend{}, "zone show nope.", exit.Refused},
		{"zone-reload", &backend{}, "zone reload", exit.Done},
		{"zone-reload-failed", stale, "zone reload a.example b.example", exit.Failed},
		{"zone-reload-unknown", unknown, "zone reload nope.", exit.Refused},
		{"reload", &backend{}, "reload", exit.Done},
		{"reload-commit", &backend{}, "reload --wait commit", exit.Done},
		{"reload-refused", refused, "reload", exit.Refused},
		{"reload-aborted", aborted, "reload", exit.Failed},
		{"reload-draining", draining, "reload --timeout 20ms", exit.Draining},
		{"dry-run", &backend{}, "reload --dry-run", exit.Done},
		{"dry-run-same", same, "reload --dry-run", exit.Done},
		{"dry-run-refused", wrong, "reload --dry-run", exit.Refused},
		{"explain-flow", &backend{}, "explain flow 127.0.0.1:40001", exit.Done},
		{"explain-flow-tcp", &backend{}, "explain flow --tcp 127.0.0.1:40001", exit.Done},
		{"explain-flow-refused", nowhere, "explain flow --local [::1]:99 [::1]:40001", exit.Refused},
		{"top", &backend{}, "top --once --interval 10ms", exit.Done},
		{"abort", &backend{}, "abort", exit.Done},
		{"abort-refused", late, "abort", exit.Refused},
		{"drain", &backend{}, "drain 1", exit.Done},
		{"drain-now", &backend{}, "drain 1 --now", exit.Done},
		{"drain-refused", &backend{}, "drain 2", exit.Refused},
		{"watch", &backend{}, "watch", exit.Done},
		{"watch-last", &backend{}, "watch --last 1", exit.Done},
		{"trace", &backend{}, "trace --pcap - --count 2", exit.Done},
		{"trace-refused", &backend{}, "trace --pcap /nowhere/there --filter arp", exit.Refused},
		{"upgrade", &backend{}, "upgrade --binary /opt/dnsapp", exit.Done},
		{"upgrade-drain-old", &backend{}, "upgrade --drain-old", exit.Done},
		{"upgrade-rollback", &backend{}, "upgrade --rollback", exit.Done},
		{"stop", &backend{}, "stop", exit.Done},
		{"stop-fast", &backend{}, "stop --fast", exit.Done},
		{"stop-now", &backend{}, "stop --now", exit.Done},
	} {
		path := serve(t, c.b)
		for _, format := range []string{"text", "json"} {
			out, errs, code := ctl(t, path, append(strings.Fields(c.args), "-o", format)...)
			if code != c.code {
				t.Errorf("%s: code %d, want %d", c.name, code, c.code)
			}
			if errs != "" {
				out += "-- standard error --\n" + errs
			}
			golden(t, c.name+"."+format, out)
		}
	}
}

// The help of every command is what testdata says: it is read in review.
func TestHelp(t *testing.T) {
	for _, c := range []string{"", "status", "top", "watch", "trace", "reload", "abort", "drain", "upgrade", "stop", "explain", "explain flow", "zone", "zone list", "zone reload", "zone show", "version"} {
		out, errs, code := ctl(t, "", append(strings.Fields(c), "--help")...)
		if code != exit.Done || errs != "" {
			t.Errorf("%s: code %d: %s", c, code, errs)
		}
		golden(t, strings.TrimPrefix(strings.ReplaceAll("help "+c, " ", "-")+".txt", "-"), out)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got), -rewrite accepts it:\n%s", file, d)
	}
}

func TestUsage(t *testing.T) {
	path := serve(t, &backend{
		reload: func(context.Context, control.ReloadOptions, func(control.Event)) (*control.ReloadReport, error) {
			t.Error("a reload was begun")
			return nil, nil
		},
		stop: func(context.Context, control.StopKind, func(control.Event)) error {
			t.Error("a stop was begun")
			return nil
		},
	})
	for _, c := range []struct{ args, want string }{
		{"", "needs a command: abort, backend, completion, diff, drain, explain, primary, reload, server, status, stop, top, trace, upgrade, version, watch, zone"},
		{"fly", `has no command "fly"`},
		{"stauts", "did you mean status?"},
		{"zone", "needs a command: list, reload, show"},
		{"zone lits", "did you mean list?"},
		{"status now", `unknown command "now"`},
		{"status --no-such-flag", "unknown flag: --no-such-flag\ntry dnsappctl status --help"},
		{"status -o yaml", "it is text or json"},
		{"reload --wait forever", "it is done or commit"},
		{"reload --dry-run --wait commit", "[dry-run wait]"},
		{"reload --timeout 5", "missing unit"},
		{"reload --timeout -5s", "--timeout -5s is negative"},
		{"stop --timeout -5s", "--timeout -5s is negative"},
		{"stop --fast --now", "[fast now]"},
		{"top --interval 1ms", "--interval 1ms is shorter than 10ms"},
		{"primary", "needs a command: status, stop"},
		{"explain", "needs a command: flow"},
		{"explain flow", "accepts 1 arg(s), received 0"},
		{"explain flow 192.0.2.1", `"192.0.2.1" is no address with a port`},
		{"explain flow 192.0.2.1:0", `"192.0.2.1:0" is no address with a port`},
		{"explain flow 192.0.2.1:7 --local host:53", `--local: "host:53" is no address with a port`},
		{"explain flow 192.0.2.1:7 --tcp --udp", "[tcp udp]"},
		{"watch --last 257", "--last 257 is not from 0 to 256"},
		{"watch --last -1", "--last -1 is not from 0 to 256"},
		{"trace", `required flag(s) "pcap" not set`},
		{"trace --pcap - --filter prot", `--filter: the filter "prot": "prot" stands where host`},
		{"trace --pcap - --for -5s", "--for -5s"},
		{"trace --pcap - --snaplen 65536", "--snaplen 65536"},
		{"abort 2", `unknown command "2"`},
		{"drain", "accepts 1 arg(s), received 0"},
		{"drain 0", `"0" is not an epoch`},
		{"drain one", `"one" is not an epoch`},
		{"drain 1 2", "accepts 1 arg(s), received 2"},
		{"drain 1 --timeout -5s", "--timeout -5s is negative"},
		{"server", "server needs a command: disable, drain, enable, weight"},
		{"server drain app", "accepts 2 arg(s), received 1"},
		{"server weight app a much", `weight "much" is not a whole number`},
		{"stop --fast now", `unknown command "now"`},
	} {
		out, errs, code := ctl(t, path, strings.Fields(c.args)...)
		if code != exit.Usage || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, "--help") {
			t.Errorf("%q: code %d, out %q, err %q", c.args, code, out, errs)
		}
	}
}

func TestUnreachable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	for _, c := range []string{"status", "top", "watch", "reload", "reload --dry-run", "abort", "drain 1", "stop", "zone list", "zone reload", "zone show a.", "version"} {
		_, errs, code := ctl(t, path, strings.Fields(c)...)
		if code != exit.Unreachable || !strings.Contains(errs, path) || !strings.Contains(errs, "try dnsapp serve -c FILE") {
			t.Errorf("%s: code %d: %s", c, code, errs)
		}
		out, _, code := ctl(t, path, append(strings.Fields(c), "-o", "json")...)
		if code != exit.Unreachable || !strings.Contains(out, `"unreachable"`) {
			t.Errorf("%s -o json: code %d: %s", c, code, out)
		}
	}
	out, errs, code := ctl(t, path, "version", "--client")
	if code != exit.Done || errs != "" || !strings.HasPrefix(out, "dnsappctl  devel (go") {
		t.Errorf("version --client: code %d: %s%s", code, out, errs)
	}
}

// --control is stronger than the environment.
func TestControlFlag(t *testing.T) {
	path := serve(t, &backend{})
	if out, errs, code := ctl(t, "/nowhere", "--control", path, "version"); code != exit.Done || !strings.Contains(out, "dnsapp     v0.1.0 (go1.26.8, revision f737e20, control API 1)") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// A supervisor that fails to answer is told from one that is not there.
func TestFailed(t *testing.T) {
	path := serve(t, &backend{status: func(context.Context) (*control.Status, error) { return nil, errors.New("no directory") }})
	if _, errs, code := ctl(t, path, "status"); code != exit.Failed || errs != "dnsappctl: no directory\n" {
		t.Errorf("code %d: %s", code, errs)
	}
}

// Each event is printed before the next one happens.
func TestStreams(t *testing.T) {
	printed := make(chan string)
	path := serve(t, &backend{
		reload: func(ctx context.Context, _ control.ReloadOptions, emit func(control.Event)) (*control.ReloadReport, error) {
			for _, step := range control.Steps[1:] {
				emit(control.Event{Step: step, Entered: true})
				select {
				case line := <-printed:
					if !strings.Contains(line, string(step)) {
						t.Errorf("after %s came %q", step, line)
					}
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return &control.ReloadReport{OK: true, Outcome: control.OutcomeDone}, nil
		},
	})
	for _, format := range []string{"text", "json"} {
		r, w := io.Pipe()
		var reading sync.WaitGroup
		reading.Go(func() {
			lines := bufio.NewScanner(r)
			for range len(control.Steps) - 1 {
				if !lines.Scan() {
					return
				}
				printed <- lines.Text()
			}
			_, _ = io.Copy(io.Discard, r)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		a := &app{out: w, err: io.Discard, env: environment(path)}
		if code := a.run(ctx, []string{"reload", "-o", format}); code != exit.Done {
			t.Errorf("%s: code %d", format, code)
		}
		cancel()
		_ = w.Close()
		reading.Wait()
	}
}

// Ctrl-C leaves the reload alone and says so.
func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan struct{})
	path := serve(t, &backend{
		reload: func(ctx context.Context, _ control.ReloadOptions, _ func(control.Event)) (*control.ReloadReport, error) {
			interrupt()
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		},
	})
	var errs bytes.Buffer
	a := &app{out: io.Discard, err: &errs, env: environment(path)}
	if code := a.run(ctx, []string{"reload"}); code != exit.Draining || errs.String() != "dnsappctl: stopped watching; the reload goes on\n" {
		t.Errorf("code %d: %s", code, errs.String())
	}
	<-ended
}

// Ctrl-C is how a watch is meant to end.
func TestInterruptWatch(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	path := serve(t, &backend{watch: func(ctx context.Context, _ int, _ func(control.Event)) error {
		interrupt()
		<-ctx.Done()
		return ctx.Err()
	}})
	var errs bytes.Buffer
	a := &app{out: io.Discard, err: &errs, env: environment(path)}
	if code := a.run(ctx, []string{"watch"}); code != exit.Done || errs.Len() != 0 {
		t.Errorf("code %d: %s", code, errs.String())
	}
}

// The shell is offered the generations that drain, with what they wait for.
func TestCompleteDrain(t *testing.T) {
	out, _, code := ctl(t, serve(t, &backend{}), "__complete", "drain", "")
	if want := "1\t3 UDP flows, newest idle 4.1 s; deadline in 31 s\n:4\n"; code != exit.Done || out != want {
		t.Errorf("code %d: %q, want %q", code, out, want)
	}
}

// Frames follow each other until Ctrl-C, which is how top is meant to end.
func TestTop(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		ctx, interrupt := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var lines []string
		var reading sync.WaitGroup
		reading.Go(func() {
			for in := bufio.NewScanner(r); in.Scan(); {
				if lines = append(lines, in.Text()); len(lines) == 20 {
					interrupt()
				}
			}
		})
		a := &app{out: w, err: io.Discard, env: environment(serve(t, &backend{}))}
		if code := a.run(ctx, []string{"top", "--interval", "10ms", "-o", format}); code != exit.Done {
			t.Errorf("%s: code %d", format, code)
		}
		_ = w.Close()
		reading.Wait()
		want := map[string]string{"text": "dnsapp edge-1", "json": `{"name":"edge-1"`}[format]
		frames := 0
		for _, l := range lines {
			if strings.HasPrefix(l, want) {
				frames++
			}
			if strings.Contains(l, "\x1b") {
				t.Errorf("%s: an escape where there is no terminal: %q", format, l)
			}
		}
		if frames < 2 {
			t.Errorf("%s: %d frames in\n%s", format, frames, strings.Join(lines, "\n"))
		}
	}
}

func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s := &screen{out: &b, terminal: true}
	s.open()
	if err := errors.Join(s.show("one\ntwo\n"), s.show("three\n")); err != nil {
		t.Fatal(err)
	}
	s.close()
	if want := alternate + home + "one" + eraseLine + "\ntwo" + eraseLine + eraseRest + home + "three" + eraseLine + eraseRest + restore; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	if got := fit("a long line\nb\nc\n", 6, 2); got != "a long\nb\n" {
		t.Errorf("fitted: %q", got)
	}
	if got := fit("a long line\nb", 0, 0); got != "a long line\nb" {
		t.Errorf("without limits: %q", got)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.5: "0.5", 9.94: "9.9", 9.96: "10", 999: "999", 9999: "9999", 9999.6: "10.0k", 12345: "12.3k", 999949: "999.9k", 1.25e6: "1.25M",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %s, want %s", v, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-1, "0s"}, {0, "0s"}, {361 * time.Microsecond, "0.361ms"}, {33942 * time.Microsecond, "33.9ms"},
		{99960 * time.Microsecond, "100ms"}, {999600 * time.Microsecond, "1.00s"}, {4120 * time.Millisecond, "4.12s"},
		{90 * time.Second, "1m30s"}, {3661 * time.Second, "1h1m"}, {50 * time.Hour, "2d2h"},
	} {
		if got := span(c.d); got != c.want {
			t.Errorf("span(%v) = %s, want %s", c.d, got, c.want)
		}
	}
}

// words splits a command line as a shell does, which knows single quotes only.
func words(line string) (list []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// Every command line of docs/operations.md is one: without a dnsapp it fails
// for that reason and no other.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	n, shell := 0, false
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "```") {
			shell = line == "```sh\n"
		}
		line, _, _ = strings.Cut(line, "#")
		line, _, _ = strings.Cut(line, "|")
		args := words(line)
		if !shell || len(args) == 0 || args[0] != "dnsappctl" {
			continue
		}
		n++
		want := exit.Unreachable
		if args[1] == "completion" {
			want = exit.Done
		}
		if _, errs, code := ctl(t, filepath.Join(t.TempDir(), "none.sock"), args[1:]...); code != want {
			t.Errorf("%s: code %d: %s", strings.TrimSpace(line), code, errs)
		}
	}
	if n < 8 {
		t.Errorf("only %d command lines found", n)
	}
}
