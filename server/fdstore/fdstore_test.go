package fdstore

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Descriptors are named as the manager says, and are close-on-exec.
func TestFiles(t *testing.T) {
	for _, c := range []struct {
		count, names string
		want         []string
		fails        bool
	}{
		{count: "0"},
		{count: "2", names: "directory:udp/0/[//1]/53", want: []string{"directory", "udp/0/[//1]/53"}},
		{count: "2", want: []string{"unknown", "unknown"}},
		{count: "2", names: ":b", want: []string{"unknown", "b"}},
		{count: "1", names: "a:b", want: []string{"a"}},
		{count: "", fails: true},
		{count: "-1", fails: true},
		{count: "70000", fails: true},
	} {
		var first int
		for i := range c.want { // in a row, or the numbers would not be theirs
			fd, err := unix.FcntlInt(0, unix.F_DUPFD, 700)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if i == 0 {
				first = fd
			}
		}
		got, err := files(c.count, c.names, first)
		if (err != nil) != c.fails {
			t.Errorf("%q: %v", c.count, err)
		}
		var names []string
		for i, f := range got {
			names = append(names, f.Name)
			if f.FD != first+i {
				t.Errorf("%q: descriptor %d is number %d", c.count, f.FD, i)
			}
			if flags, err := unix.FcntlInt(uintptr(f.FD), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%q: descriptor %d has flags %x (%v)", c.count, f.FD, flags, err)
			}
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%q, %q: %q", c.count, c.names, names)
		}
	}
}

// What was kept for another process is not touched, and nobody is told of it.
func TestTakeOfAnother(t *testing.T) {
	t.Setenv(variablePID, strconv.Itoa(os.Getpid()+1))
	t.Setenv(variableCount, "1000")
	t.Setenv(variableNames, "a")
	if got, err := Take(); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	t.Setenv(variablePID, strconv.Itoa(os.Getpid()))
	t.Setenv(variableCount, "0")
	if got, err := Take(); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	for _, v := range []string{variablePID, variableCount, variableNames} {
		if _, ok := os.LookupEnv(v); ok {
			t.Errorf("%s is left", v)
		}
	}
}
