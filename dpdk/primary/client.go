package primary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNone is what a Client returns where no primary answers.
var ErrNone = errors.New("no dnsapp primary answers")

// RefusedError is a refusal of the primary, in its words.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return "the primary refuses: " + e.Reason }

// maxAnswer is the longest answer, in octets, that a Client reads.
const maxAnswer = 1 << 20

// Client asks one primary.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a Client for the primary whose control folder is dir. It connects
// when it asks.
func NewClient(dir string) *Client {
	c := &Client{path: filepath.Join(dir, socketName)}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.path)
		},
		DisableKeepAlives: true,
	}
	return c
}

// Status asks for the status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	var s Status
	return &s, c.ask(ctx, http.MethodGet, "/status", nil, &s)
}

// Lease asks for an lcore id.
func (c *Client) Lease(ctx context.Context, r LeaseRequest) (*Lease, error) {
	var l Lease
	return &l, c.ask(ctx, http.MethodPost, "/lease", r, &l)
}

// Stop asks the primary to end.
func (c *Client) Stop(ctx context.Context, r StopRequest) error {
	return c.ask(ctx, http.MethodPost, "/stop", r, &struct{}{})
}

func (c *Client) ask(ctx context.Context, method, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("asking the primary: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://primary"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking the primary: %w", err)
	}
	res, err := c.http.Do(req)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w on %s", ErrNone, c.path)
	case err != nil:
		return fmt.Errorf("asking the primary on %s: %w", c.path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("asking the primary on %s: %w", c.path, err)
	}
	if res.StatusCode != http.StatusOK {
		var e struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(b, &e) != nil || e.Error == "" {
			e.Error = res.Status
		}
		return &RefusedError{e.Error}
	}
	if err := json.Unmarshal(b, answer); err != nil {
		return fmt.Errorf("the answer of the primary on %s: %w", c.path, err)
	}
	return nil
}

// endPoll is how often End looks whether the process has gone.
const endPoll = 10 * time.Millisecond

// End asks the primary to end, and waits until its process has gone.
func (c *Client) End(ctx context.Context, r StopRequest) (pid int, err error) {
	s, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	if err := c.Stop(ctx, r); err != nil {
		return 0, err
	}
	tick := time.NewTicker(endPoll)
	defer tick.Stop()
	for s.Alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("the primary, pid %d, was told to end and has not: %w", s.PID, ctx.Err())
		}
	}
	return s.PID, nil
}
