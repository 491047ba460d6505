package server

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/mono"
	"github.com/dnsapp/dnsapp/server/reload"
)

// This file is what the supervisor owes to whoever started it: signals, the pid
// file, and the service manager's notifications.

// Signals returns the signals that Run obeys.
func Signals() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGHUP, unix.SIGQUIT, unix.SIGTERM, unix.SIGINT, unix.SIGUSR2, unix.SIGWINCH)
	return c
}

func pid() int { return os.Getpid() }

// writePIDFile writes the pid file, by rename, once.
func (s *Supervisor) writePIDFile() {
	if s.pidFile != "" || s.cfg.PIDFile == "" {
		return
	}
	if err := renameio.WriteFile(s.cfg.PIDFile, []byte(strconv.Itoa(pid())+"\n"), 0o644); err != nil {
		s.log.Error("writing the pid file", "error", err)
		return
	}
	s.pidFile = s.cfg.PIDFile
}

// removePIDFile removes the pid file, unless another instance has replaced it.
func (s *Supervisor) removePIDFile() {
	if s.pidFile == "" {
		return
	}
	b, err := os.ReadFile(s.pidFile)
	if err != nil || string(b) != strconv.Itoa(pid())+"\n" {
		return
	}
	if err := os.Remove(s.pidFile); err != nil {
		s.log.Error("removing the pid file", "error", err)
	}
}

// notify carries out Notify: sd_notify(3), where a service manager listens.
func (s *Supervisor) notify(st reload.Status) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	var text string
	switch st {
	case reload.NotifyReady:
		text = fmt.Sprintf("READY=1\nMAINPID=%d\nSTATUS=epoch %d serves", pid(), s.state.Active.Epoch)
	case reload.NotifyReloading: // in one datagram, as Type=notify-reload wants it
		text = fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d\nSTATUS=reloading", mono.Now()/1000)
	case reload.NotifyStopping:
		text = "STOPPING=1\nSTATUS=stopping"
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(text))
		c.Close()
	}
	if err != nil {
		s.log.Warn("notifying the service manager", "error", err)
	}
}
