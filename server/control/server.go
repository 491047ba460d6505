package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxBody     = 64 << 10        // bytes of a request body
	bodyTimeout = 5 * time.Second // for a client to send its request

	// reasonTimeout is how long a client that is late already waits for the reason.
	reasonTimeout = time.Second
)

// Server answers the control API. It is made by NewServer, bound by Listen, run
// by Serve and ended by Shutdown.
type Server struct {
	backend  Backend
	log      *slog.Logger
	http     *http.Server
	uid      uint32 // who may use it, beside root
	listener atomic.Pointer[listener]
	cancel   context.CancelFunc // ends every request's context
	unkeep   context.CancelFunc // ends keep; nil before Listen
	keeping  sync.WaitGroup
}

// NewServer returns a server in front of b.
func NewServer(b Backend, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{backend: b, log: log, uid: uint32(os.Geteuid()), cancel: cancel}
	s.http = &http.Server{
		Handler:           s.checkPeer(s.routes()),
		ReadHeaderTimeout: bodyTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
	}
	return s
}

// Listen takes the control directory of the socket at path and binds the socket
// with mode 0600. It creates the directory if only that is missing and removes
// a stale socket. While another supervisor has the directory the error is an
// *InUseError. Connections wait until Serve. From then on until Shutdown the socket
// is put back if it is removed.
func (s *Server) Listen(path string) error {
	l, err := listen(path)
	if err != nil {
		return err
	}
	s.hold(l)
	return nil
}

// hold has the server answer at l.
func (s *Server) hold(l *listener) {
	s.listener.Store(l)
	ctx, cancel := context.WithCancel(context.Background())
	s.unkeep = cancel
	s.keeping.Go(func() { s.keep(ctx) })
}

// Serve answers requests until Shutdown, and then returns nil. Listen must have
// succeeded.
func (s *Server) Serve() error {
	for {
		l := s.listener.Load()
		err := s.http.Serve(l)
		switch {
		case errors.Is(err, http.ErrServerClosed):
			return nil
		case s.listener.Load() == l: // else it was put back
			return fmt.Errorf("serving the control socket: %w", err)
		}
	}
}

// Shutdown stops taking requests and waits for those in progress; when ctx ends
// it cuts them off. Then the socket is removed and the directory free for
// another supervisor.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endKeep()
	err := s.http.Shutdown(ctx)
	s.cancel()
	if err != nil {
		err = errors.Join(fmt.Errorf("ending control requests: %w", err), s.http.Close())
	}
	if l := s.listener.Load(); l != nil {
		err = errors.Join(err, l.release())
	}
	return err
}

// routes returns the handlers behind the peer check.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(method, path string, h http.HandlerFunc) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != method {
				w.Header().Set("Allow", method)
				s.fail(w, http.StatusMethodNotAllowed, &Error{Code: CodeUsage, Message: fmt.Sprintf("%s takes %s, not %s", path, method, r.Method)})
				return
			}
			h(w, r)
		})
	}
	route(http.MethodGet, "/v1/version", s.version)
	route(http.MethodGet, "/v1/status", s.status)
	route(http.MethodGet, "/v1/zones", s.zones)
	route(http.MethodGet, "/v1/zone", s.zone)
	route(http.MethodPost, "/v1/zones/reload", s.reloadZones)
	route(http.MethodGet, "/v1/backends", s.backends)
	route(http.MethodPost, "/v1/server", s.orderServer)
	route(http.MethodGet, "/v1/diff", s.diff)
	route(http.MethodGet, "/v1/traffic", s.traffic)
	route(http.MethodGet, "/v1/flow", s.flow)
	route(http.MethodGet, "/v1/plan", s.plan)
	route(http.MethodPost, "/v1/reload", s.reload)
	route(http.MethodPost, "/v1/upgrade", s.upgrade)
	route(http.MethodPost, "/v1/stop", s.stop)
	route(http.MethodPost, "/v1/abort", s.abort)
	route(http.MethodPost, "/v1/drain", s.drain)
	route(http.MethodGet, "/v1/events", s.events)
	route(http.MethodPost, "/v1/trace", s.trace)
	route(http.MethodPost, "/v1/trace/end", s.endTrace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, http.StatusNotFound, &Error{Code: CodeUsage, Message: "there is no " + r.URL.Path + "; is dnsappctl newer than dnsapp?"})
	})
	return mux
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.backend.Version()) }

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	st, err := s.backend.Status(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, st.filled())
}

