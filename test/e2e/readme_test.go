package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// block is a fenced shell block of a document.
type block struct {
	role string // of its mark, `<!-- test: ROLE -->`; "": not marked
	text string
}

// shellBlocks returns the ```sh blocks of a Markdown text.
func shellBlocks(text string) []block {
	var blocks []block
	var open *block
	role := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		mark, marked := strings.CutPrefix(trimmed, "<!-- test: ")
		switch {
		case open != nil && trimmed == "```":
			blocks = append(blocks, *open)
			open, role = nil, ""
		case open != nil:
			open.text += line
		case trimmed == "```sh":
			open = &block{role: role}
		case marked:
			role = strings.TrimSuffix(mark, " -->")
		}
	}
	return blocks
}

// What README.md tells a newcomer to type works, in the order it is told.
func TestReadme(t *testing.T) {
	requireSuite(t)
	for _, tool := range []string{"make", "dig", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("README.md uses %s: %v", tool, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(suite.root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	command := func(script string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", script)
		cmd.Dir, cmd.Env = suite.root, env
		return cmd
	}
	var server *exec.Cmd
	serverLog := filepath.Join(t.TempDir(), "log")
	exited := make(chan struct{})
	for _, b := range shellBlocks(string(text)) {
		switch {
		case b.role == "server":
			log, err := os.Create(serverLog)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			server = command(b.text)
			server.Stdout, server.Stderr = log, log
			server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			server.Cancel = func() error { return syscall.Kill(-server.Process.Pid, syscall.SIGINT) }
			server.WaitDelay = 10 * time.Second
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				_ = server.Wait() // the test looks at what it served
				close(exited)
			}()
			ready := awaiting(2*time.Minute, func() bool { return answers("127.0.0.1:5353") })
			said, err := os.ReadFile(serverLog)
			if err != nil || !ready {
				t.Fatalf("%s does not serve: %v\n%s", strings.TrimSpace(b.text), err, said)
			}
			for _, hint := range []string{"dig @127.0.0.1", "dnsappctl", "reload"} {
				if !strings.Contains(string(said), hint) {
					t.Errorf("make run does not say to try %q:\n%s", hint, said)
				}
			}
		case b.role == "client":
			out, err := command(b.text).CombinedOutput()
			t.Logf("%s\n%s", b.text, out)
			if err != nil || len(out) == 0 {
				t.Errorf("%s\nfails: %v\n%s", b.text, err, out)
			}
		case strings.TrimSpace(b.text) != "make test": // this is make test
			t.Errorf("a block of README.md is not tested:\n%s", b.text)
		}
	}
	if server == nil {
		t.Fatal("README.md starts no server")
	}
	select { // its last block stops the server
	case <-exited:
	case <-time.After(20 * time.Second):
		t.Error("the server of README.md has not ended")
	}
}

// Every local link in the documents leads to a file.
func TestLinks(t *testing.T) {
	requireSuite(t)
	documents, err := filepath.Glob(filepath.Join(suite.root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		documents = append(documents, filepath.Join(suite.root, name))
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`) // no colon: no scheme
	for _, doc := range documents {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s: %v", filepath.Base(doc), err)
			}
		}
	}
}
