// Package link is what bench and the process at the other end of a net_memif say to
// each other.
package link

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Frame is a query to send. The number of a frame in its list is the DNS identifier
// of the query in it.
type Frame struct {
	Data  []byte `json:"data"`  // Ethernet, IPv4 without options, UDP, DNS
	Rcode byte   `json:"rcode"` // of the right answer
}

// Write writes frames to a file.
func Write(path string, frames []Frame) error {
	b, err := json.Marshal(frames)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

// Read reads what Write wrote.
func Read(path string) (frames []Frame, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &frames); err != nil || len(frames) == 0 || len(frames) > 1<<16 {
		return nil, fmt.Errorf("%s has %d frames: %w", path, len(frames), err)
	}
	return frames, nil
}

// Result is what was measured.
type Result struct {
	Elapsed  time.Duration `json:"elapsed"`
	Sent     uint64        `json:"sent"`
	Answered uint64        `json:"answered"` // rightly
	Wrong    uint64        `json:"wrong"`
	Other    uint64        `json:"other"` // frames that are no answers, such as ARP
	Lost     uint64        `json:"lost"`

	Bursts   uint64  `json:"bursts"`    // of echo: that were not empty
	DriverNs float64 `json:"driver_ns"` // of echo: what receiving and sending a frame takes
}

// Since returns the counts of r that came after o.
func (r Result) Since(o Result) Result {
	r.Sent -= o.Sent
	r.Answered -= o.Answered
	r.Wrong -= o.Wrong
	r.Other -= o.Other
	r.Lost -= o.Lost
	return r
}
