package control

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// UpgradeAction is what an upgrade request wants.
type UpgradeAction string

// The actions.
const (
	// UpgradeStart starts another binary as the next supervisor, which takes the
	// instance over. This one stands by.
	UpgradeStart UpgradeAction = "start"
	// UpgradeDrainOld ends the supervisor that stands by: there is no way back.
	UpgradeDrainOld UpgradeAction = "drain-old"
	// UpgradeRollback gives the instance back to the supervisor that stands by, and
	// ends this one.
	UpgradeRollback UpgradeAction = "rollback"
)

// UpgradeRequest is the body of POST /v1/upgrade. All fields have defaults.
type UpgradeRequest struct {
	Action  UpgradeAction `json:"action,omitempty"`     // default UpgradeStart
	Binary  string        `json:"binary,omitempty"`     // to start; default the file that this one came from
	Wait    Wait          `json:"wait,omitempty"`       // default WaitDone
	Timeout Millis        `json:"timeout_ms,omitempty"` // 0: none
}

// Standby is a supervisor that has given the instance away, and can have it back.
type Standby struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
}

func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) {
	var req UpgradeRequest
	if err := s.decode(w, r, &req); err != nil {
		s.failWith(w, err)
		return
	}
	if req.Action == "" {
		req.Action = UpgradeStart
	}
	if req.Wait == "" {
		req.Wait = WaitDone
	}
	usage := ""
	switch {
	case req.Action != UpgradeStart && req.Action != UpgradeDrainOld && req.Action != UpgradeRollback:
		usage = fmt.Sprintf("action is %q, and must be %q, %q or %q", req.Action, UpgradeStart, UpgradeDrainOld, UpgradeRollback)
	case req.Action != UpgradeStart && req.Binary != "":
		usage = fmt.Sprintf("binary has no meaning for %q", req.Action)
	case req.Wait != WaitDone && req.Wait != WaitCommit:
		usage = fmt.Sprintf("wait is %q, and must be %q or %q", req.Wait, WaitDone, WaitCommit)
	}
	if usage != "" {
		s.failWith(w, &Error{Code: CodeUsage, Message: usage})
		return
	}
	s.run(w, r, "upgrade", req.Timeout, func(ctx context.Context, emit func(Event)) (Line, error) {
		report, err := s.backend.Upgrade(ctx, req, emit)
		return Line{Report: report.filled()}, err
	})
}

// Upgrade asks for another supervisor, calls on for each event, and returns the
// report of the hand-over to the generation of that one; none for
// UpgradeDrainOld. When ctx ends the upgrade goes on.
func (c *Client) Upgrade(ctx context.Context, req UpgradeRequest, on func(Event)) (*ReloadReport, error) {
	l, err := c.post(ctx, "/v1/upgrade", req, on)
	return l.Report, err
}
