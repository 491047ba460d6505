//go:build hold

package hold

import (
	"fmt"
	"io"
	"net"
	"os"
)

// Enabled reports whether a process can be held at all.
const Enabled = true

// Variable is the environment variable that names the socket, "" where there is
// none.
const Variable = "DNSAPP_HOLD"

// At is a place: it returns when a test lets the process go on.
func At(place string) {
	address := os.Getenv(Variable)
	if address == "" {
		return
	}
	c, err := net.Dial("unix", address)
	if err != nil {
		return // the test has ended
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, os.Getpid(), place); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c) // its end is all there is to learn
}
