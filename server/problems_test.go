package server

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/metrics"
	"github.com/dnsapp/dnsapp/server/zones"
)

func TestProblemsOf(t *testing.T) {
	list := config.Problems{{File: "/etc/a.yaml", Line: 4, Key: "workers", Msg: "is 0", Fix: "write 1"}}
	for name, c := range map[string]struct {
		err  error
		want []control.Problem
	}{
		"none": {nil, nil},
		"configuration": {fmt.Errorf("loading: %w", list), []control.Problem{
			{File: "/etc/a.yaml", Line: 4, Key: "workers", Message: "is 0", Want: "write 1"},
		}},
		"zones": {errors.New("compiling zone a.example.: /z/a zone:3: www: no TTL\n/z/b:9: x\n/z/b: no SOA"), []control.Problem{
			{File: "/z/a zone", Line: 3, Message: "www: no TTL"}, {File: "/z/b", Line: 9, Message: "x"}, {Message: "/z/b: no SOA"},
		}},
		"addresses": {errors.New("listener dns: binding udp [::1]:53: permission denied\nbinding udp 127.0.0.1:53: in use"), []control.Problem{
			{Message: "listener dns: binding udp [::1]:53: permission denied"}, {Message: "binding udp 127.0.0.1:53: in use"},
		}},
	} {
		if d := cmp.Diff(c.want, problemsOf(c.err)); d != "" {
			t.Errorf("%s differ (-want +got):\n%s", name, d)
		}
	}
}

func TestRefusalOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want metrics.Refusal
	}{
		{config.Problems{{Msg: "is wrong"}}, metrics.RefusedConfig},
		{&zones.RefusedError{}, metrics.RefusedZone},
		{&bindError{unix.EACCES}, metrics.RefusedAddress},
		{fmt.Errorf("making a region: %w", unix.ENOMEM), metrics.RefusedSystem},
	} {
		if got := refusalOf(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

func TestOutOfFiles(t *testing.T) {
	err := outOfFiles(fmt.Errorf("starting: %w", unix.EMFILE))
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("%v", err)
	}
	if err := outOfFiles(unix.ENOENT); err != unix.ENOENT {
		t.Errorf("%v", err)
	}
}

func TestUsage(t *testing.T) {
	p, ok := usage(3, os.Getpid())
	if !ok || p.Worker != 3 || p.Resident < 1<<20 || p.OpenFDs < 3 || p.MaxFDs < 16 {
		t.Errorf("%+v", p)
	}
	if _, ok := usage(0, 1<<22+1); ok {
		t.Error("a process that cannot be takes something")
	}
	if n := fileLimit([]byte("Max open files            unlimited            unlimited            files\n")); n != 0 {
		t.Errorf("unlimited is %d", n)
	}
}

func TestConfigHash(t *testing.T) {
	var h hashed
	one, two := &config.Config{Workers: 1}, &config.Config{Workers: 2}
	a, b := h.get(one), h.get(two)
	if a == 0 || a == b || a >= 1<<48 || h.get(one) != a || configHash(&config.Config{Workers: 1, Name: "b", File: "/c"}) != a {
		t.Errorf("hashes %x and %x", a, b)
	}
}

func TestBrief(t *testing.T) {
	for reason, want := range map[string]string{"": "", "a": "a", "a\nb": "a (and 1 more)", "a\nb\nc": "a (and 2 more)"} {
		if got := brief(reason); got != want {
			t.Errorf("brief(%q) is %q, want %q", reason, got, want)
		}
	}
}