func (s *Server) zones(w http.ResponseWriter, r *http.Request) {
	zones, err := s.backend.Zones(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, orEmpty(zones))
}

func (s *Server) traffic(w http.ResponseWriter, r *http.Request) {
	t, err := s.backend.Traffic(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, t.filled())
}

func (s *Server) flow(w http.ResponseWriter, r *http.Request) {
	q, err := flowQuery(r.URL.Query())
	if err != nil {
		s.failWith(w, err)
		return
	}
	a, err := s.backend.ExplainFlow(r.Context(), q)
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, a.filled())
}

// flowQuery reads a FlowQuery. Its errors are *Error with CodeUsage.
func flowQuery(v url.Values) (FlowQuery, error) {
	q := FlowQuery{Transport: v.Get("transport")}
	for name, dst := range map[string]*netip.AddrPort{"remote": &q.Remote, "local": &q.Local} {
		if text := v.Get(name); text != "" {
			ap, err := netip.ParseAddrPort(text)
			if err != nil {
				return q, &Error{Code: CodeUsage, Message: fmt.Sprintf("%s %q is no address with a port", name, text)}
			}
			*dst = ap
		}
	}
	return q, q.check()
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request) {
	s.note(r, "plan") // it may compile zones
	p, err := s.backend.Plan(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, p.filled())
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	var req ReloadRequest
	if err := s.decode(w, r, &req); err != nil {
		s.failWith(w, err)
		return
	}
	if req.Wait == "" {
		req.Wait = WaitDone
	}
	if req.Wait != WaitDone && req.Wait != WaitCommit {
		s.failWith(w, &Error{Code: CodeUsage, Message: fmt.Sprintf("wait is %q, and must be %q or %q", req.Wait, WaitDone, WaitCommit)})
		return
	}
	s.run(w, r, "reload", req.Timeout, func(ctx context.Context, emit func(Event)) (Line, error) {
		report, err := s.backend.Reload(ctx, ReloadOptions{Wait: req.Wait}, emit)
		return Line{Report: report.filled()}, err
	})
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	var req StopRequest
	if err := s.decode(w, r, &req); err != nil {
		s.failWith(w, err)
		return
	}
	switch req.Kind {
	case "":
		req.Kind = StopGraceful
	case StopGraceful, StopFast, StopNow:
	default:
		s.failWith(w, &Error{Code: CodeUsage, Message: fmt.Sprintf("kind is %q, and must be %q, %q or %q", req.Kind, StopGraceful, StopFast, StopNow)})
		return
	}
	s.run(w, r, "stop", req.Timeout, func(ctx context.Context, emit func(Event)) (Line, error) {
		return Line{}, s.backend.Stop(ctx, req.Kind, emit)
	})
}

func (s *Server) abort(w http.ResponseWriter, r *http.Request) {
	if err := s.decode(w, r, &struct{}{}); err != nil {
		s.failWith(w, err)
		return
	}
	s.note(r, "abort")
	a, err := s.backend.Abort(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, a)
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	var req DrainRequest
	if err := s.decode(w, r, &req); err != nil {
		s.failWith(w, err)
		return
	}
	if req.Epoch == 0 {
		s.failWith(w, &Error{Code: CodeUsage, Message: "epoch is missing: name the generation whose drain is meant"})
		return
	}
	s.run(w, r, "drain", req.Timeout, func(ctx context.Context, emit func(Event)) (Line, error) {
		return Line{}, s.backend.Drain(ctx, req.Epoch, req.Now, emit)
	})
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	last := 0
	if q := r.URL.Query().Get("last"); q != "" {
		n, err := strconv.Atoi(q)
		if err != nil || n < 0 || n > MaxLast {
			s.failWith(w, &Error{Code: CodeUsage, Message: fmt.Sprintf("last is %q, and must be a whole number from 0 to %d", q, MaxLast)})
			return
		}
		last = n
	}
	s.run(w, r, "watch", 0, func(ctx context.Context, emit func(Event)) (Line, error) {
		return Line{}, s.backend.Watch(ctx, last, emit)
	})
}

// note logs who asked for something that takes effect, or takes long.
func (s *Server) note(r *http.Request, what string) {
	p := peerFrom(r.Context())
	s.log.Info("control request", "request", what, "uid", p.Uid, "pid", p.Pid)
}

