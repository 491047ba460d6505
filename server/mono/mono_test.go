package mono

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Now lies between two readings of the kernel's clock taken around it.
func TestNowIsClockMonotonic(t *testing.T) {
	read := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	const slack = 200_000 // where no pair of readings was tight
	for range 1000 {
		before, now, after := read(), Now(), read()
		if now < before-slack || now > after+slack {
			t.Fatalf("Now() = %d, outside [%d, %d]", now, before, after)
		}
	}
}

func TestAgeIsSignedAndWraps(t *testing.T) {
	for _, c := range []struct {
		now, stamp uint32
		want       int32
	}{
		{10, 10, 0},
		{10, 11, -1},                 // the writer's clock reads ahead
		{5, 0xfffffffe, 7},           // across the wrap
		{0xfffffffe, 3, -5},          // ahead across the wrap
		{1 << 31, 1, 1<<31 - 1},      // the oldest age that reads as an age
		{1<<31 + 1, 0, -(1<<31 - 1)}, // one older reads as the future
	} {
		if got := Age(c.now, c.stamp); got != c.want {
			t.Errorf("Age(%d, %d) = %d, want %d", c.now, c.stamp, got, c.want)
		}
	}
}

func TestNowAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Now(); Millis() }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
