package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// listenAdmin binds the address of metrics and health checks.
func (s *Supervisor) listenAdmin(ap netip.AddrPort) error {
	l, err := net.Listen("tcp", ap.String())
	if err != nil {
		return fmt.Errorf("admin: %w (choose another address, or \"off\")", err)
	}
	s.admin = &http.Server{Handler: http.NewServeMux(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := s.admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("serving metrics", "error", err)
		}
	}()
	return nil
}
