package layouttest

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

type inner struct {
	A uint16
	B [2]uint32
}

type outer struct {
	W  atomic.Uint64
	_  [8]byte
	In [3]inner
}

func TestDumpNamesEveryField(t *testing.T) {
	var d Dump
	d.Struct("outer", &outer{})
	d.Value("x", 3)
	const want = `struct outer size 56
     0 W            8 atomic.Uint64
    16 In           36 [3]layouttest.inner
    16 In[0].A      2 uint16
    20 In[0].B      8 [2]uint32
value x 3
`
	if got := d.b.String(); got != want {
		t.Errorf("dump is\n%s, not\n%s", got, want)
	}
}

// A changed dump under the same number is refused even with -update-layout; under
// a raised number it is accepted with it only.
func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "testdata", "layout.golden")
	if err := check(file, 1, "a\n", false); err == nil {
		t.Error("no golden file, and no error")
	}
	steps := []struct {
		layout uint32
		dump   string
		update bool
		want   string // in the error
	}{
		{1, "a\n", true, ""},
		{1, "a\n", false, ""},
		{1, "b\n", false, "raise the number"},
		{1, "b\n", true, "raise the number"},
		{2, "b\n", false, "-update-layout"},
		{2, "b\n", true, ""},
		{2, "b\n", false, ""},
		{1, "b\n", false, "-update-layout"},
	}
	for i, s := range steps {
		err := check(file, s.layout, s.dump, s.update)
		if (err == nil) != (s.want == "") || err != nil && !strings.Contains(err.Error(), s.want) {
			t.Errorf("step %d: error %v, want %q", i, err, s.want)
		}
	}
}
