package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// ZoneReloadRequest is the body of POST /v1/zones/reload. An empty object means
// all zones.
type ZoneReloadRequest struct {
	Names   []string `json:"names,omitempty"`      // zones to look at; none: all
	Timeout Millis   `json:"timeout_ms,omitempty"` // answer CodeDraining after this long; 0: never
}

// ZoneReport says how a reload of zones went.
type ZoneReport struct {
	ID        uint64    `json:"id"` // counts the zone reloads of this supervisor from 1
	OK        bool      `json:"ok"` // the newest version of every zone is served by every worker
	Reason    string    `json:"reason"`
	StartedAt time.Time `json:"started_at"`
	Elapsed   Millis    `json:"elapsed_ms"`
	Compile   Millis    `json:"compile_ms"` // until the files were read and compiled
	Swap      Millis    `json:"swap_ms"`    // from then until every worker answers from what came of it

	Checked int `json:"checked"` // zones looked at
	Changed int `json:"changed"` // of them, those whose content has changed and that are served anew
	Same    int `json:"same"`    // of them, those whose files looked changed and were not when they were read
	Failed  int `json:"failed"`  // of them, those whose last good version stays
	Workers int `json:"workers"` // that were given new versions

	Zones    []ZoneChange `json:"zones"` // those that have changed, MaxZoneChanges at most
	Problems []Problem    `json:"problems"`
}

// MaxZoneChanges bounds the zones that a ZoneReport lists.
const MaxZoneChanges = 1000

// ZoneChange is a zone whose content has changed.
type ZoneChange struct {
	Name       string `json:"name"`
	OldSerial  uint32 `json:"old_serial"`
	Serial     uint32 `json:"serial"`
	OldRecords int    `json:"old_records"`
	Records    int    `json:"records"`
}

// ZoneDetail is everything about one zone that is served.
type ZoneDetail struct {
	ZoneStatus
	Nodes           int         `json:"nodes"`   // names, empty non-terminals included
	Types           []TypeCount `json:"types"`   // most records first
	Files           []ZoneFile  `json:"files"`   // the zone file first, then its includes
	Content         string      `json:"content"` // digest of the files: the same content, the same digest
	Queries         ZoneQueries `json:"queries"`
	Warnings        []Problem   `json:"warnings"`
	WarningsDropped int         `json:"warnings_dropped"` // beyond those in Warnings
	Problems        []Problem   `json:"problems"`         // of the newest version, if that is not what is served
}

// ZoneQueries is how many queries were answered from a zone since the start, over
// all generations and versions of it.
type ZoneQueries struct {
	UDP       uint64 `json:"udp"`
	TCP       uint64 `json:"tcp"`
	NXDomain  uint64 `json:"nxdomain"`  // of both, those for names that do not exist
	Truncated uint64 `json:"truncated"` // of both, those whose answer was cut short
}

// Total returns the number of queries.
func (q ZoneQueries) Total() uint64 { return q.UDP + q.TCP }

// TypeCount is how many records of a type a zone has.
type TypeCount struct {
	Type    string `json:"type"`
	Records int    `json:"records"`
}

// ZoneFile is a file that a zone was compiled from.
type ZoneFile struct {
	Path       string    `json:"path"`
	Bytes      int64     `json:"bytes"`
	ModifiedAt time.Time `json:"modified_at"` // as it was when the file was read
}

func (r *ZoneReport) filled() *ZoneReport {
	if r == nil {
		return nil
	}
	c := *r
	c.Zones, c.Problems = orEmpty(c.Zones), orEmpty(c.Problems)
	return &c
}

func (d *ZoneDetail) filled() *ZoneDetail {
	c := *d
	c.Types, c.Files = orEmpty(c.Types), orEmpty(c.Files)
	c.Warnings, c.Problems = orEmpty(c.Warnings), orEmpty(c.Problems)
	return &c
}

func (s *Server) zone(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if name == "" {
		s.failWith(w, &Error{Code: CodeUsage, Message: "name is missing: name the zone"})
		return
	}
	z, err := s.backend.Zone(r.Context(), name)
	if err != nil {
		s.failWith(w, err)
		return
	}
	s.answer(w, z.filled())
}

func (s *Server) reloadZones(w http.ResponseWriter, r *http.Request) {
	var req ZoneReloadRequest
	if err := s.decode(w, r, &req); err != nil {
		s.failWith(w, err)
		return
	}
	s.run(w, r, "zone reload", req.Timeout, func(ctx context.Context, emit func(Event)) (Line, error) {
		report, err := s.backend.ReloadZones(ctx, req.Names, emit)
		return Line{Zones: report.filled()}, err
	})
}

// Zone asks for everything about one zone.
func (c *Client) Zone(ctx context.Context, name string) (*ZoneDetail, error) {
	return get[*ZoneDetail](ctx, c, "/v1/zone?"+url.Values{"name": {name}}.Encode())
}

// ReloadZones asks to look at the files of zones again, calls on for each event
// and returns the report. An error may come with a report. When ctx ends the
// reload goes on.
func (c *Client) ReloadZones(ctx context.Context, req ZoneReloadRequest, on func(Event)) (*ZoneReport, error) {
	l, err := c.post(ctx, "/v1/zones/reload", req, on)
	if err == nil && l.Zones == nil {
		err = c.broken(ctx, errors.New("the answer has no report"))
	}
	return l.Zones, err
}

// Describe returns in a line what came of the reload.
func (r *ZoneReport) Describe() string {
	text := fmt.Sprintf("%s looked at, %d changed", count(r.Checked, "zone", "zones"), r.Changed)
	if r.Same > 0 {
		text += fmt.Sprintf(", %d read and the same", r.Same)
	}
	if r.Failed > 0 {
		text += fmt.Sprintf(", %d refused", r.Failed)
	}
	return text
}
