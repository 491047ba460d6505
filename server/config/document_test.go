package config

import "testing"

// The decoder is strict by itself: what the checker might let through, it
// refuses.
func TestDecodeIsStrict(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"unknown key":           {"wrokers": 2},
		"unknown key below":     {"reload": map[string]any{"idle": "5s"}},
		"unknown key in a list": {"zones": []any{map[string]any{"nam": "a"}}},
		"text for a number":     {"workers": "2"},
		"number for text":       {"user": 5},
		"number for a truth":    {"expose_generation": 1},
		"one for a list":        {"zones": map[string]any{"name": "a"}},
		"bare duration":         {"reload": map[string]any{"udp_idle": 5}},
		"bad duration":          {"reload": map[string]any{"udp_idle": "5"}},
		"bad address":           {"admin": "localhost:1"},
	} {
		if d, err := decode(values); err == nil {
			t.Errorf("%s: decoded %+v", name, d)
		}
	}
	if _, err := decode(map[string]any{}); err != nil {
		t.Errorf("nothing: %v", err)
	}
}
