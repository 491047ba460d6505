package reload

import "errors"

func (w *world) timerSet(g Generation) *timerSet {
	if g.Epoch == 0 {
		return &w.stop
	}
	return &w.timers[g.Slot]
}

func (w *world) startTimer(e StartTimer) error {
	if e.Gen.Epoch != 0 {
		if _, err := w.at(e.Gen); err != nil {
			return err
		}
	}
	set := w.timerSet(e.Gen)
	if *set&(1<<e.Timer) != 0 {
		return errors.New("it runs already")
	}
	*set |= 1 << e.Timer
	return nil
}
