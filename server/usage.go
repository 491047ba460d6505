package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/dnsapp/dnsapp/server/config"
	"github.com/dnsapp/dnsapp/server/metrics"
)

// usage reads what the process pid takes of the machine, false if it is gone.
func usage(worker, pid int) (metrics.Process, bool) {
	p := metrics.Process{Worker: worker}
	folder := "/proc/" + strconv.Itoa(pid) + "/"
	b, err := os.ReadFile(folder + "statm")
	if err != nil {
		return p, false
	}
	if f := strings.Fields(string(b)); len(f) > 1 { // size, resident, ...; in pages
		if pages, err := strconv.ParseInt(f[1], 10, 64); err == nil {
			p.Resident = pages * int64(os.Getpagesize())
		}
	}
	p.OpenFDs = openFiles(folder + "fd")
	if b, err = os.ReadFile(folder + "limits"); err == nil {
		p.MaxFDs = fileLimit(b)
	}
	return p, true
}

// openFiles counts the descriptors in a folder of /proc, 0 if it cannot. Since
// Linux 6.2 its size is the number, which may be read where the list may not.
func openFiles(folder string) int {
	if info, err := os.Stat(folder); err == nil && info.Size() > 0 {
		return int(info.Size())
	}
	list, err := os.ReadDir(folder)
	if err != nil {
		return 0
	}
	return len(list)
}

// fileLimit returns the soft limit of descriptors in a limits file of /proc, 0
// if there is none.
func fileLimit(limits []byte) int {
	for line := range bytes.Lines(limits) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max open files")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				if n, err := strconv.Atoi(string(f[0])); err == nil {
					return n
				}
			}
		}
	}
	return 0
}

// hashed keeps the hash of the configuration that was asked for last. Safe for
// concurrent use.
type hashed struct {
	mu   sync.Mutex // guards the rest
	of   *config.Config
	hash uint64
}

// get returns the hash of a configuration, which is not changed any more.
func (h *hashed) get(c *config.Config) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of != c {
		h.of, h.hash = c, configHash(c)
	}
	return h.hash
}

// configHash returns 48 bits of a hash of a configuration: what a float64, which
// every metric is, holds exactly. What differs from host to host all the same, the
// name of the server and the place of the file, is not in it.
func configHash(c *config.Config) uint64 {
	same := *c
	same.File, same.Name = "", ""
	b, err := json.Marshal(&same)
	if err != nil { // workers get it in this form: it can be encoded
		return 0
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:]) >> 16
}
