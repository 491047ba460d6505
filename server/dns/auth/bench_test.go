package auth

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/dnsapp/dnsapp/server/burst"
)

// benchZone returns a zone of n names host-I.z with an A record each, a
// delegation, a wildcard and a CNAME.
func benchZone(n int) string {
	var b strings.Builder
	b.WriteString(apex)
	b.WriteString("d NS ns.d\nns.d A 192.0.2.1\n*.w A 192.0.2.2\nc CNAME host-1\nt DNAME host-1\n")
	for i := range n {
		fmt.Fprintf(&b, "host-%d A 10.%d.%d.%d\n", i, i>>16&255, i>>8&255, i&255)
	}
	return b.String()
}

// benchBurst measures queries answered per operation: b.N counts queries.
func benchBurst(b *testing.B, t *tester, names func(r *rand.Rand) string, edns bool) {
	const batches = 512
	r := rand.New(rand.NewPCG(1, 2))
	var queries [batches][burst.Max][]byte
	for i := range queries {
		for j := range queries[i] {
			q := question(names(r), dns.TypeA)
			if edns {
				q.SetEdns0(1232, false)
			}
			queries[i][j], _ = q.Pack()
		}
	}
	u := &burst.Burst{N: burst.Max} // as in a lane, the room for answers is used again
	for j := range u.Packets {
		u.Packets[j].Reply = make([]byte, 0, 1232)
	}
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadCPU(b)
	b.ResetTimer()
	for i := 0; i < b.N; i += burst.Max {
		for j := range u.Packets {
			u.Packets[j].Payload, u.Packets[j].Reply = queries[i/burst.Max%batches][j], u.Packets[j].Reply[:0]
		}
		t.lane.ServeBurst(u)
	}
	b.ReportMetric(float64(threadCPU(b)-start)/float64(b.N), "cpu-ns/op")
}

// threadCPU returns the nanoseconds of CPU that the thread has used: unlike the
// wall clock it means something on a busy machine.
func threadCPU(b *testing.B) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return ts.Nano()
}

func mixed(n int) func(r *rand.Rand) string {
	return func(r *rand.Rand) string {
		if r.IntN(10) == 0 {
			return fmt.Sprintf("nx-%d.z.", r.IntN(n))
		}
		return fmt.Sprintf("host-%d.z.", r.IntN(n))
	}
}

func fixed(name string) func(*rand.Rand) string { return func(*rand.Rand) string { return name } }

func BenchmarkServeBurst(b *testing.B) {
	small := benchZone(10_000)
	for _, minimal := range []bool{true, false} {
		t := serve(b, Options{Minimal: minimal}, "z.", small)
		for _, c := range []struct {
			name  string
			names func(*rand.Rand) string
			edns  bool
		}{
			{"mixed", mixed(10_000), false},
			{"mixed-edns", mixed(10_000), true},
			{"positive", func(r *rand.Rand) string { return fmt.Sprintf("host-%d.z.", r.IntN(10_000)) }, false},
			{"nxdomain", func(r *rand.Rand) string { return fmt.Sprintf("nx-%d.z.", r.IntN(10_000)) }, false},
			{"referral", fixed("www.d.z."), false},
			{"wildcard", fixed("some.w.z."), false},
			{"cname", fixed("c.z."), false},
			{"dname", fixed("a.t.z."), false},
		} {
			b.Run(fmt.Sprintf("minimal=%v/%s", minimal, c.name), func(b *testing.B) { benchBurst(b, t, c.names, c.edns) })
		}
	}
	b.Run("1M", func(b *testing.B) {
		if testing.Short() {
			b.Skip("SKIPPED: compiles a million records (-short)")
		}
		t := serve(b, Options{Minimal: true}, "z.", benchZone(1_000_000))
		b.Run("mixed", func(b *testing.B) { benchBurst(b, t, mixed(1_000_000), false) })
	})
}
