//go:build explore

package ring

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dnsapp/dnsapp/internal/explore"
	"github.com/dnsapp/dnsapp/server/burst"
	"github.com/dnsapp/dnsapp/server/shm"
)

// tiny returns rings that three records of big bytes fill.
func tiny(lanes int) *Rings {
	r, err := Format(shm.Heap(RegionSize(lanes, 1, MinBytes)), lanes, 1, MinBytes)
	if err != nil {
		panic(err)
	}
	return r
}

const big = 1200

// reader collects the numbers of the records it reads, and what is wrong with them.
type reader struct {
	seqs []int
	err  error
}

func (r *reader) Fatalf(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// drain reads what c holds, twice over, releasing after every record.
func (r *reader) drain(c *Consumer) {
	var pkt burst.Packet
	var m Meta
	for range 2 {
		for upTo := c.Tail(); c.Next(upTo, &pkt, &m); {
			check(r, int(m.Segment), big, &pkt, m)
			r.seqs = append(r.seqs, int(m.Segment))
			c.Release()
		}
	}
	if c.Damaged() != 0 {
		r.Fatalf("damage")
	}
}

// inOrder says whether seqs are all of what was pushed, in order, but for runs that
// begin again with a record that was read before.
func inOrder(seqs, pushed []int) error {
	next := 0
	for _, s := range seqs {
		at := slices.Index(pushed, s)
		if at < 0 || at > next {
			return fmt.Errorf("read %v of %v", seqs, pushed)
		}
		next = at + 1
	}
	if next != len(pushed) {
		return fmt.Errorf("read %v of %v, and not the end", seqs, pushed)
	}
	return nil
}

// A lane pushes more than fits while the worker reads: what was accepted and
// published is read once and in order. With the lane killed anywhere, and its
// successor going on.
func TestExploreProducer(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		r := tiny(1)
		p := r.Producer(0, 0)
		var published []int
		var got, rest reader
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "lane", Kill: true, Run: func() {
					var accepted []int
					for seq := 1; seq <= 5; seq++ {
						if push(p, seq, big) {
							accepted = append(accepted, seq)
						}
						if seq%2 == 0 {
							p.Publish()
							published, accepted = append(published, accepted...), nil
						}
					}
				}},
				{Name: "worker", Run: func() { got.drain(r.Consumer(0, 0)) }},
			},
			Check: func() error {
				successor := r.Producer(0, 0)
				if push(successor, 9, big) {
					published = append(published, 9)
				}
				successor.Publish()
				rest.drain(r.Consumer(0, 0))
				if all := slices.Concat(got.seqs, rest.seqs); !slices.Equal(all, published) || got.err != nil || rest.err != nil {
					return fmt.Errorf("read %v, published %v, errors %w, %w", all, published, got.err, rest.err)
				}
				return nil
			},
		}
	})
}

// A worker is killed anywhere while a lane pushes; the next worker, or the lane
// itself, reads on: nothing is lost, and only what was not released is read twice.
func TestExploreConsumer(t *testing.T) {
	for name, takeBack := range map[string]bool{"respawned": false, "taken back": true} {
		t.Run(name, func(t *testing.T) {
			explore.Run(t, func() explore.Scenario {
				r := tiny(1)
				var pushed []int
				p := r.Producer(0, 0)
				var first, second reader
				lane := explore.Thread{Name: "lane", Run: func() {
					for seq := 1; seq <= 4; seq++ {
						if push(p, seq, big) {
							pushed = append(pushed, seq)
						}
						p.Publish()
					}
				}}
				heir := explore.Thread{Name: "heir", After: []string{"worker"}, Run: func() { second.drain(r.Consumer(0, 0)) }}
				if takeBack {
					heir.After = append(heir.After, "lane")
					heir.Run = func() { second.drain(p.TakeBack()) }
				}
				return explore.Scenario{
					Threads: []explore.Thread{
						lane,
						{Name: "worker", Kill: true, Run: func() { first.drain(r.Consumer(0, 0)) }},
						heir,
					},
					Check: func() error {
						var last reader
						last.drain(r.Consumer(0, 0))
						for _, x := range []*reader{&first, &second, &last} {
							if x.err != nil {
								return x.err
							}
						}
						if err := inOrder(slices.Concat(first.seqs, second.seqs, last.seqs), pushed); err != nil {
							return fmt.Errorf("worker %v, heir %v, last %v: %w", first.seqs, second.seqs, last.seqs, err)
						}
						if again := len(first.seqs) + len(second.seqs) + len(last.seqs) - len(pushed); again > 1 {
							return fmt.Errorf("%d records read twice", again)
						}
						return nil
					},
				}
			})
		})
	}
}

