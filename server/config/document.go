package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// document is the configuration in the shape of the file, with the defaults
// filled in. A test holds its tags against the schema.
type document struct {
	Name             string          `json:"name"`
	Control          string          `json:"control"`
	Admin            netip.AddrPort  `json:"admin"` // zero: off
	PIDFile          string          `json:"pid_file"`
	StateDir         string          `json:"state_dir"`
	StateFile        string          `json:"state_file"`
	User             string          `json:"user"`
	Workers          int             `json:"workers"`
	Lanes            int             `json:"lanes"` // 0: auto
	Datapath         Datapath        `json:"datapath"`
	DPDK             Primary         `json:"dpdk"`
	ExposeGeneration bool            `json:"expose_generation"`
	Log              Log             `json:"log"`
	Reload           Reload          `json:"reload"`
	Upgrade          Upgrade         `json:"upgrade"`
	DNS              DNS             `json:"dns"`     // but for ExposeGeneration
	Include          []string        `json:"include"` // has been taken in; Config has nothing of it
	Zones            []Zone          `json:"zones"`
	Backends         []Backend       `json:"backends"`
	Listeners        []listenerEntry `json:"listeners"`
}

// listenerEntry is a Listener in the shape of the file.
type listenerEntry struct {
	Name      string           `json:"name"`
	Address   []netip.AddrPort `json:"address"`   // not valid: was refused
	Transport []string         `json:"transport"` // "": was refused
	Service   Service          `json:"service"`
	Affinity  Affinity         `json:"affinity"` // "": that of the service
	Backend   string           `json:"backend"`
	UDPProxy  UDPProxy         `json:"udp_proxy"` // Timeout 0: reload.udp_idle
}

// delimiter separates keys within viper. Its own default, a dot, would split
// keys that have dots.
const delimiter = "::"

// decode lays the values of a checker over the defaults.
func decode(values map[string]any) (*document, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter(delimiter))
	setDefaults(v, root(), "")
	if err := v.MergeConfigMap(values); err != nil {
		return nil, fmt.Errorf("merging configuration: %w", err)
	}
	var d document
	err := v.UnmarshalExact(&d, func(dc *mapstructure.DecoderConfig) {
		dc.TagName = "json"
		dc.WeaklyTypedInput = false
		dc.DecodeHook = mapstructure.ComposeDecodeHookFunc(decodeDuration, mapstructure.TextUnmarshallerHookFunc())
	})
	if err != nil {
		return nil, fmt.Errorf("decoding configuration: %w", err)
	}
	return &d, nil
}

func setDefaults(v *viper.Viper, k *key, prefix string) {
	for _, child := range k.keys {
		switch {
		case child.kind == kindObject:
			setDefaults(v, child, prefix+child.name+delimiter)
		case child.def != "":
			v.SetDefault(prefix+child.name, child.defaultValue())
		}
	}
}

// decodeDuration decodes "10s" and nothing else: to mapstructure a number
// would be nanoseconds.
func decodeDuration(from, to reflect.Type, data any) (any, error) {
	if to != reflect.TypeFor[time.Duration]() {
		return data, nil
	}
	s, ok := data.(string)
	if !ok {
		return nil, fmt.Errorf("a duration is text, not %v", from)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return nil, fmt.Errorf("decoding duration: %w", err)
	}
	return d, nil
}

// config returns what d means on a machine with so many processors.
func (d *document) config(file string, processors int) *Config {
	c := &Config{
		File: file, Name: d.Name, Control: d.Control, Admin: d.Admin, PIDFile: d.PIDFile, StateDir: d.StateDir, StateFile: d.StateFile, User: d.User,
		Workers: d.Workers, Lanes: d.Lanes, Datapath: d.Datapath, DPDK: d.DPDK, Log: d.Log, Reload: d.Reload, Upgrade: d.Upgrade, DNS: d.DNS, Zones: d.Zones,
		Backends: d.Backends,
	}
	c.DNS.ExposeGeneration = d.ExposeGeneration
	switch {
	case c.Lanes != 0:
	case c.Datapath == DPDK:
		c.Lanes = 1
	default:
		c.Lanes = max(min(processors, autoLanes)/d.Workers, 1)
	}
	for _, e := range d.Listeners {
		l := Listener{Name: e.Name, Address: e.Address, Service: e.Service, Affinity: e.Affinity, Backend: e.Backend}
		for _, t := range e.Transport {
			l.UDP = l.UDP || t == "udp"
			l.TCP = l.TCP || t == "tcp"
		}
		if l.Affinity == "" {
			l.Affinity = l.Service.affinity()
		}
		if l.Service == ServiceUDPProxy {
			l.UDPProxy = e.UDPProxy
			if l.UDPProxy.Timeout == 0 {
				l.UDPProxy.Timeout = d.Reload.UDPIdle
			}
		}
		c.Listeners = append(c.Listeners, l)
	}
	return c
}

// affinity returns the affinity that is right for most users of s.
func (s Service) affinity() Affinity {
	if s == ServiceDNS {
		return AffinityNone
	}
	return AffinityFlow
}

// transports returns what s is served over where the file does not say.
func (s Service) transports(d Datapath) []string {
	if s == ServiceUDPProxy || d == DPDK {
		return []string{"udp"}
	}
	return []string{"udp", "tcp"}
}

// documentOf is the inverse of config, with lanes resolved.
func documentOf(c *Config) *document {
	d := &document{
		Name: c.Name, Control: c.Control, Admin: c.Admin, PIDFile: c.PIDFile, StateDir: c.StateDir, StateFile: c.StateFile, User: c.User,
		Workers: c.Workers, Lanes: c.Lanes, Datapath: c.Datapath, DPDK: c.DPDK, ExposeGeneration: c.DNS.ExposeGeneration,
		Log: c.Log, Reload: c.Reload, Upgrade: c.Upgrade, DNS: c.DNS, Zones: c.Zones, Backends: c.Backends,
	}
	d.DNS.ExposeGeneration = false
	for _, l := range c.Listeners {
		d.Listeners = append(d.Listeners, listenerEntry{
			Name: l.Name, Address: l.Address, Transport: l.Transports(), Service: l.Service, Affinity: l.Affinity,
			Backend: l.Backend, UDPProxy: l.UDPProxy,
		})
	}
	return d
}

// field returns the value of the key name of the struct v, which may lead
// through structs: "reload.udp_idle".
func field(v reflect.Value, name string) reflect.Value {
	first, rest, more := strings.Cut(name, ".")
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("json") == first {
			if more {
				return field(v.Field(i), rest)
			}
			return v.Field(i)
		}
	}
	panic("config: no field for the key " + name)
}
