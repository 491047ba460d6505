package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
)

// BackendStatus describes a backend and its servers.
type BackendStatus struct {
	Name    string         `json:"name"`
	Policy  string         `json:"policy"`
	Check   string         `json:"check"` // how its servers are checked; "none": they are not
	Servers []ServerStatus `json:"servers"`
}

// ServerStatus describes one server of a backend.
type ServerStatus struct {
	Name       string         `json:"name"`
	Address    netip.AddrPort `json:"address"`
	State      string         `json:"state"`  // enabled, draining or disabled, as ordered
	Health     string         `json:"health"` // up, down (its checks fail) or out (its flows failed)
	Why        string         `json:"why"`    // it is down; "" if it is not, or is not known
	Weight     int            `json:"weight"`
	FileWeight int            `json:"file_weight"` // what the configuration says
	Backup     bool           `json:"backup"`
	MaxFlows   int            `json:"max_flows"` // 0: no limit
	Flows      int            `json:"flows"`     // there are, in all generations

	// Since the server was first known; workers tell four times a second.
	Begun    uint64 `json:"begun"`    // flows
	Refused  uint64 `json:"refused"`  // ICMP errors
	Silent   uint64 `json:"silent"`   // flows without one of the answers that were expected
	Sent     uint64 `json:"sent"`     // datagrams to it
	Received uint64 `json:"received"` // datagrams from it
}

// Usable reports whether the server may get new flows, but for their number.
func (s *ServerStatus) Usable() bool { return s.State == "enabled" && s.Health == "up" && s.Weight > 0 }

// ServerRequest is the body of POST /v1/server.
type ServerRequest struct {
	Backend string `json:"backend"`
	Server  string `json:"server"`
	State   string `json:"state,omitempty"`  // enabled, draining, disabled; "": as it is
	Weight  *int   `json:"weight,omitempty"` // 0 .. 256; null: as it is
}

// maxWeight is the highest weight that an operator can give a server.
const maxWeight = 256

// check returns an *Error with CodeUsage if r says nothing that can be done.
func (r *ServerRequest) check() error {
	usage := func(format string, args ...any) error {
		return &Error{Code: CodeUsage, Message: fmt.Sprintf(format, args...)}
	}
	switch r.State {
	case "", "enabled", "draining", "disabled":
	default:
		return usage("state is %q, and must be enabled, draining or disabled", r.State)
	}
	switch {
	case r.Backend == "" || r.Server == "":
		return usage("backend or server is missing: name both")
	case r.State == "" && r.Weight == nil:
		return usage("neither state nor weight is given")
	case r.Weight != nil && (*r.Weight < 0 || *r.Weight > maxWeight):
		return usage("weight is %d, and must be from 0 to %d", *r.Weight, maxWeight)
	}
	return nil
}

// Diff says where the running state differs from the file.
type Diff struct {
	ConfigFile string    `json:"config_file"`
	Orders     []Change  `json:"orders"`   // what operators have ordered; Old is what the running configuration says
	Changes    []Change  `json:"changes"`  // what a reload would change; Old is what runs
	Problems   []Problem `json:"problems"` // why the file cannot be loaded
}

// Same reports whether nothing differs.
func (d *Diff) Same() bool { return len(d.Orders)+len(d.Changes)+len(d.Problems) == 0 }

func (d *Diff) filled() *Diff {
	c := *d
	c.Orders, c.Changes, c.Problems = orEmpty(c.Orders), orEmpty(c.Changes), orEmpty(c.Problems)
	return &c
}

func (s *Server) backends(w http.ResponseWriter, r *http.Request) {
	list, err := s.backend.Backends(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	list = orEmpty(list)
	for i := range list {
		list[i].Servers = orEmpty(list[i].Servers)
	}
	s.answer(w, list)
}

func (s *Server) orderServer(w http.ResponseWriter, r *http.Request) {
	var req ServerRequest
	err := s.decode(w, r, &req)
	if err == nil {
		err = req.check()
	}
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.note(r, "server order")
	status, err := s.backend.OrderServer(r.Context(), req)
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, status)
}

func (s *Server) diff(w http.ResponseWriter, r *http.Request) {
	d, err := s.backend.Diff(r.Context())
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, d.filled())
}

// Backends asks for the backends in the order of the configuration.
func (c *Client) Backends(ctx context.Context) ([]BackendStatus, error) {
	return get[[]BackendStatus](ctx, c, "/v1/backends")
}

// OrderServer changes the state or the weight of a server, and returns what it is
// then.
func (c *Client) OrderServer(ctx context.Context, req ServerRequest) (*ServerStatus, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	return asking[*ServerStatus](ctx, c, http.MethodPost, "/v1/server", body)
}

// Diff asks where the running state differs from the file.
func (c *Client) Diff(ctx context.Context) (*Diff, error) { return get[*Diff](ctx, c, "/v1/diff") }
