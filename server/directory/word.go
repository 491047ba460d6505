package directory

import (
	"fmt"
	"time"

	"github.com/dnsapp/dnsapp/server/mono"
)

// Word is the owner word: epoch:31 | park:1 | deadline:32. The deadline is
// mono.Millis at which a park lapses; since each park's deadline differs from
// every other's while anybody can remember it, it names the park. It is zero in
// a RUN word.
type Word uint64

// MaxEpoch is the largest epoch. At a reload a second it lasts 68 years.
const MaxEpoch = 1<<31 - 1

// Run returns the word that gives the wire to the generation with this epoch.
func Run(epoch uint32) Word { return Word(epoch) << 33 }

// Parked returns the word that stops every reader until deadline.
func Parked(epoch, deadline uint32) Word { return Run(epoch) | 1<<32 | Word(deadline) }

// Epoch returns the epoch of the rx owner.
func (w Word) Epoch() uint32 { return uint32(w >> 33) }

// IsPark reports whether w stops every reader.
func (w Word) IsPark() bool { return w>>32&1 != 0 }

// Deadline returns the mono.Millis at which the park lapses. Valid iff IsPark.
func (w Word) Deadline() uint32 { return uint32(w) }

// Lapsed reports whether w is a park whose deadline has passed at now.
func (w Word) Lapsed(now uint32) bool { return w.IsPark() && mono.Age(now, w.Deadline()) > 0 }

// String returns w for logs.
func (w Word) String() string {
	if w.IsPark() {
		return fmt.Sprintf("epoch %d parked until %d", w.Epoch(), w.Deadline())
	}
	return fmt.Sprintf("epoch %d", w.Epoch())
}

// Lease is how long a park lasts before the lanes take the wire back, should
// the supervisor die between park and flip.
const Lease = 50 * time.Millisecond
