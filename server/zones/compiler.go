package zones

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// The descriptors of a compiler process, beside standard input (the list of
// zones), output and error.
const resultsFD = 3

// niceness of a compiler: it takes what the workers leave.
const niceness = 10

// result is what a compiler says about one zone; on its socket it is followed
// by the descriptor of its report and, if it went well, that of its region.
type result struct {
	Report zone.Report `json:"report"`
	Error  string      `json:"error"`

	region *shm.Region
	err    error
}

// compileAll runs a compiler over zones and returns the results as far as it
// came; fewer than len(zones) come with an error.
func compileAll(ctx context.Context, zones []config.Zone, env []string) ([]result, error) {
	list, err := json.Marshal(zones)
	if err != nil {
		return nil, fmt.Errorf("listing zones: %w", err)
	}
	in, err := memfile("dnsapp:zones", list)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("compiler socket: %w", err)
	}
	defer unix.Close(pair[0])
	p, err := spawn.Start(spawn.Command{Args: []string{"compile"}, Files: []int{int(in.Fd()), 1, 2, pair[1]}, Env: env, Nice: niceness})
	unix.Close(pair[1])
	if err != nil {
		return nil, err
	}
	// A kill ends the receive below, since nobody else has the other end.
	stop := context.AfterFunc(ctx, func() { _ = p.Signal(unix.SIGKILL) })
	defer stop()

	var results []result
	for range zones {
		r, err := receive(pair[0])
		if err != nil {
			status, waitErr := p.Wait()
			if ctx.Err() != nil {
				return results, context.Cause(ctx)
			}
			return results, errors.Join(fmt.Errorf("the compiler ended early (%s): %w", spawn.Describe(status), err), waitErr)
		}
		results = append(results, r)
	}
	if _, err := p.Wait(); err != nil {
		return results, err
	}
	return results, nil
}

// receive reads the result of one zone.
func receive(fd int) (result, error) {
	oob := make([]byte, unix.CmsgSpace(2*4))
	var n, oobn int
	var err error
	for {
		n, oobn, _, _, err = unix.Recvmsg(fd, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return result{}, fmt.Errorf("receiving a zone: %w", err)
	}
	if n == 0 {
		return result{}, io.ErrUnexpectedEOF
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(cmsgs) != 1 {
		return result{}, fmt.Errorf("receiving a zone: %d control messages: %w", len(cmsgs), err)
	}
	fds, err := unix.ParseUnixRights(&cmsgs[0])
	if err != nil {
		return result{}, fmt.Errorf("receiving a zone: %w", err)
	}
	report := os.NewFile(uintptr(fds[0]), "report")
	defer report.Close()
	var r result
	if err := json.NewDecoder(report).Decode(&r); err != nil {
		for _, fd := range fds[1:] {
			unix.Close(fd)
		}
		return result{}, fmt.Errorf("receiving a zone: report: %w", err)
	}
	if len(fds) == 2 {
		if r.region, err = shm.MapReadOnly(fds[1]); err != nil {
			unix.Close(fds[1])
			return result{}, fmt.Errorf("receiving a zone: %w", err)
		}
	} else {
		r.err = errors.New(r.Error)
	}
	return r, nil
}

// Compile is the life of a compiler process.
func Compile() error {
	var zones []config.Zone
	if err := json.NewDecoder(os.Stdin).Decode(&zones); err != nil {
		return fmt.Errorf("reading the list of zones (this command is started by dnsapp serve only): %w", err)
	}
	for _, z := range zones {
		if err := compileOne(z); err != nil {
			return fmt.Errorf("zone %s: %w", z.Name, err)
		}
	}
	return nil
}

func compileOne(z config.Zone) error {
	c, report, err := zone.Compile(z.Name, z.File)
	r := result{Report: report}
	var region *shm.Region
	if err == nil {
		region, err = c.Region("zone:" + shorten(z.Name))
	}
	if err != nil {
		// The sentinel is for errors.Is, and says nothing to a reader.
		r.Error = strings.TrimSuffix(err.Error(), "\n"+zone.ErrZone.Error())
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	f, err := memfile("dnsapp:report", b)
	if err != nil {
		return err
	}
	defer f.Close()
	fds := []int{int(f.Fd())}
	if region != nil {
		fds = append(fds, region.Fd())
		defer region.Close()
	}
	if err := unix.Sendmsg(resultsFD, []byte{1}, unix.UnixRights(fds...), nil, 0); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	return nil
}

// shorten keeps the name of a memfd within its 249 octets.
func shorten(name string) string {
	if len(name) > 200 {
		return name[:200]
	}
	return name
}

// memfile returns a file in memory that holds b, at its start.
func memfile(name string, b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing %s: %w", name, err)
	}
	return f, nil
}
