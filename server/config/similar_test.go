package config

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"workers", "lanes", "log", "udp_idle", "udp", "warn"}
	for _, c := range []struct{ s, want string }{
		{"worker", "workers"},
		{"wrokers", "workers"}, // two neighbours swapped are one edit
		{"lane", "lanes"},
		{"udp_idel", "udp_idle"},
		{"udpidle", "udp_idle"},
		{"upd", "udp"},
		{"lgo", "log"},
		{"warning", "warn"},
		{"zebra", ""},
		{"x", ""},
		{"", ""},
	} {
		if got := nearest(c.s, words); got != c.want {
			t.Errorf("nearest(%q) = %q, want %q", c.s, got, c.want)
		}
	}
}
