package conformance

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkzoneSkips are the zones that we judge otherwise on purpose, with the
// reason.
var checkzoneSkips = map[string]string{
	"warn.inherited.owner":   "the file that it includes is not in the data set",
	"nowarn.inherited.owner": "the file that it includes is not in the data set",
}

// checkzoneOrigins are the origins of the zones that are not example.
var checkzoneOrigins = map[string]string{
	"crashzone":           "dyn.example.net.",
	"bad-dns-sd-reverse":  "0.0.192.in-addr.arpa.",
	"good-dns-sd-reverse": "0.0.192.in-addr.arpa.",
}

// checkzoneOther says which of the zones that are named neither good nor bad
// are refused; the rest of them load.
var checkzoneOther = []string{
	"crashzone", // a signature time in the year 10
}

// TestCheckzone: good zones load, bad ones are refused with the line that is
// wrong, and the others warn or do not warn, as BIND's checker has it.
func TestCheckzone(t *testing.T) {
	dir := dataDir(t, "checkzone")
	files, err := filepath.Glob(filepath.Join(dir, "*.db"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no zones in %s: %v", dir, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".db")
		t.Run(name, func(t *testing.T) {
			if reason, ok := checkzoneSkips[name]; ok {
				t.Skip(reason)
			}
			origin, ok := checkzoneOrigins[name]
			if !ok {
				origin = "example."
			}
			_, rep, err := compileFile(t, origin, file)
			switch bad := strings.HasPrefix(name, "bad") || slices.Contains(checkzoneOther, name); {
			case bad && err == nil:
				t.Errorf("accepted, with warnings %v", rep.Warnings)
			case !bad && err != nil:
				t.Errorf("refused: %v", err)
			case bad:
				if !strings.Contains(err.Error(), filepath.Base(file)+":") {
					t.Errorf("refused without a line: %v", err)
				}
			case strings.HasPrefix(name, "warn.") && len(rep.Warnings) == 0:
				t.Errorf("no warning")
			case strings.HasPrefix(name, "nowarn.") && len(rep.Warnings) > 0:
				t.Errorf("warnings %v", rep.Warnings)
			}
		})
	}
}
