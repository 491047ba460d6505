package primary

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
)

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, not %q", err, want)
	}
}

// Changes names every field that a Spec has, and is empty iff the digests agree.
func TestChanges(t *testing.T) {
	full := func() *Spec {
		return &Spec{
			Devices: []Device{{Name: "wan", Device: "0000:3b:00.0", Queues: 1, Descriptors: 2, MTU: 3}},
			Mbufs:   4, MbufSize: 5, MaxWorkers: 6, RingSize: 7, Memory: 8, Hugepages: "/h", FilePrefix: "p",
		}
	}
	if c := full().Changes(full()); c != nil || full().Digest() != full().Digest() {
		t.Errorf("no change is %v", c)
	}
	tried := 0
	change := func(v func(*Spec) reflect.Value) {
		for i := range v(full()).NumField() {
			now := full()
			key := v(now).Type().Field(i).Tag.Get("json")
			switch f := v(now).Field(i); f.Kind() {
			case reflect.Int:
				f.SetInt(99)
			case reflect.String:
				f.SetString("other")
			case reflect.Slice:
				continue
			}
			tried++
			if c := full().Changes(now); len(c) != 1 || !strings.HasSuffix(c[0].Key, "."+key) || full().Digest() == now.Digest() {
				t.Errorf("%s: %v", key, c)
			}
		}
	}
	change(func(s *Spec) reflect.Value { return reflect.ValueOf(s).Elem() })
	change(func(s *Spec) reflect.Value { return reflect.ValueOf(&s.Devices[0]).Elem() })
	if tried != 12 {
		t.Errorf("%d fields were tried", tried)
	}
	more := full()
	more.Devices = append(more.Devices, Device{Name: "lan"})
	for _, c := range [][2]*Spec{{full(), more}, {more, full()}} {
		if got := c[0].Changes(c[1]); len(got) != 1 || got[0].Key != "dpdk.devices" {
			t.Errorf("%v", got)
		}
	}
}

func TestDeviceKinds(t *testing.T) {
	for device, want := range map[string]struct {
		pci bool
		eal string
	}{
		"0000:3b:00.1":          {true, "0000:3b:00.1"},
		"net_tap0,iface=dtap0":  {false, "net_tap0"},
		"net_null0":             {false, "net_null0"},
		"0000:3b:00.0,arg=well": {true, "0000:3b:00.0"},
	} {
		if d := (Device{Device: device}); d.PCI() != want.pci || d.EAL() != want.eal {
			t.Errorf("%s: PCI %v, EAL %q", device, d.PCI(), d.EAL())
		}
	}
}

// A pid is alive with its own start time and name only.
func TestIdentity(t *testing.T) {
	me, err := identify(os.Getpid())
	if err != nil || !me.Alive() {
		t.Fatalf("I am not alive: %+v, %v", me, err)
	}
	for _, i := range []Identity{{me.PID, me.Start + 1, me.Comm}, {me.PID, me.Start, me.Comm + "x"}, {999999999, me.Start, me.Comm}} {
		if i.Alive() {
			t.Errorf("%+v is alive", i)
		}
	}
}

// What is written is read again; what is not there or broken says so.
func TestState(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadState(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a state: %v", err)
	}
	want := &State{Identity{1, 2, "dnsapp"}, "p-1", Spec{Mbufs: 3}}
	if err := want.write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadState(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(dir+"/"+stateName, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadState(dir)
	wantError(t, err, "remove it if no dnsapp primary runs")
	if err := removeState(dir); err != nil {
		t.Error(err)
	}
	_, err = NewClient(dir).Status(t.Context())
	if !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}
