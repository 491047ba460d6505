package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/exit"
)

// dialTimeout is how long a supervisor may take to accept a connection. The
// kernel accepts for it: more means a full backlog.
const dialTimeout = 5 * time.Second

// exitTimeout is how long a supervisor may live on after it has stopped
// everything, or after its connection broke.
const exitTimeout = 10 * time.Second

// UnreachableError says that no supervisor answers, or none any longer.
type UnreachableError struct {
	Path string // the control socket
	Err  error
}

// Error names the socket, the cause and a remedy.
func (e *UnreachableError) Error() string {
	remedy := "is dnsapp running? try dnsapp serve -c FILE, or name its socket with --control"
	if errors.Is(e.Err, fs.ErrPermission) {
		remedy = "run this as root or as the user that runs dnsapp"
	}
	return fmt.Sprintf("no answer on %s: %v; %s", e.Path, e.Err, remedy)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// ExitCode returns exit.Unreachable.
func (e *UnreachableError) ExitCode() int { return exit.Unreachable }

// Client talks to a supervisor. Its errors are *Error, as the supervisor gave
// them, *UnreachableError, *SilentError, or, of a request that was taken up, the
// error of a context.
type Client struct {
	// OnSilence is called once for each request while the supervisor with this pid
	// (0: not known) says nothing for a while, from another goroutine; may be nil.
	OnSilence func(pid int)

	path  string
	http  *http.Client
	first chan net.Conn // the connection of Dial, until a request takes it
	pid   int           // of the supervisor, 0 if it cannot be known
	peer  int           // pidfd of the supervisor, -1 if there is none
}

// Dial connects to the supervisor whose control socket is at path.
func Dial(path string) (*Client, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return nil, &UnreachableError{Path: path, Err: cause(err)}
	}
	c := &Client{path: path, first: make(chan net.Conn, 1), peer: -1}
	if cred, err := peerOf(conn); err == nil && cred.Pid > 0 {
		c.pid, c.peer = int(cred.Pid), pidfdOf(int(cred.Pid))
	}
	c.first <- conn
	c.http = c.newHTTP()
	return c, nil
}

func (c *Client) newHTTP() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: c.dial, DisableCompression: true}}
}

// pidfdOf returns a pidfd of the process that listens, -1 if it cannot be had or
// is of no use (our own process).
func pidfdOf(pid int) int {
	if pid == os.Getpid() {
		return -1
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	return fd
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case conn := <-c.first:
		return conn, nil
	default:
	}
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(ctx, "unix", c.path)
}

// Close closes the connections.
func (c *Client) Close() {
	select {
	case conn := <-c.first:
		conn.Close()
	default:
	}
	c.http.CloseIdleConnections()
	if c.peer >= 0 {
		unix.Close(c.peer)
		c.peer = -1
	}
}

// Version asks for the version of the supervisor.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return get[Version](ctx, c, "/v1/version")
}

// Status asks what the supervisor runs.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return get[*Status](ctx, c, "/v1/status")
}

// Zones asks for the served zones.
func (c *Client) Zones(ctx context.Context) ([]ZoneStatus, error) {
	return get[[]ZoneStatus](ctx, c, "/v1/zones")
}

// Traffic asks what has been served so far.
func (c *Client) Traffic(ctx context.Context) (*Traffic, error) {
	return get[*Traffic](ctx, c, "/v1/traffic")
}

// Plan asks what a reload would do now. That takes as long as zones have to be
// compiled.
func (c *Client) Plan(ctx context.Context) (*Plan, error) {
	return get[*Plan](ctx, c, "/v1/plan")
}

// ExplainFlow asks who serves the flow of a client.
func (c *Client) ExplainFlow(ctx context.Context, q FlowQuery) (*FlowAnswer, error) {
	v := url.Values{"transport": {q.Transport}, "remote": {q.Remote.String()}}
	if q.Local.IsValid() {
		v.Set("local", q.Local.String())
	}
	return get[*FlowAnswer](ctx, c, "/v1/flow?"+v.Encode())
}

// Reload asks for a reload, calls on for each of its events and returns its
// report. An error may come with a report, which then says how far it came.
// When ctx ends the reload goes on.
func (c *Client) Reload(ctx context.Context, req ReloadRequest, on func(Event)) (*ReloadReport, error) {
	l, err := c.post(ctx, "/v1/reload", req, on)
	return l.Report, err
}

// Abort asks to give up the reload in progress.
func (c *Client) Abort(ctx context.Context) (*Aborted, error) {
	return ask[*Aborted](ctx, c, http.MethodPost, "/v1/abort")
}

