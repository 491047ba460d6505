package directory

import (
	"testing"

	"pgregory.net/rapid"
)

// A word says what it was made of, and no two words of different content are equal.
func TestWordRoundTrip(t *testing.T) {
	genEpoch := rapid.OneOf(rapid.Uint32Range(0, MaxEpoch), rapid.SampledFrom([]uint32{0, 1, MaxEpoch - 1, MaxEpoch}))
	rapid.Check(t, func(t *rapid.T) {
		epoch, deadline := genEpoch.Draw(t, "epoch"), rapid.Uint32().Draw(t, "deadline")
		run, park := Run(epoch), Parked(epoch, deadline)
		if run.Epoch() != epoch || run.IsPark() {
			t.Errorf("Run(%d) is %v", epoch, run)
		}
		if park.Epoch() != epoch || !park.IsPark() || park.Deadline() != deadline {
			t.Errorf("Parked(%d, %d) is %v", epoch, deadline, park)
		}
		other, otherDeadline := genEpoch.Draw(t, "other epoch"), rapid.Uint32().Draw(t, "other deadline")
		if run == Parked(other, otherDeadline) {
			t.Error("a park equals a run")
		}
		if same := epoch == other && deadline == otherDeadline; (park == Parked(other, otherDeadline)) != same {
			t.Error("two different parks are equal")
		}
	})
}

// A park lapses after its deadline, signed: also where the clock wraps in between. A
// RUN word never does.
func TestLapsed(t *testing.T) {
	for _, c := range []struct {
		deadline, now uint32
		want          bool
	}{
		{1000, 950, false}, {1000, 1000, false}, {1000, 1001, true}, {1000, 2000, true},
		{10, 1<<32 - 40, false}, {10, 10, false}, {10, 11, true},
		{1<<32 - 1, 1<<32 - 1, false}, {1<<32 - 1, 0, true},
		{0, 1<<32 - 1, false}, {0, 1, true},
	} {
		if got := Parked(7, c.deadline).Lapsed(c.now); got != c.want {
			t.Errorf("deadline %d at %d: lapsed is %v", c.deadline, c.now, got)
		}
		if Run(7).Lapsed(c.now) {
			t.Errorf("RUN has lapsed at %d", c.now)
		}
	}
}

func TestWordString(t *testing.T) {
	for w, want := range map[Word]string{Run(3): "epoch 3", Parked(3, 5): "epoch 3 parked until 5", 0: "epoch 0"} {
		if got := w.String(); got != want {
			t.Errorf("%#x is %q, want %q", uint64(w), got, want)
		}
	}
}
