package zone

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A pipe that nobody writes to kept the compiler, and so every reload, waiting
// for ever; a device without an end took all memory.
func TestOnlyRegularFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/null"} {
		for what, file := range map[string]string{
			"zone file": path,
			"$INCLUDE":  write(t, "include.zone", apexText+"$INCLUDE "+path+"\n"),
		} {
			if _, _, err := Compile("example.org", file); err == nil || !strings.Contains(err.Error(), ErrNotRegular.Error()) {
				t.Errorf("%s %s: %v, want it refused as not a regular file", what, path, err)
			}
		}
		if _, err := Opener(OpenFile).ReadDep(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("ReadDep(%s): %v, want ErrNotRegular", path, err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(write(t, "a.zone", apexText), link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Compile("example.org", link); err != nil {
		t.Errorf("a symbolic link to a zone file: %v", err)
	}
}
