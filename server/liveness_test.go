package server

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that is stopped, that sleeps although it was woken, or that is gone
// will not answer. One that wants to run may only be starved.
func TestStalled(t *testing.T) {
	const never = time.Hour
	sleeping, _ := start(t, "sleep")
	until(t, "a process that waits is stalled", func() bool { return stalled(sleeping.PID, cpuTime(sleeping.PID), never) })

	spinning, _ := start(t, "spin")
	until(t, "a process that runs is not stalled", func() bool { return !stalled(spinning.PID, cpuTime(spinning.PID), never) })
	for range 100 { // it wants to run all the time, whether or not it gets a processor
		if stalled(spinning.PID, cpuTime(spinning.PID), never) {
			t.Fatal("a process that wants to run is stalled")
		}
	}
	before := cpuTime(spinning.PID)
	const burnt = 50 * time.Millisecond
	for cpuTime(spinning.PID)-before < burnt {
		if stalled(spinning.PID, before, never) {
			t.Fatal("a process that runs is stalled before its time")
		}
	}
	if !stalled(spinning.PID, before, burnt) {
		t.Error("a process that ran for that long without an answer is not stalled")
	}
	if err := spinning.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "a process that is stopped is stalled", func() bool { return stalled(spinning.PID, cpuTime(spinning.PID), never) })
	if err := spinning.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "it goes on", func() bool { return !stalled(spinning.PID, cpuTime(spinning.PID), never) })

	if err := spinning.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "a zombie is stalled", func() bool { return stalled(spinning.PID, cpuTime(spinning.PID), never) })
	if _, err := spinning.Wait(); err != nil {
		t.Fatal(err)
	}
	if !stalled(spinning.PID, 0, never) {
		t.Error("a process that is gone is not stalled")
	}
}

func TestCPUTime(t *testing.T) {
	if n := cpuTime(os.Getpid()); n < 0 || n > time.Hour {
		t.Errorf("this process has used %v", n)
	}
	p, _ := start(t, "spin")
	before := cpuTime(p.PID)
	until(t, "its time grows", func() bool { return cpuTime(p.PID) > before })
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := cpuTime(p.PID); n != 0 {
		t.Errorf("a process that is gone has used %v", n)
	}
}
