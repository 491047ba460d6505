package dpdk

import (
	"net/netip"
	"testing"

	"github.com/dnsapp/dnsapp/test/load"
)

// The next supervisor takes over workers, rings and the primary, gives them back, and
// takes them again: nothing is lost by it, and flows stay where they began.
func TestUpgrade(t *testing.T) {
	s := start(t, 2, "")
	protocol, err := load.NewDNS([]load.Query{{Name: "www.example.com", Type: 1}})
	if err != nil {
		t.Fatal(err)
	}
	queries := generate(t, load.UDPConfig{Targets: []netip.AddrPort{dns4, dns6}, Flows: 32, Rate: 2000, Protocol: protocol})
	was, primary := s.status().PID, s.pool().PID
	for _, args := range [][]string{{"upgrade"}, {"upgrade", "--rollback"}, {"upgrade"}} {
		epoch := s.owner().Epoch
		flows := generate(t, load.UDPConfig{Targets: []netip.AddrPort{who4, who6}, Flows: 20, Rate: 500, Protocol: load.Identify{}})
		s.until(commandTimeout, "each flow has begun", func() bool { r := flows.Report(); return r.Answered > 100 })
		done := make(chan int, 1)
		go func() { // it waits for the end of the drain
			out, errs, code := s.tryCtl(args...)
			t.Logf("%v: code %d\n%s%s", args, code, out, errs)
			done <- code
		}()
		s.until(commandTimeout, "the wire has changed hands", func() bool {
			st, ok := s.tryStatus()
			return ok && len(st.Generations) > 0 && st.Generations[0].RxOwner && st.Generations[0].Epoch > epoch
		})
		before := flows.Report().Answered
		s.until(commandTimeout, "flows go on", func() bool { r := flows.Report(); return r.Answered > before+200 })
		if r := flows.Stop(grace); r.Exact() != nil || r.Astray(epoch) != 0 {
			t.Errorf("%v: flows of epoch %d: %v, %d astray\n%v", args, epoch, r.Exact(), r.Astray(epoch), r)
		}
		flows.Close()
		if code := <-done; code != 0 {
			t.Errorf("%v: code %d", args, code)
		}
	}
	s.ctl("upgrade", "--drain-old")
	s.ctl("reload")
	if r := queries.Stop(grace); r.Exact() != nil {
		t.Errorf("DNS: %v\n%v", r.Exact(), r)
	}
	if now := s.status().PID; now == was {
		t.Errorf("the supervisor is %d still", now)
	}
	if now := s.pool().PID; now != primary {
		t.Errorf("the primary is %d, and was %d", now, primary)
	}
}
