// Package grace tells when nobody can still be using what was replaced.
//
// Invariant: when Domain.Wait returns, every reader that could have got hold of
// something before Wait was called has let go of it since. So the order "publish
// the new, Wait, take the old away" is safe, and readers pay next to nothing.
//
// There are two kinds of reader. A Lane is a loop that holds nothing at its
// boundary; it calls Pass there, which is one load of a word that hardly ever
// changes. Anybody else brackets each use by Enter and Exit:
//
//	lane                          goroutine                 writer
//	l.Pass()                      s := d.Enter()            current.Store(new)
//	p := current.Load()           p := current.Load()       d.Wait(ctx)
//	... use p ...                 ... use p ...             old.Close()
//	l.Pass()                      s.Exit()
//
// The domain counts epochs. Wait begins a new one and waits until every lane has
// passed a boundary in it and everybody who entered in the one before has left.
// Those who enter meanwhile find the new value and hold nobody up.
package grace
