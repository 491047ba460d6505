package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/dnsapp/dnsapp/server/control"
	"github.com/dnsapp/dnsapp/server/handover"
	"github.com/dnsapp/dnsapp/server/reload"
	"github.com/dnsapp/dnsapp/server/spawn"
	"github.com/dnsapp/dnsapp/server/worker"
)

// upgrade is one hand-over of the whole instance, from its request, or the word of
// a supervisor that wants it, to its end. What belongs to the loop is marked.
type upgrade struct {
	action control.UpgradeAction
	began  time.Time
	taker  *spawn.Process // the other supervisor; nil until it is known. The loop's
	conn   *net.UnixConn  // to it, once it has said hello. The loop's
	reexec []string       // to execute in the place of this process; nil: another process takes over

	ready   chan struct{}    // closed when this supervisor has let go; then the next two are valid
	estates []*worker.Estate // with descriptors of their own
	lock    *os.File         // of the control directory
	gone    bool             // let go. The loop's
	next    handover.Next    // what this process does next. Valid iff report or err is set, and it has let go
	timer   *time.Timer      // until the commit

	news      chan control.Event // for whoever waits; what does not fit is dropped
	committed chan struct{}      // closed at the commit
	done      chan struct{}      // closed at the end; then the next two are valid
	report    *control.ReloadReport
	err       error
}

// Upgrade implements control.Backend.
func (s *Supervisor) Upgrade(ctx context.Context, req control.UpgradeRequest, emit func(control.Event)) (*control.ReloadReport, error) {
	switch req.Action {
	case control.UpgradeDrainOld:
		return nil, s.drainOld(ctx)
	case control.UpgradeStart:
		binary, err := fitBinary(ctx, req.Binary)
		if err != nil {
			return nil, err
		}
		req.Binary = binary
	}
	var u *upgrade
	var refused error
	if err := s.ask(ctx, func() { u, refused = s.beginUpgrade(req) }); err != nil {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	committed := u.committed
	if req.Wait != control.WaitCommit {
		committed = nil
	}
	for {
		select {
		case e := <-u.news:
			emit(e)
		case <-committed:
			drainNews(u.news, emit)
			return u.committedReport(), nil
		case <-u.done:
			drainNews(u.news, emit)
			return u.report, u.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// committedReport is what is known at the commit, or of a process that becomes
// another one.
func (u *upgrade) committedReport() *control.ReloadReport {
	return &control.ReloadReport{StartedAt: u.began, OK: true, Outcome: control.OutcomeCommitted, Elapsed: control.Millis(time.Since(u.began))}
}

// newUpgrade registers an upgrade. Within the loop.
func (s *Supervisor) newUpgrade(action control.UpgradeAction) *upgrade {
	u := &upgrade{
		action: action, began: time.Now(), news: make(chan control.Event, newsSize),
		ready: make(chan struct{}), committed: make(chan struct{}), done: make(chan struct{}),
	}
	limit := s.cfg.Upgrade.Timeout
	u.timer = time.AfterFunc(limit, func() {
		s.post(func() {
			if u.hasCommitted() {
				return // just now
			}
			s.failUpgrade(u, fmt.Errorf("the other supervisor has not committed after %v (upgrade.timeout)", limit))
		})
	})
	s.upgrade = u
	return u
}

// hasCommitted reports whether the other supervisor has.
func (u *upgrade) hasCommitted() bool {
	select {
	case <-u.committed:
		return true
	default:
		return false
	}
}

// say tells news to whoever waits for u.
func (u *upgrade) say(format string, args ...any) {
	u.tell(control.Event{Step: control.StepSteady, Text: fmt.Sprintf(format, args...)})
}

// tell passes news on, with its time.
func (u *upgrade) tell(e control.Event) {
	e.Time, e.Elapsed = time.Now(), control.Millis(time.Since(u.began))
	select {
	case u.news <- e:
	default:
	}
}

// refuseUpgrade says why there can be no hand-over now, nil if there can. Within
// the loop.
func (s *Supervisor) refuseUpgrade(action control.UpgradeAction) error {
	switch {
	case s.upgrade != nil:
		return control.Refuse("another upgrade is under way")
	case s.state.Stop != reload.NotStopping:
		return control.Refuse("the server is stopping")
	case action == control.UpgradeRollback && s.standby == nil:
		return control.Refuse("no supervisor stands by: there is nothing to go back to")
	case action == control.UpgradeRollback && !s.standby.ready():
		return s.standby.refusal("going back")
	case action == control.UpgradeStart && s.standby != nil:
		return s.standby.refusal("another upgrade")
	}
	return nil
}

// beginUpgrade starts the other binary, or wakes the one that stands by. Within the
// loop.
func (s *Supervisor) beginUpgrade(req control.UpgradeRequest) (*upgrade, error) {
	if err := s.refuseUpgrade(req.Action); err != nil {
		return nil, err
	}
	u := s.newUpgrade(req.Action)
	var err error
	switch {
	case req.Action == control.UpgradeRollback:
		u.say("pid %d, %s, takes the instance back", s.standby.PID, s.standby.Version)
		err = s.standby.say(handover.Message{Kind: handover.Return})
	case pid() == 1: // nothing may outlive it: it becomes the other binary, and adopts its workers
		u.reexec = []string{req.Binary, "dnsapp", "serve", "--config", s.path}
		u.say("%s is executed in the place of this one", req.Binary)
	default:
		err = s.startTaker(u, req.Binary)
	}
	if err != nil {
		s.failUpgrade(u, err)
	}
	return u, nil
}

// askTime is how long a binary may take to say what it is.
const askTime = 5 * time.Second

// fitBinary returns the binary to start: the file that this one came from, or the
// one that is named. One that could not share memory with this one is refused
// before it is started as a server.
func fitBinary(ctx context.Context, named string) (string, error) {
	binary := named
	if binary == "" {
		own, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("finding the file of this binary: %w; name it with --binary", err)
		}
		binary = own
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c := exec.CommandContext(ctx, binary, "version", "--handover")
	c.WaitDelay = time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) } // with what a script has started
	out, err := c.Output()
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer in %v", askTime)
	}
	if err != nil {
		err = unfit(binary, err)
		var ended *exec.ExitError
		if errors.As(err, &ended) && len(ended.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(ended.Stderr))
		}
		return "", control.Refuse("upgrade refused; nothing was changed: %s version --handover: %v", binary, err)
	}
	terms, err := handover.ParseTerms(string(out))
	if err == nil {
		err = Terms().Agree(terms)
	}
	if err != nil {
		return "", control.Refuse("upgrade refused; nothing was changed: %s: %v", binary, err)
	}
	return binary, nil
}

