package logging

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnsapp/dnsapp/server/config"
)

// Lines come out whole and in their order, in the format that is asked for.
func TestOrder(t *testing.T) {
	for format, want := range map[string]string{"text": "msg=line n=%d", "json": `"msg":"line","n":%d`} {
		var out bytes.Buffer
		q := newWriter(&out)
		log := slog.New(handler(config.Log{Level: "info", Format: format}, q))
		for n := range 100 {
			log.Info("line", "n", n)
			log.Debug("not asked for")
		}
		q.Close()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 100 {
			t.Fatalf("%s: %d lines", format, len(lines))
		}
		for n, line := range lines {
			if !strings.Contains(line, fmt.Sprintf(want, n)) {
				t.Fatalf("%s: line %d is %q", format, n, line)
			}
		}
	}
}

// A reader that stands still holds nobody up; what it misses is counted, and it is
// told when it reads again.
func TestStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		q := newWriter(w)
		const lines = 3 * queueLines
		for n := range lines {
			if _, err := fmt.Fprintf(q, "line %d\n", n); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		read := make(chan string)
		go func() {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Error(err)
			}
			read <- string(b)
		}()
		synctest.Wait() // it has read all there was
		fmt.Fprintln(q, "the last line")
		q.Close()
		w.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("somebody waited for %v", took)
		}
		got := <-read
		kept, dropped := 0, 0
		for line := range strings.Lines(got) {
			n := 0
			if _, err := fmt.Sscanf(line, "(%d lines of the log were dropped", &n); err == nil {
				dropped += n
			} else if strings.HasPrefix(line, "line ") {
				kept++
			}
		}
		if kept+dropped != lines || dropped == 0 {
			t.Errorf("%d lines came out and %d were counted, of %d", kept, dropped, lines)
		}
		if !strings.HasSuffix(got, "the last line\n") {
			t.Errorf("it ends with %q", got[len(got)-50:])
		}
	})
}

// A reader that never reads again holds up the end of a process only so long.
func TestReaderNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		q := newWriter(w)
		fmt.Fprintln(q, "a line")
		synctest.Wait()
		began := time.Now()
		q.Close()
		if took := time.Since(began); took != closeTimeout {
			t.Errorf("Close took %v", took)
		}
		r.Close() // so that the writer ends
		q.Close()
	})
}
