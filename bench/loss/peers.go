package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// dnsapp is dnsapp with this reload.mode.
type dnsapp struct {
	o    *options
	mode string
}

func (d dnsapp) name() string {
	if d.mode != "graceful" {
		return "dnsapp, mode: " + d.mode
	}
	return "dnsapp"
}

func (d dnsapp) start(dir string) (*running, error) {
	config := filepath.Join(dir, "dnsapp.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, `control: %[1]s/run/control.sock
state_dir: %[1]s/state
admin: "off"
workers: 2
zones:
  - {name: example.com, file: example.com.zone}
listeners:
  - {name: dns, address: ["%[2]v"], service: dns}
  - {name: who, address: ["%[3]v"], service: identify}
reload: {mode: %[4]s, udp_idle: %[5]v, shutdown_timeout: %[6]v}
`, dir, dnsAt, flowsAt, d.mode, d.o.every/2, drainTime), 0o644)
	if err != nil {
		return nil, err
	}
	r := &running{
		flows: flowsAt, version: func() (int, error) { return zoneVersion(dnsAt) },
		change: func(n int) error { return writeZone(dir, n) },
		apply: func() error {
			return command(d.o.dnsappctl, "--control", filepath.Join(dir, "run", "control.sock"), "reload")
		},
	}
	if err := r.change(0); err != nil {
		return nil, err
	}
	p, err := launch(dir, d.o.dnsapp, "serve", "-c", config)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return p.end(syscall.SIGINT) })
	return r, r.await()
}

// nginx is nginx as a stream proxy.
type nginx struct{ o *options }

func (nginx) name() string { return "nginx, stream UDP" }

func (n nginx) start(dir string) (*running, error) {
	program, module, err := findNginx()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	r := &running{
		flows: flowsAt, version: func() (int, error) { return plainVersion(versionAt) },
		change: func(version int) error {
			return os.WriteFile(config, []byte(n.config(dir, module, version)), 0o644)
		},
		apply: func() error {
			return command(program, "-p", dir, "-c", config, "-e", filepath.Join(dir, "nginx.log"), "-s", "reload")
		},
	}
	echo, err := startEcho(echoAt)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, echo.close)
	if err := r.behind(n.o, dir); err != nil {
		return nil, err
	}
	if err := r.change(0); err != nil {
		return nil, err
	}
	p, err := launch(dir, program, "-p", dir, "-c", config, "-e", filepath.Join(dir, "nginx.log"))
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return p.end(syscall.SIGTERM) })
	return r, r.await()
}

// behind starts the dnsapp that nginx asks, which is not reloaded.
func (r *running) behind(o *options, dir string) error {
	config := filepath.Join(dir, "behind.yaml")
	err := os.WriteFile(config, fmt.Appendf(nil, `control: %[1]s/behind/control.sock
state_dir: %[1]s/state
admin: "off"
zones:
  - {name: example.com, file: example.com.zone}
listeners:
  - {name: dns, address: ["%[2]v"], service: dns}
`, dir, behindAt), 0o644)
	if err != nil {
		return err
	}
	if err := writeZone(dir, 0); err != nil {
		return err
	}
	p, err := launch(dir, o.dnsapp, "serve", "-c", config)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, func() error { return p.end(syscall.SIGINT) })
	return (&running{version: func() (int, error) { return zoneVersion(behindAt) }}).await()
}

// config is what nginx.org recommends for UDP: reuseport, so that the datagrams
// of a client come to one session; one answer ends a session of DNS.
func (n nginx) config(dir, module string, version int) string {
	load := ""
	if module != "" {
		load = "load_module " + module + ";\n"
	}
	return fmt.Sprintf(`%[1]sdaemon off;
worker_processes 2;
worker_rlimit_nofile 65536;
worker_shutdown_timeout %[2]ds;
pid %[3]s/nginx.pid;
events { worker_connections 20000; }
stream {
    server { listen %[4]v udp reuseport; proxy_pass %[5]v; proxy_timeout %[2]ds; }
    server { listen %[6]v udp reuseport; proxy_pass %[7]v; proxy_timeout 2s; proxy_responses 1; }
    server { listen %[8]v udp reuseport; return "%[9]d"; }
}
`, load, int(drainTime.Seconds()), dir, flowsAt, echoAt, dnsAt, behindAt, versionAt, version)
}

// findNginx returns the program, and its stream module where that is a file.
func findNginx() (program, module string, err error) {
	for _, p := range []string{"nginx", "/usr/sbin/nginx"} {
		if program, err = exec.LookPath(p); err == nil {
			break
		}
	}
	if err != nil {
		return "", "", &missingError{"nginx is not installed (Debian: nginx, libnginx-mod-stream)"}
	}
	out, err := exec.Command(program, "-V").CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("asking nginx for its modules: %w", err)
	}
	if !strings.Contains(string(out), "--with-stream=dynamic") {
		return program, "", nil
	}
	folder := "/usr/lib/nginx/modules"
	if m := regexp.MustCompile(`--modules-path=(\S+)`).FindSubmatch(out); m != nil {
		folder = string(m[1])
	}
	module = filepath.Join(folder, "ngx_stream_module.so")
	if _, err := os.Stat(module); err != nil {
		return "", "", &missingError{"nginx lacks its stream module (Debian: libnginx-mod-stream)"}
	}
	return program, module, nil
}

// coredns is CoreDNS.
type coredns struct{ o *options }

func (coredns) name() string { return "CoreDNS" }

func (c coredns) start(dir string) (*running, error) {
	program, err := exec.LookPath(c.o.coredns)
	if err != nil {
		return nil, &missingError{"CoreDNS is not there: " + err.Error()}
	}
	corefile := filepath.Join(dir, "Corefile")
	var p *process
	r := &running{
		version: func() (int, error) { return zoneVersion(dnsAt) },
		change: func(n int) error {
			// CoreDNS leaves a Corefile that is the same alone.
			text := fmt.Appendf(nil, "# version %d\nexample.com:%d {\n    bind %v\n    file %s/example.com.zone\n    errors\n}\n", n, dnsAt.Port(), dnsAt.Addr(), dir)
			if err := os.WriteFile(corefile, text, 0o644); err != nil {
				return err
			}
			return writeZone(dir, n)
		},
		apply: func() error { return p.cmd.Process.Signal(syscall.SIGUSR1) },
	}
	if err := r.change(0); err != nil {
		return nil, err
	}
	if p, err = launch(dir, program, "-conf", corefile); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() error { return p.end(syscall.SIGTERM) })
	return r, r.await()
}