// run runs one long request and streams its events. f returns the last line but
// for its error.
func (s *Server) run(w http.ResponseWriter, r *http.Request, what string, timeout Millis, f func(context.Context, func(Event)) (Line, error)) {
	if timeout < 0 {
		s.failWith(w, &Error{Code: CodeUsage, Message: "timeout_ms is negative; 0 means no timeout"})
		return
	}
	s.note(r, what)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout.Duration())
		defer cancel()
	}
	st := newStream(w, cancel)
	last := Line{Error: &Error{Code: CodeFailed, Message: "the supervisor met a bug; see its log"}}
	defer func() { st.finish(last) }() // also when the backend panics, which net/http logs

	line, err := f(ctx, st.emit)
	last = line
	switch {
	case err == nil:
	case timeout > 0 && errors.Is(err, context.DeadlineExceeded):
		last.Error = s.stillDraining(r.Context(), what, timeout.Duration(), st.newest())
	default:
		last.Error = asError(err)
	}
}

// stillDraining is the error of a request whose time is over: where it is, and
// what it waits for.
func (s *Server) stillDraining(ctx context.Context, what string, timeout time.Duration, last Event) *Error {
	e := &Error{Code: CodeDraining, Message: fmt.Sprintf("the %s is not finished after %v and goes on", what, timeout)}
	if last.Step != "" {
		e.Message += fmt.Sprintf("; %s (%s): %s", last.Step, last.Step.Word(), last.Text)
	}
	ctx, cancel := context.WithTimeout(ctx, reasonTimeout)
	defer cancel()
	st, err := s.backend.Status(ctx)
	if err != nil {
		return e // it is known without the reasons, too
	}
	for _, g := range st.Generations {
		if g.Drain != nil {
			e.Message += fmt.Sprintf("; epoch %d waits for %s", g.Epoch, g.Drain.Reason)
		}
	}
	return e
}

// decode reads a request body, strictly: a misspelt option must not be ignored.
func (s *Server) decode(w http.ResponseWriter, r *http.Request, dst any) error {
	// The deadline must be gone before the handler waits: without a body net/http
	// reads ahead already, to see a client hang up, and takes a timeout for one.
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTimeout)); err == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	return decode(http.MaxBytesReader(w, r.Body, maxBody), dst)
}

// decode reads one JSON object, or nothing, from r. Its errors are *Error with
// CodeUsage.
func decode(r io.Reader, dst any) error {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	err := dec.Decode(dst)
	if errors.Is(err, io.EOF) {
		return nil // no body: all defaults
	}
	if err == nil {
		if _, err = dec.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("more than one JSON value")
	}
	return &Error{Code: CodeUsage, Message: fmt.Sprintf("reading the request: %v", err)}
}

func (s *Server) answer(w http.ResponseWriter, v any) {
	s.send(w, http.StatusOK, v)
}

func (s *Server) failWith(w http.ResponseWriter, err error) {
	e := asError(err)
	s.fail(w, e.status(), e)
}

func (s *Server) fail(w http.ResponseWriter, status int, e *Error) { s.send(w, status, e) }

func (s *Server) send(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // only a Backend's value can do this
		s.log.Error("encoding a control answer", "error", err)
		http.Error(w, `{"code":"failed","message":"the answer cannot be encoded"}`, http.StatusInternalServerError)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone needs no answer
}

// asError returns err as the API carries it.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeFailed, Message: err.Error()}
}

type peerKey struct{}

// peer is who connected.
type peer struct {
	unix.Ucred
	conn net.Conn
}

// withPeer keeps who connected in the context of a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	cred, err := peerOf(c)
	if err != nil {
		return ctx // checkPeer refuses it
	}
	return context.WithValue(ctx, peerKey{}, peer{*cred, c})
}

// peerFrom returns who connected; valid behind checkPeer.
func peerFrom(ctx context.Context) peer {
	p, _ := ctx.Value(peerKey{}).(peer)
	return p
}

// checkPeer lets root and the supervisor's own user through, unless they have
// gone: what a client has given up before it was taken up must not be done later.
func (s *Server) checkPeer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := r.Context().Value(peerKey{}).(peer)
		if !ok || !mayControl(p.Uid, s.uid) {
			s.log.Warn("control request refused", "path", r.URL.Path, "uid", p.Uid, "pid", p.Pid)
			s.fail(w, http.StatusForbidden, &Error{
				Code:    CodeRefused,
				Message: fmt.Sprintf("only root and uid %d may control this dnsapp, and this is uid %d", s.uid, p.Uid),
			})
			return
		}
		if hungUp(p.conn) {
			s.log.Warn("control request dropped: its sender has gone", "path", r.URL.Path, "uid", p.Uid, "pid", p.Pid)
			return
		}
		next.ServeHTTP(w, r)
	})
}
