package control

import "time"

// Traffic is what a supervisor has served so far and serves now. Two of them
// give rates: no count of Total goes backwards, and none of a generation does
// while it lives.
type Traffic struct {
	Name   string    `json:"name"`
	Time   time.Time `json:"time"`
	Uptime Millis    `json:"uptime_ms"`

	Step    Step   `json:"step"`
	Reload  uint64 `json:"reload"`     // under way; 0: none
	Elapsed Millis `json:"elapsed_ms"` // since it was asked for

	Total       Counts              `json:"total"`       // over all generations there ever were
	Generations []GenerationTraffic `json:"generations"` // newest first
	Recent      []Event             `json:"recent"`      // the last few events, oldest first
}

// GenerationTraffic is what one generation has served so far and serves now.
type GenerationTraffic struct {
	Epoch   uint32 `json:"epoch"`
	State   string `json:"state"`
	RxOwner bool   `json:"rx_owner"`
	Workers int    `json:"workers"`
	Ready   int    `json:"ready"` // of them
	Load    *Load  `json:"load"`  // what it serves; null where counting would hold up a reload
	Drain   *Drain `json:"drain"` // null unless the state is draining or leaving
	Counts  Counts `json:"counts"`
}

// Counts is how often things have happened.
type Counts struct {
	Received  uint64 `json:"received"`  // datagrams read from the wire
	Served    uint64 `json:"served"`    // of them, by the worker that read them
	Sibling   uint64 `json:"sibling"`   // of them, handed to another worker of the generation
	Forwarded uint64 `json:"forwarded"` // of them, handed to a draining generation
	Dropped   uint64 `json:"dropped"`   // of them and of those from rings, without an answer
	Ring      uint64 `json:"ring"`      // datagrams served that came from another worker

	KernelDropped uint64 `json:"kernel_dropped"` // datagrams lost in full socket buffers; of Total only

	Accepted uint64 `json:"accepted"` // TCP connections
	Messages uint64 `json:"messages"` // read from them
}

// Since returns what c counted after o.
func (c Counts) Since(o Counts) Counts {
	c.Received -= o.Received
	c.Served -= o.Served
	c.Sibling -= o.Sibling
	c.Forwarded -= o.Forwarded
	c.Dropped -= o.Dropped
	c.Ring -= o.Ring
	c.KernelDropped -= o.KernelDropped
	c.Accepted -= o.Accepted
	c.Messages -= o.Messages
	return c
}

// filled returns a copy of t without nil lists.
func (t *Traffic) filled() *Traffic {
	c := *t
	c.Generations = orEmpty(c.Generations)
	c.Recent = orEmpty(c.Recent)
	return &c
}
