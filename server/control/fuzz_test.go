package control

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FuzzRequest sends any method, path and body. Whatever they are, a backend
// only ever sees valid options, and every answer is one that the API describes.
func FuzzRequest(f *testing.F) {
	f.Add("GET", "/v1/status", "")
	f.Add("POST", "/v1/reload", `{"wait":"commit","timeout_ms":1500.25}`)
	f.Add("POST", "/v1/reload", ``)
	f.Add("POST", "/v1/stop", `{"kind":"fast"}`)
	f.Add("POST", "/v1/stop", `{"kind":"fast"}{"kind":"now"}`)
	f.Add("POST", "/v1/drain", `{"epoch":7,"now":true}`)
	f.Add("POST", "/v1/abort", `{}`)
	f.Add("GET", "/v1/events", ``)
	f.Add("PUT", "/v1/../v1/zones", `[`)

	var t *testing.T // of the input in progress; a fuzz worker runs one at a time
	s := NewServer(&fakeBackend{
		reload: func(ctx context.Context, o ReloadOptions, emit func(Event)) (*ReloadReport, error) {
			if o.Wait != WaitDone && o.Wait != WaitCommit {
				t.Errorf("wait is %q", o.Wait)
			}
			emit(Event{})
			return &ReloadReport{}, ctx.Err()
		},
		stop: func(ctx context.Context, kind StopKind, _ func(Event)) error {
			if kind != StopGraceful && kind != StopFast && kind != StopNow {
				t.Errorf("kind is %q", kind)
			}
			return ctx.Err()
		},
		drain: func(ctx context.Context, epoch uint32, _ bool, _ func(Event)) error {
			if epoch == 0 {
				t.Error("epoch is 0")
			}
			return ctx.Err()
		},
	}, slog.New(slog.DiscardHandler))
	ctx := context.WithValue(context.Background(), peerKey{}, unix.Ucred{Uid: uint32(os.Geteuid())})

	f.Fuzz(func(tt *testing.T, method, path, body string) {
		t = tt
		r := &http.Request{Method: method, URL: &url.URL{Path: path}, Body: io.NopCloser(strings.NewReader(body)), Host: "dnsapp"}
		w := recorder{httptest.NewRecorder()}
		s.http.Handler.ServeHTTP(w, r.WithContext(ctx))

		dec := json.NewDecoder(w.Body)
		switch typ := w.Header().Get("Content-Type"); {
		case w.Code >= 300 && w.Code < 400: // the mux cleans paths
		case w.Code != http.StatusOK:
			var e Error
			if err := dec.Decode(&e); err != nil || e.Message == "" || e.status() == http.StatusInternalServerError {
				t.Errorf("%d with error %+v, %v", w.Code, e, err)
			}
		case typ == "application/x-ndjson":
			var l Line
			for !l.Done {
				l = Line{}
				if err := dec.Decode(&l); err != nil {
					t.Fatalf("stream without a last line: %v", err)
				}
			}
		case typ != "application/json":
			t.Errorf("content type %q", typ)
		}
	})
}

// recorder is a ResponseRecorder whose deadlines can be set.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) SetWriteDeadline(time.Time) error { return nil }
