package metrics

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	readTimeout  = 5 * time.Second                 // for a client to send its request
	writeTimeout = 2*sampleTimeout + 5*time.Second // for the answer, from the request on
	readyTimeout = time.Second                     // for the supervisor to say whether it is ready

	// maxScrapes is how many /metrics are answered at a time: each one bothers
	// the supervisor.
	maxScrapes = 4
)

// NewServer returns the server of the admin address. The caller binds the
// address and calls Serve with the listener.
func NewServer(src Source, log *slog.Logger) *http.Server {
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collector{src},
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: errorLog, MaxRequestsInFlight: maxScrapes, Timeout: 2 * sampleTimeout,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := src.Ready(ctx); err != nil {
			plain(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		plain(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /{$}", index)
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          errorLog,
	}
}

// plain answers with one line of text.
func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // a client that has gone needs no answer
}

const indexPage = `<!doctype html>
<title>dnsapp</title>
<h1>dnsapp</h1>
<ul>
<li><a href="/metrics">/metrics</a>: everything, for Prometheus
<li><a href="/healthz">/healthz</a>: 200 as long as the supervisor lives
<li><a href="/readyz">/readyz</a>: 200 if a generation serves
</ul>
`

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, indexPage)
}
