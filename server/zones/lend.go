package zones

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/zone"
)

// Compilers run as the user of the workers, who need not be able to read zone
// files. What a compiler cannot open it asks for, and the supervisor opens it
// with its own rights: the file of a zone that the compiler was given, and what
// lies in the folder of such a file or below it. So a zone file that takes a
// compiler over does not read the rest of the machine's files with those rights.

// The kinds of messages from a compiler: their first octet.
const (
	sendsResults = 1 // with their descriptors
	asksFor      = 2 // the path of a file follows
)

// maxPath is the longest path that can be asked for, in octets.
const maxPath = unix.PathMax

// open opens a file for the compiler, by its own rights or those of the
// supervisor.
func (*compiler) open(path string) (fd int, err error) {
	if fd, err = zone.OpenFile(path); !errors.Is(err, unix.EACCES) {
		return fd, err
	}
	if len(path) > maxPath {
		return -1, unix.ENAMETOOLONG
	}
	if err := unix.Sendmsg(resultsFD, append([]byte{asksFor}, path...), nil, nil, 0); err != nil {
		return -1, fmt.Errorf("asking the supervisor: %w", err)
	}
	answer := make([]byte, 1)
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, err := receiveMessage(resultsFD, answer, oob)
	switch {
	case err != nil:
		return -1, fmt.Errorf("asking the supervisor: %w", err)
	case n == 0:
		return -1, errors.New("asking the supervisor: it is gone")
	case answer[0] != 0:
		return -1, unix.Errno(answer[0])
	}
	fds, err := rights(oob[:oobn])
	if err != nil {
		return -1, fmt.Errorf("asking the supervisor: %w", err)
	}
	return fds[0], nil
}

// lender opens files for one compiler.
type lender struct {
	jobs    []job
	files   map[string]bool // of the jobs; nil until one is asked for
	folders map[string]bool // that they lie in
}

// answer opens path for the compiler at the other end of fd, if its jobs may need
// it, and says otherwise why not.
func (l *lender) answer(fd int, path string) error {
	file, err := l.open(filepath.Clean(path))
	var reason unix.Errno
	switch {
	case errors.As(err, &reason):
		err = unix.Sendmsg(fd, []byte{byte(reason)}, nil, nil, unix.MSG_NOSIGNAL)
	case err == nil:
		err = unix.Sendmsg(fd, []byte{0}, unix.UnixRights(file), nil, unix.MSG_NOSIGNAL)
		unix.Close(file)
	}
	if err != nil {
		return fmt.Errorf("answering a compiler: %w", err)
	}
	return nil
}

// open opens a regular file that the jobs may need. Its errors are unix.Errno.
func (l *lender) open(path string) (fd int, err error) {
	if !l.needs(path) {
		return -1, unix.EACCES
	}
	if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EACCES
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// needs reports whether path is the file of a job or lies below its folder.
func (l *lender) needs(path string) bool {
	if l.files == nil {
		l.files, l.folders = make(map[string]bool), make(map[string]bool)
		for i := range l.jobs {
			file := filepath.Clean(l.jobs[i].Zone.File)
			l.files[file], l.folders[filepath.Dir(file)] = true, true
		}
	}
	if l.files[path] {
		return true
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if l.folders[dir] {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// receiveMessage is recvmsg that signals do not interrupt. Descriptors that come
// are closed on exec.
func receiveMessage(fd int, data, oob []byte) (n, oobn int, err error) {
	for {
		n, oobn, _, _, err = unix.Recvmsg(fd, data, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			return n, oobn, err
		}
	}
}