// unfit says what is wrong with a file that cannot be executed: what the kernel says of
// it can be read in more than one way.
func unfit(binary string, err error) error {
	_, missing := os.Stat(binary)
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it is no program for this machine (%s)", err, runtime.GOARCH)
	case errors.Is(err, syscall.ENOENT) && missing == nil:
		return fmt.Errorf("%w: the file is there, but not the interpreter that it names", err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%w: it is not executable for this user, nor its interpreter (chmod +x; is the file system mounted noexec?)", err)
	}
	return err
}

// startTaker executes the other binary. It is a child of this process, and of
// nobody when this one has gone.
func (s *Supervisor) startTaker(u *upgrade, binary string) error {
	c := exec.Command(binary)
	c.Args = []string{"dnsapp", "serve", "--config", s.path, "--take-over", s.cfg.Control}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	theirs, why, err := handover.AskWhy(c)
	if err != nil {
		return err
	}
	err = c.Start()
	_ = theirs.Close()
	if err != nil {
		_ = why() // which closes its end
		return fmt.Errorf("starting %s: %w", binary, unfit(binary, err))
	}
	s.log.Info("upgrade", "binary", binary, "pid", c.Process.Pid)
	u.say("%s starts, pid %d", binary, c.Process.Pid)
	// It is not reaped before Wait, so the pid is still its own.
	if p, err := spawn.AdoptNow(c.Process.Pid); err == nil {
		u.taker = p
	}
	go func() {
		err := c.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		if reason := why(); reason != "" {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		s.post(func() { s.failUpgrade(u, fmt.Errorf("%s has ended before it had taken over: %w", binary, err)) })
	}()
	return nil
}

// failUpgrade ends u without success, if it has not ended yet. What this supervisor
// has let go of is taken back. Within the loop.
func (s *Supervisor) failUpgrade(u *upgrade, err error) {
	if s.upgrade != u || u.closing() {
		return
	}
	var told *control.Error
	if !errors.As(err, &told) {
		told = &control.Error{Code: control.CodeFailed, Message: "upgrade failed: " + err.Error()}
	}
	s.log.Error("upgrade failed", "error", err)
	u.err, u.next = told, handover.TakeBack
	s.endUpgrade(u)
}

// closing reports whether the end of u has been decided.
func (u *upgrade) closing() bool { return u.err != nil || u.report != nil }

// endUpgrade ends u, whose report or error is set. Within the loop.
func (s *Supervisor) endUpgrade(u *upgrade) {
	u.timer.Stop()
	if !u.gone {
		s.upgrade = nil
		d := &departure{taker: u.taker}
		conn := u.conn
		if conn == nil && u.action == control.UpgradeRollback { // it is on its way
			conn = s.standby.conn
		}
		if conn != nil { // it ends when it is told
			_ = handover.Tell(conn, handover.Message{Kind: handover.Refused, Reason: u.err.Error()})
			_ = conn.Close()
			d.patience = outlive
		}
		go func() {
			if err := d.fenceTaker(s.log); err != nil {
				s.log.Error("ending the other supervisor", "error", err)
			}
			close(u.done)
		}()
		return
	}
	d := &departure{lock: u.lock, taker: u.taker, config: s.cfg, reexec: u.reexec, patience: outlive}
	switch {
	case u.reexec != nil:
	case u.next == handover.TakeBack:
		d.back, d.estates = true, u.estates
		_ = u.conn.Close()
	case u.next == handover.End:
		_ = u.conn.Close()
	default:
		d.conn, d.again = u.conn, u.next == handover.TakeAgain
		d.giver.Stage = handover.StageDone
	}
	if !d.back {
		for _, e := range u.estates {
			e.Close()
		}
	}
	close(u.done)
	s.leaving <- d
}

// standby is a supervisor that has given the instance to this one. It stands by from
// the commit on; until then it would take everything back if that failed, and so it
// would while its generation drains.
type standby struct {
	control.Standby // Since: zero before it stands by
	conn            *net.UnixConn
	early           bool // it can be told to take the instance back while its generation drains

	mu    sync.Mutex // guards taker, and has words go out in the order that it allows
	taker handover.Taker
}

// errSaid is returned by say for what cannot be said any more, or yet.
var errSaid = errors.New("it is not the time to say so to the supervisor before")

// say tells the other supervisor something, if that is due.
func (b *standby) say(m handover.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.taker.Says(m.Kind) {
		return errSaid
	}
	return handover.Tell(b.conn, m)
}

// told reports whether it has been told to take the instance back, or to end.
func (b *standby) told() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taker.Over
}

