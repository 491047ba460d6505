package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// maxFile is the largest configuration file, in octets: room for about two
// million zones.
const maxFile = 256 << 20

// pleaseReport is the remedy for a contradiction within this package.
const pleaseReport = "this is a bug: please report it"

// errNotRegular is the error for a path that names a device, pipe or socket.
var errNotRegular = errors.New("not a regular file")

// system is what a configuration needs to know of the machine.
type system struct {
	read       func(path string) ([]byte, error)
	readable   func(path string) error // nil: it is a file that can be read
	glob       func(pattern string) ([]string, error)
	env        func(name string) (string, bool)
	host       func() (string, error)
	user       func(name string) error // nil: it exists
	local      func(netip.Addr) bool   // it is one of this host's
	root       bool                    // started as root
	processors int                     // that this process may use
	dpdk       bool                    // this binary has DPDK
}

// machine is the system that this process runs on.
func machine() *system {
	return &system{
		read:     read,
		readable: readable,
		glob:     glob,
		env:      os.LookupEnv,
		host:     os.Hostname,
		user: func(name string) error {
			_, _, err := LookupUser(name)
			return err
		},
		local: isLocal,
		root:  os.Geteuid() == 0,
		// Fixed for the life of a process, unlike GOMAXPROCS, so that "auto"
		// means the same at every reload.
		processors: runtime.NumCPU(),
		dpdk:       builtWithDPDK,
	}
}

// Load reads the configuration file at path, and those that it includes. Its error is Problems: all that
// is wrong, or why the file cannot be read at all.
func Load(path string) (*Config, error) { return load(path, machine()) }

func load(path string, sys *system) (*Config, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, Problems{{File: path, Msg: err.Error()}}
	}
	c := newChecker(sys, path, filepath.Dir(file))
	c.path = file
	if !utf8.ValidString(file) {
		c.report(place{}, fault{"has a path that is not UTF-8", "rename it, or its folder"})
		return nil, c.problems
	}
	data, err := sys.read(file)
	if err != nil {
		f := fileFault(file, err)
		if errors.Is(err, fs.ErrNotExist) {
			f = fault{"there is no such file", "write one, or name another by -c; configs/reference.yaml has every key"}
		}
		c.report(place{}, f)
		return nil, c.problems
	}
	var values map[string]any
	if top := c.parse(data); top != nil {
		values = c.object(top, root(), "")
		c.include(values)
		c.missing(top, values)
	}
	if values == nil {
		c.problems.sort(c.files)
		return nil, c.problems.first()
	}
	d, err := decode(values)
	if err != nil { // the schema and the types contradict each other
		return nil, append(c.problems, Problem{File: path, Msg: err.Error(), Fix: pleaseReport})
	}
	for i := range d.Listeners {
		if l := &d.Listeners[i]; len(l.Transport) == 0 && !c.wrong[fmt.Sprintf("listeners[%d].transport", i)] {
			l.Transport = l.Service.transports(d.Datapath)
		}
	}
	c.rules(d)
	if d.Name == "" && !c.wrong["name"] {
		if d.Name, err = sys.host(); err != nil || d.Name == "" || len(d.Name) > maxName || checkText(d.Name) != nil {
			c.reportKey("name", fault{fmt.Sprintf("the host name %q does not serve", d.Name), "write a name"})
		}
	}
	if len(c.problems) > 0 {
		c.problems.sort(c.files)
		return nil, c.problems.first()
	}
	return d.config(file, sys.processors), nil
}

// isLocal reports whether a is an address of this host, whichever of its
// interfaces has it.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	all, _ := net.InterfaceAddrs() // none: nothing is known of this host
	return slices.ContainsFunc(all, func(one net.Addr) bool {
		p, err := netip.ParsePrefix(one.String())
		return err == nil && p.Addr() == a.WithZone("")
	})
}

// read is os.ReadFile for regular files of a sane size: a pipe would keep a
// reload waiting.
func read(path string) ([]byte, error) {
	if err := regular(path, maxFile); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func readable(path string) error {
	if err := regular(path, 0); err != nil {
		return err
	}
	// Not os.Open: it makes ready for waiting what is closed at once, and there
	// may be hundreds of thousands of files.
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		switch {
		case err == nil:
			return unix.Close(fd)
		case !errors.Is(err, unix.EINTR):
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// regular checks that path is a regular file, of at most limit octets unless
// limit is 0.
func regular(path string, limit int64) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	case limit > 0 && info.Size() > limit:
		return fmt.Errorf("reading %s: %d octets are more than %d", path, info.Size(), limit)
	}
	return nil
}
