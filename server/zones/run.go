package zones

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/dns/zone"
	"github.com/dnsapp/dnsapp/server/dns/zone/catalog"
	"github.com/dnsapp/dnsapp/server/shm"
	"github.com/dnsapp/dnsapp/server/spawn"
)

// jobBytes is how much there must be to read, in octets of zone files, for one
// more compiler to pay.
const jobBytes = 256 << 10

// maxCompilers bounds the compilers that run at the same time.
const maxCompilers = 16

// host is what compilers run with.
type host struct {
	env      []string
	identity spawn.Identity
	nice     int
}

// done takes what came of jobs: their results, by their numbers in the list that
// was given, and the region that the images are in, if there are any. It is
// never called twice at the same time.
type done func(jobs []int, results []result, mem *shm.Region)

// compile does all jobs in compilers of its own. It returns when every one has
// its result, or ctx ends, with an error for those that have none then.
func compile(ctx context.Context, jobs []job, h host, f done) error {
	parts := deal(jobs)
	errs := make([]error, len(parts))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, part := range parts {
		wg.Go(func() {
			errs[n] = compilePart(ctx, jobs, part, h, func(numbers []int, results []result, mem *shm.Region) {
				mu.Lock()
				defer mu.Unlock()
				f(numbers, results, mem)
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// deal divides jobs among compilers, so that they end at about the same time:
// the largest first, each to the compiler that has least to do. Within a part
// the order is that of the list.
func deal(jobs []job) [][]int {
	sizes, total := make([]int64, len(jobs)), int64(0)
	for i := range jobs {
		if st, err := os.Stat(jobs[i].Zone.File); err == nil { // else the compiler will say so
			sizes[i] = st.Size()
		}
		total += sizes[i]
	}
	n := min(runtime.NumCPU(), len(jobs), maxCompilers, 1+int(total/jobBytes))
	if n < 2 {
		return [][]int{numbers(len(jobs))}[:n]
	}
	order := numbers(len(jobs))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	parts, loads := make([][]int, n), make([]int64, n)
	const each = 2000 // octets that a file costs beside its content
	for _, i := range order {
		least := 0
		for p := range loads {
			if loads[p] < loads[least] {
				least = p
			}
		}
		parts[least] = append(parts[least], i)
		loads[least] += sizes[i] + each
	}
	for _, p := range parts {
		slices.Sort(p)
	}
	return parts
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// errStart is matched by the errors of run when there was no compiler at all.
var errStart = errors.New("no compiler")

// compilePart does the jobs of part. A compiler that dies has one of its jobs to
// blame: the rest is tried again one result at a time, so that it shows which.
func compilePart(ctx context.Context, jobs []job, part []int, h host, f done) error {
	alone := false
	for len(part) > 0 {
		list := make([]job, len(part))
		for i, n := range part {
			list[i] = jobs[n]
			list[i].Alone = alone
		}
		answered := make([]bool, len(part))
		err := run(ctx, list, h, func(results []result, mem *shm.Region) error {
			of := make([]int, len(results))
			for i := range results {
				n := results[i].Job
				if n < 0 || n >= len(part) || answered[n] {
					return fmt.Errorf("a compiler answers job %d of %d", n, len(part))
				}
				answered[n] = true
				of[i] = part[n]
			}
			f(of, results, mem)
			return nil
		})
		var rest []int
		for i, n := range part {
			if !answered[i] {
				rest = append(rest, n)
			}
		}
		part = rest
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case len(part) == 0:
			return nil
		case errors.Is(err, errStart):
			return err
		case err == nil:
			err = errors.New("the compiler gave no answer")
		}
		if alone {
			z := jobs[part[0]].Zone
			f(part[:1], []result{{Errors: []zone.Error{{File: z.File, Reason: err.Error()}}}}, nil)
			part = part[1:]
		}
		alone = !alone
	}
	return nil
}

// run runs one compiler over jobs and gives take each message as it comes, with
// the region that it keeps unless it fails. run returns when the compiler has
// answered every job, or ended.
func run(ctx context.Context, jobs []job, h host, take func([]result, *shm.Region) error) error {
	p, fd, err := start(jobs, h)
	if err != nil {
		return fmt.Errorf("%w: %w", errStart, err)
	}
	defer unix.Close(fd)
	// A kill ends the receive below, since nobody else has the other end.
	kill := func() { _ = p.Signal(unix.SIGKILL) }
	stop := context.AfterFunc(ctx, kill)
	defer stop()

	files := lender{jobs: jobs}
	for answered := 0; answered < len(jobs); {
		results, mem, asked, err := receive(fd)
		if err == nil && asked != "" {
			err = files.answer(fd, asked)
		} else if err == nil {
			answered += len(results)
			if err = take(results, mem); err != nil && mem != nil {
				err = errors.Join(err, mem.Close())
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				kill() // it is not to be trusted any more
			}
			status, waitErr := p.Wait()
			return errors.Join(fmt.Errorf("the compiler ended early (%s): %w", spawn.Describe(status), err), waitErr)
		}
	}
	_, err = p.Wait()
	return err
}

// start starts a compiler, and returns the end of its socket.
func start(jobs []job, h host) (p *spawn.Process, fd int, err error) {
	list, err := json.Marshal(jobs)
	if err != nil {
		return nil, -1, fmt.Errorf("listing zones: %w", err)
	}
	in, err := memfile("dnsapp:jobs", list)
	if err != nil {
		return nil, -1, err
	}
	defer in.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("compiler socket: %w", err)
	}
	defer unix.Close(pair[1])
	p, err = spawn.Start(spawn.Command{
		Args: []string{"compile"}, Files: []int{int(in.Fd()), 1, 2, pair[1]}, Env: h.env, Identity: h.identity, Nice: h.nice,
	})
	if err != nil {
		unix.Close(pair[0])
	}
	return p, pair[0], err
}

// receive reads one message of a compiler: results and their region, or the path
// of a file that it asks for; io.EOF says that it has ended.
func receive(fd int) (results []result, mem *shm.Region, asked string, err error) {
	data, oob := make([]byte, 1+maxPath), make([]byte, unix.CmsgSpace(2*4))
	n, oobn, err := receiveMessage(fd, data, oob)
	switch {
	case err != nil:
		return nil, nil, "", fmt.Errorf("receiving zones: %w", err)
	case n == 0:
		return nil, nil, "", io.EOF
	case data[0] == asksFor && n > 1:
		return nil, nil, string(data[1:n]), nil
	}
	results, mem, err = receiveResults(oob[:oobn])
	return results, mem, "", err
}

// receiveResults takes results and their region from the descriptors that came.
func receiveResults(oob []byte) (results []result, mem *shm.Region, err error) {
	fds, err := rights(oob)
	if err != nil {
		return nil, nil, fmt.Errorf("receiving zones: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "results")
	defer f.Close()
	if len(fds) == 2 {
		if mem, err = shm.MapReadOnly(fds[1]); err != nil {
			unix.Close(fds[1])
			return nil, nil, fmt.Errorf("receiving zones: %w", err)
		}
	}
	if err = json.NewDecoder(io.NewSectionReader(f, 0, 1<<62)).Decode(&results); err != nil {
		err = fmt.Errorf("receiving zones: results: %w", err)
	} else {
		err = checkImages(results, mem)
	}
	if err != nil && mem != nil {
		err = errors.Join(err, mem.Close())
	}
	return results, mem, err
}

// rights returns the one or two descriptors of a message.
func rights(oob []byte) ([]int, error) {
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	if len(cmsgs) != 1 {
		return nil, errors.New("a message without descriptors")
	}
	return unix.ParseUnixRights(&cmsgs[0])
}

// checkImages makes sure that the images of results lie in mem, so that no worker
// will meet anything else there.
func checkImages(results []result, mem *shm.Region) error {
	if mem != nil {
		if err := mem.Check(shm.KindZones, zone.Layout); err != nil {
			return fmt.Errorf("receiving zones: %w", err)
		}
	}
	images := 0
	for i := range results {
		r := &results[i]
		if r.Same || r.Errors != nil {
			continue
		}
		images++
		if mem == nil {
			return fmt.Errorf("receiving zone %s: no region came with it", r.Report.Name)
		}
		z, err := catalog.Open(mem, r.Offset)
		if err != nil {
			return fmt.Errorf("receiving zone %s: %w", r.Report.Name, err)
		}
		if z.Name() != r.Report.Name || z.Size() != r.Report.Size {
			return fmt.Errorf("receiving zone %s: the image is that of %s, %d octets: %w", r.Report.Name, z.Name(), z.Size(), zone.ErrImage)
		}
	}
	if images == 0 && mem != nil {
		return errors.New("receiving zones: a region without images came")
	}
	return nil
}
