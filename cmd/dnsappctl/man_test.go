package main

import (
	"path/filepath"
	"testing"

	"github.com/dnsapp/dnsapp/cmd/internal/manual"
)

// The pages in packaging/man say what the help says.
func TestManual(t *testing.T) {
	a := &app{env: environment("")}
	manual.Compare(t, a.rootCommand(), filepath.Join("..", "..", "packaging", "man"), *rewrite)
}
