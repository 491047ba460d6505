package control

import (
	"context"
	"errors"
	"testing"
)

func TestBackends(t *testing.T) {
	var asked ServerRequest
	path := serve(t, &fakeBackend{
		backends: func(context.Context) ([]BackendStatus, error) { return []BackendStatus{{Name: "app"}}, nil },
		order: func(_ context.Context, req ServerRequest) (*ServerStatus, error) {
			asked = req
			return &ServerStatus{Name: req.Server, State: "draining"}, nil
		},
	})
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list, err := c.Backends(t.Context())
	if err != nil || len(list) != 1 || list[0].Servers == nil {
		t.Errorf("backends %+v, %v", list, err)
	}
	s, err := c.OrderServer(t.Context(), ServerRequest{Backend: "app", Server: "a", State: "draining"})
	if err != nil || s.State != "draining" || asked.Server != "a" {
		t.Errorf("order %+v, asked %+v, %v", s, asked, err)
	}
	if d, err := c.Diff(t.Context()); err != nil || !d.Same() || d.Orders == nil {
		t.Errorf("diff %+v, %v", d, err)
	}
	much, none := maxWeight+1, -1
	for _, req := range []ServerRequest{
		{}, {Backend: "app"}, {Server: "a"}, {Backend: "app", Server: "a"}, {Backend: "app", Server: "a", State: "gone"},
		{Backend: "app", Server: "a", Weight: &much}, {Backend: "app", Server: "a", Weight: &none},
	} {
		_, err := c.OrderServer(t.Context(), req)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeUsage {
			t.Errorf("%+v: %v", req, err)
		}
	}
}
