package main

import (
	"context"

	"github.com/dnsapp/dnsapp/server/control"
)

func (b *backend) Zone(ctx context.Context, name string) (*control.ZoneDetail, error) {
	zones, _ := b.Zones(ctx)
	for _, z := range zones {
		if z.Name != name {
			continue
		}
		d := &control.ZoneDetail{
			ZoneStatus: z, Nodes: 12, Content: "0123456789abcdef", Queries: control.ZoneQueries{UDP: 90, TCP: 10, NXDomain: 5, Truncated: 1},
			Types:    []control.TypeCount{{Type: "A", Records: 20}, {Type: "TYPE65280", Records: 1}},
			Files:    []control.ZoneFile{{Path: z.File, Bytes: 2048, ModifiedAt: day}, {Path: "/etc/dnsapp/zones/hosts", Bytes: 100, ModifiedAt: day}},
			Warnings: []control.Problem{{File: z.File, Line: 9, Message: "the TTLs of one set differ"}}, WarningsDropped: 2,
		}
		if z.Error != "" {
			d.Problems = []control.Problem{{File: z.File, Line: 3, Key: z.Name, Message: "www: no TTL"}}
		}
		return d, nil
	}
	return nil, control.Refuse("zone %s is not served (dnsappctl zone list says which are)", name)
}

func (b *backend) ReloadZones(ctx context.Context, names []string, emit func(control.Event)) (*control.ZoneReport, error) {
	if b.zones != nil {
		return b.zones(ctx, names, emit)
	}
	emit(control.Event{Time: day, Step: control.StepSteady, Text: "looking at the files of 3 zones"})
	emit(control.Event{Time: day, Elapsed: 412 * ms, Step: control.StepSteady, Text: "2 of 2 read"})
	return &control.ZoneReport{
		ID: 7, OK: true, StartedAt: day, Elapsed: 414 * ms, Compile: 412 * ms, Swap: 2 * ms, Checked: 3, Changed: 1, Same: 1, Workers: 2,
		Zones: []control.ZoneChange{{Name: "example.com.", OldSerial: 1, Serial: 2, OldRecords: 33, Records: 34}},
	}, nil
}
