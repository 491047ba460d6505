package server

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/control"
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

func TestBrief(t *testing.T) {
	for reason, want := range map[string]string{"": "", "a": "a", "a\nb": "a (and 1 more)", "a\nb\nc": "a (and 2 more)"} {
		if got := brief(reason); got != want {
			t.Errorf("brief(%q) is %q, want %q", reason, got, want)
		}
	}
}
