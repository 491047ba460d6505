// Package logging makes the logger of every process of an instance.
//
// Invariant: nobody waits for the reader of the log. All processes write whole
// lines to the same standard error, so one stream tells the story in order;
// what its reader does not take in time is dropped and counted. Nothing is logged
// per packet.
package logging

import (
	"io"
	"log/slog"
	"os"

	"github.com/dnsapp/dnsapp/server/config"
)

// New returns the logger to standard error that the configuration asks for, and
// the function to call before the process ends: it gives the last lines a moment
// to get out.
func New(c config.Log) (log *slog.Logger, end func()) {
	q := newWriter(os.Stderr)
	return slog.New(handler(c, q)), q.Close
}

func handler(c config.Log, w io.Writer) slog.Handler {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil { // config admits no other
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}
