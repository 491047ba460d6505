package control

import (
	"fmt"
	"strings"
	"time"
)

// Plan says what a reload would do if it were asked for now.
type Plan struct {
	Accepted   bool      `json:"accepted"` // it would begin
	ConfigFile string    `json:"config_file"`
	FromEpoch  uint32    `json:"from_epoch"` // the generation that it would replace
	After      string    `json:"after"`      // what it would wait for before it begins; "": nothing
	Problems   []Problem `json:"problems"`   // why it would be refused

	Changes  []Change   `json:"changes"`
	Zones    []ZonePlan `json:"zones"` // those that would be compiled, in the order of the configuration
	Kept     int        `json:"kept"`  // zones that would be served as they are, without a compilation
	Warnings []Problem  `json:"warnings"`

	Drain *DrainPlan `json:"drain"` // null if nothing would drain
}

// Change is one key of the configuration that would change.
type Change struct {
	Key string `json:"key"` // entries of lists by name: listeners[dns].address
	Old string `json:"old"` // as it would be written; "": it is new
	New string `json:"new"` // "": it would be gone
}

// String returns the change in one line.
func (c Change) String() string {
	switch {
	case c.Old == "":
		return c.Key + ": added " + c.New
	case c.New == "":
		return c.Key + ": removed " + c.Old
	}
	return c.Key + ": " + c.Old + " -> " + c.New
}

// ZonePlan is a zone that a reload would compile.
type ZonePlan struct {
	Name    string `json:"name"`
	File    string `json:"file"`
	New     bool   `json:"new"`     // it is not served yet
	Changed bool   `json:"changed"` // its content differs from what is served; false: its file was only touched
	Error   bool   `json:"error"`   // it would be refused: see the problems of the plan

	Serial     uint32 `json:"serial"` // of the version in the file
	Records    int    `json:"records"`
	OldSerial  uint32 `json:"old_serial"` // of the version that is served
	OldRecords int    `json:"old_records"`
}

// DrainPlan is what the old generation would have to finish.
type DrainPlan struct {
	Load    *Load  `json:"load"`        // what it serves now; null where counting would take too long
	Idle    Millis `json:"idle_ms"`     // how long ago the newest of its UDP flows had a packet
	UDPIdle Millis `json:"udp_idle_ms"` // after which a flow is over
	AtLeast Millis `json:"at_least_ms"` // the drain lasts this long, if no client sends anything more
	AtMost  Millis `json:"at_most_ms"`  // what is left then is handed over
}

// Describe returns the forecast in words.
func (d *DrainPlan) Describe() string {
	if d.Load == nil {
		return "not counted: the flow table is too large, or the generation is changing hands; " + seconds(d.AtMost.Duration()) + " at most"
	}
	var parts []string
	if n := d.Load.Flows; n > 0 {
		parts = append(parts, fmt.Sprintf("%s, newest idle %s", count(n, "UDP flow", "UDP flows"), seconds(d.Idle.Duration())))
	}
	if n := d.Load.TCP; n > 0 {
		parts = append(parts, count(n, "TCP connection", "TCP connections"))
	}
	if len(parts) == 0 {
		return "nothing to finish"
	}
	text := strings.Join(parts, ", ")
	switch {
	case d.AtMost == 0:
		return text + "; not waited for"
	case d.AtLeast > 0:
		return fmt.Sprintf("%s; %s at least, %s at most", text, seconds(min(d.AtLeast, d.AtMost).Duration()), seconds(d.AtMost.Duration()))
	}
	return fmt.Sprintf("%s; %s at most", text, seconds(d.AtMost.Duration()))
}

// Forecast fills in AtLeast and AtMost.
func (d *DrainPlan) Forecast(shutdownTimeout time.Duration) {
	d.AtMost = Millis(shutdownTimeout)
	d.AtLeast = 0
	if d.Load != nil && d.Load.Flows > 0 {
		d.AtLeast = min(max(d.UDPIdle-d.Idle, 0), d.AtMost)
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// filled returns a copy of p without nil lists.
func (p *Plan) filled() *Plan {
	c := *p
	c.Problems, c.Warnings = orEmpty(c.Problems), orEmpty(c.Warnings)
	c.Changes, c.Zones = orEmpty(c.Changes), orEmpty(c.Zones)
	return &c
}

// Err returns why the reload would be refused, as an *Error, nil if it would
// not.
func (p *Plan) Err() error {
	if p.Accepted {
		return nil
	}
	return &Error{Code: CodeRefused, Message: "a reload would be refused", Problems: p.Problems}
}
