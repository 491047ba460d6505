package packet

import (
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	soak   = flag.Bool("soak", false, "run the long form of tests")
	frames = flag.Int("frames", 50_000_000, "with -soak: how many mutated frames")
	seed   = flag.Uint64("seed", 1, "with -soak: where their mutations begin; another number gives other frames")
)

// Fifty million mutated frames, by one host on each processor, some with a kernel
// behind them: nothing panics, after each frame everything is accounted for, and
// memory is as it was after the first.
func TestSoakFrames(t *testing.T) {
	if !*soak {
		t.Skip("a part of make soak")
	}
	const piece = 100_000
	hosts := runtime.GOMAXPROCS(0)
	memory := make([]uint64, 0, *frames/piece)
	var left atomic.Int64
	left.Store(int64(*frames / piece))
	var mu sync.Mutex
	var stats []Stats
	t.Run("hosts", func(t *testing.T) {
		for i := range hosts {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				m := newMutator(t, *seed+uint64(i)<<32, i%2 == 1)
				fed := 0
				for left.Add(-1) >= 0 {
					m.feed(piece)
					if fed += piece; fed%(50*piece) == 0 {
						mu.Lock()
						memory = append(memory, heap())
						mu.Unlock()
					}
				}
				m.all(uint64(fed))
				mu.Lock()
				stats = append(stats, m.Stats)
				mu.Unlock()
			})
		}
	})
	total := uint64(0)
	for _, s := range stats {
		total += s.In
		t.Logf("%d frames: %v; %d datagrams out, %d frames made", s.In, s.InBy, s.Out, s.Made)
	}
	if want := *frames / piece * piece; total != uint64(want) {
		t.Errorf("%d frames of %d", total, want)
	}
	if len(memory) > 1 {
		t.Logf("heap in use, in KiB, every 5,000,000 frames: %v", memory)
		if first, last := memory[0], memory[len(memory)-1]; last > first+first/4+512 {
			t.Errorf("the heap has grown from %d to %d KiB", first, last)
		}
	}
}

// heap returns what is in use, in KiB.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 10
}
