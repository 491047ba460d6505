package main

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/dnsapp/dnsapp/cmd/internal/manual"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// The pages in packaging/man say what the help says.
func TestManual(t *testing.T) {
	manual.Compare(t, rootCommand(), filepath.Join("..", "..", "packaging", "man"), *rewrite)
}