// Drain follows the drain of a generation, or ends it, calls on for each event
// and returns once the generation is gone. When ctx ends the drain goes on.
func (c *Client) Drain(ctx context.Context, req DrainRequest, on func(Event)) error {
	_, err := c.post(ctx, "/v1/drain", req, on)
	return err
}

// Watch calls on for everything that happens in the supervisor, beginning with
// the last events of the past. It returns nil when the supervisor stops.
func (c *Client) Watch(ctx context.Context, last int, on func(Event)) error {
	_, err := c.stream(ctx, http.MethodGet, "/v1/events?last="+strconv.Itoa(last), nil, on)
	return err
}

// Stop asks the supervisor to stop, calls on for each event, and returns once
// everything is stopped and the supervisor has gone. When ctx ends the stop
// goes on.
func (c *Client) Stop(ctx context.Context, req StopRequest, on func(Event)) error {
	_, err := c.post(ctx, "/v1/stop", req, on)
	var un *UnreachableError
	if err != nil && !errors.As(err, &un) {
		return err
	}
	// Stopped, or cut off because it went before it could say so.
	if c.peer < 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, exitTimeout)
	defer cancel()
	switch werr := c.waitGone(ctx); {
	case werr == nil:
		return nil
	case err == nil:
		return fmt.Errorf("dnsapp has stopped serving, and its process is still there: %w", werr)
	}
	return err
}

// waitGone waits until the supervisor's process has ended. There must be a
// pidfd.
func (c *Client) waitGone(ctx context.Context) error {
	const tick = 50 // ms between looks at ctx, which poll cannot watch
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.peer), Events: unix.POLLIN}}, tick)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("waiting for a process: %w", err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	return ask[T](ctx, c, http.MethodGet, path)
}

// ask sends a request without a body and returns its answer.
func ask[T any](ctx context.Context, c *Client, method, path string) (T, error) {
	return asking[T](ctx, c, method, path, nil)
}

// asking sends a request and returns its answer.
func asking[T any](ctx context.Context, c *Client, method, path string, body []byte) (T, error) {
	var v T
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, c.broken(ctx, err)
	}
	return v, nil
}

// post sends a long request.
func (c *Client) post(ctx context.Context, path string, req any, on func(Event)) (Line, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return Line{}, fmt.Errorf("encoding a request: %w", err)
	}
	return c.stream(ctx, http.MethodPost, path, body, on)
}

// stream sends a request, reads its lines to the last, and returns that. The
// supervisor must take the request up within AckTimeout.
func (c *Client) stream(ctx context.Context, method, path string, body []byte, on func(Event)) (Line, error) {
	asking, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	late := time.AfterFunc(AckTimeout, func() { cancel(cmp.Or(ctx.Err(), context.DeadlineExceeded)) })
	defer context.AfterFunc(ctx, func() { late.Reset(lastMoment) })()
	resp, err := c.do(asking, method, path, body)
	late.Stop()
	if err != nil {
		return Line{}, err
	}
	defer resp.Body.Close()
	if ctx.Err() != nil {
		return Line{}, c.broken(ctx, nil)
	}
	quiet := c.listen(true)
	defer quiet.end()
	for dec := json.NewDecoder(resp.Body); ; quiet.news() {
		var l Line
		if err := dec.Decode(&l); err != nil {
			return Line{}, c.broken(ctx, err)
		}
		if l.Event != nil {
			on(*l.Event)
		}
		if l.Done {
			if l.Error != nil {
				return l, l.Error
			}
			return l, nil
		}
	}
}

// do sends a request and returns its answer if that is 200.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://dnsapp"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	quiet, began := c.listen(false), time.Now()
	resp, err := c.http.Do(req)
	quiet.end()
	if err != nil {
		if ctx.Err() != nil {
			return nil, &SilentError{Path: c.path, PID: c.pid, After: time.Since(began), Err: context.Cause(ctx)}
		}
		return nil, c.broken(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e); err != nil || e.Message == "" {
		return nil, &Error{Code: CodeFailed, Message: "dnsapp answered " + resp.Status}
	}
	return nil, &e
}

// broken returns the error of a request whose connection failed once it was
// taken up.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for dnsapp on %s: %w", c.path, ctx.Err())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("dnsapp closed the connection")
	}
	return &UnreachableError{Path: c.path, Err: cause(err)}
}

// cause returns the error number in err, which says all that the texts around
// it say, or err.
func cause(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}
