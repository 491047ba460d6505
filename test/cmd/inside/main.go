// Command inside runs a command in a network namespace of its own, with loopback
// up: any port is free there, and nothing can leave.
//
//	inside COMMAND [ARGUMENT ...]
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/dnsapp/dnsapp/test/netns"
)

func main() {
	code, inside, err := netns.Enter()
	if err == nil && inside {
		err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		code = 1
	}
	os.Exit(code)
}

// run replaces this process; it returns where it cannot.
func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: inside COMMAND [ARGUMENT ...]")
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("running %s: %w", program, syscall.Exec(program, args, os.Environ()))
}