// Two lanes publish while the worker goes to sleep: it does not sleep before a record
// that nobody will wake it for, and it is woken once.
func TestExploreWake(t *testing.T) {
	explore.Run(t, func() explore.Scenario {
		r := tiny(2)
		in := r.Inbox(0)
		asleep, wakes := false, 0
		lane := func(l int) func() {
			p := r.Producer(l, 0)
			return func() {
				push(p, 1, 10)
				p.Publish()
				if p.NeedsWake() {
					wakes++
				}
			}
		}
		return explore.Scenario{
			Threads: []explore.Thread{
				{Name: "a", Run: lane(0)},
				{Name: "b", Run: lane(1)},
				{Name: "worker", Run: func() { asleep = in.PrepareSleep() }},
			},
			Check: func() error {
				unread := slices.ContainsFunc(in.Consumers(), func(c *Consumer) bool { return !c.Empty() })
				if asleep && unread && wakes != 1 || wakes > 1 {
					return fmt.Errorf("asleep %v, unread %v, woken %d times", asleep, unread, wakes)
				}
				return nil
			},
		}
	})
}

// handOvers is a flow whose packets 1, 2, 3 come in by three generations in turn: each
// begins after the one before has published, as the park barrier sees to it.
func handOvers(r *Rings) []explore.Thread {
	var ths []explore.Thread
	for i, name := range []string{"oldest", "middle", "newest"} {
		p := r.Producer(2-i, 0) // lane 0 is the newest
		th := explore.Thread{Name: name, Run: func() {
			push(p, i+1, 10)
			p.Publish()
		}}
		if i > 0 {
			th.After = []string{ths[i-1].Name}
		}
		ths = append(ths, th)
	}
	return ths
}

// inversions explores three hand-overs beside a worker that reads in rounds, and
// returns the first order of a flow's packets that is wrong.
func inversions(t *testing.T, round func(newestFirst []*Consumer) func(got *[]int)) (wrong []int) {
	explore.Run(t, func() explore.Scenario {
		r := tiny(3)
		read := round(r.Inbox(0).Consumers())
		var got []int
		return explore.Scenario{
			Threads: append(handOvers(r), explore.Thread{Name: "worker", Run: func() {
				for range 2 {
					read(&got)
				}
			}}),
			Check: func() error {
				if !slices.IsSorted(got) {
					wrong = got
				}
				return nil
			},
		}
	})
	return wrong
}

// A flow's packets stay in order over hand-overs, whenever the worker looks. The
// naive rules do not keep it, and are the proof that this test would notice.
func TestExploreOrder(t *testing.T) {
	if wrong := inversions(t, func(newestFirst []*Consumer) func(*[]int) {
		d := NewDrainer(newestFirst)
		return func(got *[]int) {
			var b burst.Burst
			var from [burst.Max]Source
			for i := range d.Fill(&b, &from) {
				*got = append(*got, int(from[i].Segment))
			}
			d.Release()
		}
	}); wrong != nil {
		t.Errorf("the drainer reads a flow in the order %v", wrong)
	}
	for name, round := range map[string]func([]*Consumer) func(*[]int){
		"each ring to its end, oldest first": func(newestFirst []*Consumer) func(*[]int) {
			return func(got *[]int) {
				for _, c := range slices.Backward(newestFirst) {
					readUpTo(c, c.Tail(), got)
				}
			}
		},
		"tails oldest first": func(newestFirst []*Consumer) func(*[]int) {
			return func(got *[]int) {
				tails := make([]uint64, len(newestFirst))
				for i, c := range slices.Backward(newestFirst) {
					tails[i] = c.Tail()
				}
				for i, c := range slices.Backward(newestFirst) {
					readUpTo(c, tails[i], got)
				}
			}
		},
	} {
		if wrong := inversions(t, round); wrong == nil {
			t.Errorf("%s: no inversion found", name)
		}
	}
}

func readUpTo(c *Consumer, upTo uint64, got *[]int) {
	var pkt burst.Packet
	var m Meta
	for c.Next(upTo, &pkt, &m) {
		*got = append(*got, int(m.Segment))
	}
	c.Release()
}
