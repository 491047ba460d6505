// Package logging makes the logger of every process of an instance.
//
// Invariant: all of them write whole lines to the same standard error, so one
// stream tells the story in order. Nothing is logged per packet.
package logging

import (
	"log/slog"
	"os"

	"github.com/dnsapp/dnsapp/server/config"
)

// New returns the logger that the configuration asks for.
func New(c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil { // config admits no other
		level = slog.LevelInfo
	}
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, o))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, o))
}