// ready reports whether there is one that stands by.
func (b *standby) ready() bool { return b != nil && !b.Since.IsZero() }

// refusal says why something cannot be done as long as it is there.
func (b *standby) refusal(what string) error {
	if !b.ready() {
		return control.Refuse("%s is refused until the supervisor before this one (pid %d, %s) stands by: dnsappctl status says what the upgrade waits for", what, b.PID, b.Version)
	}
	return control.Refuse("%s is refused while the supervisor before this one stands by (pid %d, %s): end it with dnsappctl upgrade --drain-old, or go back with --rollback", what, b.PID, b.Version)
}

// drainOld ends the supervisor that stands by.
func (s *Supervisor) drainOld(ctx context.Context) error {
	var b *standby
	var refused error
	if err := s.ask(ctx, func() {
		switch b = s.standby; {
		case s.upgrade != nil:
			refused = control.Refuse("an upgrade is under way")
		case b == nil:
			refused = control.Refuse("no supervisor stands by")
		case !b.ready():
			refused = b.refusal("ending it")
		}
	}); err != nil || refused != nil {
		return errors.Join(err, refused)
	}
	if err := b.end(ctx, "dnsappctl upgrade --drain-old"); err != nil {
		return fmt.Errorf("ending the supervisor that stands by (pid %d): %w", b.PID, err)
	}
	return s.ask(ctx, func() { s.dismiss(b) })
}

// end tells the supervisor to end, and waits until it has. The reason is "" if the
// instance ends, too.
func (b *standby) end(ctx context.Context, reason string) error {
	p, err := spawn.AdoptNow(b.PID)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := b.say(handover.Message{Kind: handover.Leave, Reason: reason}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = p.Wait() // its exit code went to whoever started it
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dismiss forgets the supervisor that stood by. Within the loop.
func (s *Supervisor) dismiss(b *standby) {
	if s.standby != b {
		return
	}
	s.standby = nil
	_ = b.conn.Close()
	s.log.Info("the supervisor before has ended", "pid", b.PID, "version", b.Version)
	s.notifyManager()
}

// attendStandby waits for the end of the supervisor that stands by, or for its word
// that it takes the instance back.
func (s *Supervisor) attendStandby(b *standby) {
	m, err := handover.HearOne(b.conn, handover.Hello)
	if err != nil {
		s.post(func() {
			if b.told() && s.upgrade != nil {
				s.failUpgrade(s.upgrade, fmt.Errorf("the supervisor that stood by is gone: %w", err))
			}
			s.dismiss(b)
		})
		return
	}
	s.giveTo(b.conn, m, b.PID)
}

// upgradeBySignal carries out USR2 and WINCH, beside the loop. What comes of it is
// in the log.
func (s *Supervisor) upgradeBySignal(action control.UpgradeAction) {
	go func() {
		_, err := s.Upgrade(context.Background(), control.UpgradeRequest{Action: action}, func(control.Event) {})
		if err != nil {
			s.log.Error("upgrade", "action", action, "error", err)
		}
	}()
}
