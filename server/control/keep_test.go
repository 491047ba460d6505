package control

import (
	"os"
	"path/filepath"
	"testing"
)

// A control socket that was removed, alone or with its directory, comes back, and
// the directory is locked as before.
func TestPutBack(t *testing.T) {
	path := socketPath(t)
	dir := filepath.Dir(path)
	log, run := logged(t, &fakeBackend{}, path)
	run()
	old := client(t, path)
	for i, what := range []string{path, dir, filepath.Dir(dir)} {
		if err := os.RemoveAll(what); err != nil {
			t.Fatal(err)
		}
		if what == filepath.Dir(dir) { // more than the server makes: it says so, once, and waits
			await(t, "it is logged", func() bool { return log.count("cannot be put back") == 1 })
			if err := os.Mkdir(what, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		await(t, "the socket is back", func() bool { return log.count("is put back") == i+1 })
		if _, err := client(t, path).Status(testContext(t)); err != nil {
			t.Errorf("after %s was removed: %v", what, err)
		}
		if _, err := old.Status(testContext(t)); err != nil {
			t.Errorf("a connection from before: %v", err)
		}
		if _, err := listen(path); err == nil {
			t.Error("a second instance got the directory")
		}
	}
	if n := log.count("cannot be put back"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// What somebody else has put in the place of the socket is left alone.
func TestPlaceTaken(t *testing.T) {
	path := socketPath(t)
	log, run := logged(t, &fakeBackend{}, path)
	run()
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	second, err := listen(path)
	if err != nil {
		t.Skip("the socket was put back faster than it could be taken:", err)
	}
	await(t, "it is logged", func() bool { return log.count("cannot be put back") == 1 })
	if !second.inPlace() {
		t.Error("the second instance has lost its socket")
	}
	release(t, second)
	await(t, "the socket is back", func() bool { return log.count("is put back") == 1 })
}
