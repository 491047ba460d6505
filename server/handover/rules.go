package handover

import "slices"

// This file is what two supervisors may say to each other when, and what the one that
// gives has to make of it, without any of the doing. Whoever speaks and hears asks
// here; a test walks through everything that can come of it.

// Stage is how far a hand-over has come, as one of the two knows it.
type Stage uint8

// The stages, from Offer on.
const (
	// StageOffered: the giver has let go of everything, and nobody coordinates.
	StageOffered Stage = iota
	// StageTaken: the taker coordinates.
	StageTaken
	// StageCommitted: its own generation has the wire. The giver stands by.
	StageCommitted
	// StageDone: the giver's generation is gone, too.
	StageDone
)

// String names the stage.
func (s Stage) String() string {
	return [...]string{"offered", "taken", "committed", "done"}[s]
}

// due is what the taker may say in each stage. (Done without Committed is what a taker
// says that has done both at once.)
var due = [...][]Kind{
	StageOffered:   {Taken, Failed},
	StageTaken:     {News, Committed, Done, Failed, Leave},
	StageCommitted: {News, Done, Failed, Leave, Return},
	StageDone:      {Leave, Return},
}

// after returns the stage that begins when the taker has said k.
func (s Stage) after(k Kind) Stage {
	switch k {
	case Taken:
		return StageTaken
	case Committed:
		return StageCommitted
	case Done:
		return StageDone
	}
	return s
}

// Next is what the giver does next.
type Next uint8

// What it may do.
const (
	// Follow: it waits for the next word.
	Follow Next = iota
	// TakeBack: it makes certain that the taker is gone, and has everything again.
	TakeBack
	// TakeAgain: it becomes the taker, on the same connection.
	TakeAgain
	// End: it is not needed any more.
	End
)

// String names what is done.
func (n Next) String() string {
	return [...]string{"follow", "take back", "take again", "end"}[n]
}

// Giver is the side that has let go. The zero value has just offered.
type Giver struct {
	// Ends says that it does not stand by when the taker is done, because it is the one
	// that an operator went back from.
	Ends  bool
	Stage Stage
}

// Due returns what the taker may say now.
func (g *Giver) Due() []Kind { return due[g.Stage] }

// Hear returns what comes of a word of the taker that was due. What was not due is
// as if the taker were gone.
func (g *Giver) Hear(k Kind) Next {
	if !slices.Contains(g.Due(), k) {
		return g.Lost()
	}
	g.Stage = g.Stage.after(k)
	switch {
	case k == Failed:
		return TakeBack
	case k == Return:
		return TakeAgain
	case k == Leave || k == Done && g.Ends:
		return End
	}
	return Follow
}

// Lost returns what comes of the end of the connection: whoever coordinated has ended.
func (g *Giver) Lost() Next { return TakeBack }

// Hurries reports whether the giver waits for a limited time only: a taker that has
// committed serves, and is killed by nobody for being slow.
func (g *Giver) Hurries() bool { return g.Stage < StageCommitted }

// Taker is the side that coordinates once it has said Taken. The zero value has been
// offered everything.
type Taker struct {
	Stage Stage
	// Over says that the last word has been said: whatever comes next on the connection
	// is the other one's.
	Over bool
}

// Says reports whether k may be said now, and notes that it is.
func (t *Taker) Says(k Kind) bool {
	if t.Over || !slices.Contains(due[t.Stage], k) {
		return false
	}
	t.Stage = t.Stage.after(k)
	t.Over = k == Failed || k == Leave || k == Return
	return true
}
