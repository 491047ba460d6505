package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/backend"
	"github.com/dnsapp/dnsapp/server/config"
)

// Version is the version of the format. Raise it when a key changes its meaning; one
// that is new, and that older releases may ignore, does not need it.
const Version = 1

// maxSize bounds what Read takes, in octets: ten times what a full table of servers
// and a thousand zones come to.
const maxSize = 16 << 20

// State is what the file holds.
type State struct {
	Version  int       `json:"version"`
	Software string    `json:"software"` // version of the binary that wrote it
	SavedAt  time.Time `json:"saved_at"`

	Servers    []Server          `json:"servers"`
	Counters   map[string]uint64 `json:"counters"`   // of all lanes, by counters.ID.Name
	Supervisor map[string]uint64 `json:"supervisor"` // its own counters
	Zones      []Zone            `json:"zones"`
}

// Server is what was known of one server.
type Server struct {
	Backend string         `json:"backend"`
	File    config.Server  `json:"file"` // what the configuration said of it when the orders held
	Order   backend.Order  `json:"order"`
	Weight  int            `json:"weight"` // ordered, or that of File; 0..65535
	Down    bool           `json:"down"`   // the checks said so
	Counts  backend.Counts `json:"counts"`
}

// Zone is the counters of a zone, or of several under one name.
type Zone struct {
	Name      string `json:"name"`
	UDP       uint64 `json:"udp"`
	TCP       uint64 `json:"tcp"`
	NXDomain  uint64 `json:"nxdomain"`
	Truncated uint64 `json:"truncated"`
}

// Write makes s, with the Version of this package, the content of the file at path.
// Its folder must be there.
func Write(path string, s *State) error {
	c := *s
	c.Version = Version
	b, err := json.MarshalIndent(&c, "", " ")
	if err == nil {
		err = replace(path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing the state file %s: %w", path, err)
	}
	return nil
}

// replace is not renameio.WriteFile, which keeps the mode that the file had.
func replace(path string, b []byte) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // removes what has not got its place
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// Read returns what the file at path holds. The error matches fs.ErrNotExist if there
// is none; any other one says that the file is there and of no use.
func Read(path string) (*State, error) {
	s, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("reading the state file %s: %w", path, err)
	}
	return s, nil
}

func read(path string) (*State, error) {
	// A pipe in its place must not hold up the start.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("others may write it (mode %04o): chmod 600 it if you trust what it says", info.Mode().Perm())
	case info.Size() > maxSize:
		return nil, fmt.Errorf("it has %d octets, more than %d: it is damaged", info.Size(), maxSize)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSize))
	if err != nil {
		return nil, err
	}
	return decode(b)
}

// decode checks the version before anything else: what else another one has is not
// known here.
func decode(b []byte) (*State, error) {
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if v.Version != Version {
		return nil, fmt.Errorf("it has version %d, and this binary reads version %d", v.Version, Version)
	}
	s := new(State)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	type key struct {
		backend, name string
		address       netip.AddrPort
	}
	seen := make(map[key]bool)
	for i := range s.Servers {
		one := &s.Servers[i]
		k := key{one.Backend, one.File.Name, one.File.Address}
		switch {
		case one.Weight < 0 || one.Weight > 65535:
			return nil, fmt.Errorf("it is damaged: server %s of backend %s has the weight %d", k.name, k.backend, one.Weight)
		case seen[k]:
			return nil, fmt.Errorf("it is damaged: server %s of backend %s is there twice", k.name, k.backend)
		}
		seen[k] = true
	}
	return s, nil
}
