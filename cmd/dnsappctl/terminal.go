package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize returns the size of the terminal that w writes to, false if it is
// none.
func terminalSize(w io.Writer) (columns, rows int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
