package load

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// maxErrors bounds the errors that a report keeps; the counts are of all.
const maxErrors = 8

// Report is the account of a run.
type Report struct {
	Offered   uint64 // requests that were due
	Sent      uint64 // of them, those that the kernel took
	Skipped   uint64 // of them, those not sent: the generator fell behind, or the kernel refused
	Answered  uint64 // requests with an answer
	Duplicate uint64 // answers to an answered request
	Stray     uint64 // answers to no request
	Malformed uint64 // answers that are not right (also in Answered)
	Reordered uint64 // answers that came after a later one of their flow

	KernelDrops uint64 // answers that the generator's own socket buffers dropped

	// Of connections.
	Connected   uint64 // connections made
	Refused     uint64 // attempts that failed
	CutOff      uint64 // connections that ended with requests open
	ServerClose uint64 // connections that the server ended

	Tags    map[Tag]uint64 // answers by who gave them
	Latency Histogram      // from request to answer
	Silence time.Duration  // longest time without an answer while one was due
	Elapsed time.Duration  // from the first request to the stop
	Errors  []error        // the first few
}

func (r *Report) init() { r.Tags = map[Tag]uint64{} }

func (r *Report) clone() Report {
	c := *r
	c.Tags, c.Errors = maps.Clone(r.Tags), slices.Clone(r.Errors)
	return c
}

func (r *Report) fail(err error) {
	if len(r.Errors) < maxErrors {
		r.Errors = append(r.Errors, err)
	}
}

// Lost is how many requests had no answer.
func (r *Report) Lost() uint64 { return r.Sent - r.Answered }

// Behind reports whether the generator failed to make the load it was asked
// for: over 1% of what was due was not sent.
func (r *Report) Behind() bool { return r.Skipped*100 > r.Offered }

// Epochs returns the number of answers per generation.
func (r *Report) Epochs() map[uint32]uint64 {
	m := map[uint32]uint64{}
	for t, n := range r.Tags {
		m[t.Epoch] += n
	}
	return m
}

// Astray is how many answers came from another generation than epoch.
func (r *Report) Astray(epoch uint32) uint64 {
	var n uint64
	for t, c := range r.Tags {
		if t.Epoch != epoch {
			n += c
		}
	}
	return n
}

// Exact returns nil where every request was answered once and rightly. What the
// generator's own queue dropped makes the run void, not the server guilty, and
// is named as such.
func (r *Report) Exact() error {
	var errs []error
	if r.Sent == 0 {
		errs = append(errs, errors.New("nothing was sent"))
	}
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{r.Lost(), "lost"},
		{r.Duplicate, "answered twice"},
		{r.Stray, "stray"},
		{r.Malformed, "malformed"},
		{r.KernelDrops, "dropped by the generator's own kernel queue"},
		{r.Refused, "connection attempts failed"},
		{r.CutOff, "connections cut off"},
	} {
		if c.n != 0 {
			errs = append(errs, fmt.Errorf("%d %s", c.n, c.what))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%v: %w", r, errors.Join(append(errs, r.Errors...)...))
}

// Add adds the counts of another report.
func (r *Report) Add(o Report) {
	if r.Tags == nil {
		r.init()
	}
	r.Offered += o.Offered
	r.Sent += o.Sent
	r.Skipped += o.Skipped
	r.Answered += o.Answered
	r.Duplicate += o.Duplicate
	r.Stray += o.Stray
	r.Malformed += o.Malformed
	r.Reordered += o.Reordered
	r.KernelDrops += o.KernelDrops
	r.Connected += o.Connected
	r.Refused += o.Refused
	r.CutOff += o.CutOff
	r.ServerClose += o.ServerClose
	for t, n := range o.Tags {
		r.Tags[t] += n
	}
	r.Latency.Merge(&o.Latency)
	r.Silence = max(r.Silence, o.Silence)
	r.Elapsed = max(r.Elapsed, o.Elapsed)
	for _, err := range o.Errors {
		r.fail(err)
	}
}

// String is one line with what is not zero.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sent %d, answered %d", r.Sent, r.Answered)
	for _, c := range []struct {
		name string
		n    uint64
	}{
		{"lost", r.Lost()},
		{"duplicate", r.Duplicate},
		{"stray", r.Stray},
		{"malformed", r.Malformed},
		{"reordered", r.Reordered},
		{"skipped", r.Skipped},
		{"own kernel drops", r.KernelDrops},
		{"connected", r.Connected},
		{"refused", r.Refused},
		{"cut off", r.CutOff},
		{"closed by the server", r.ServerClose},
	} {
		if c.n != 0 {
			fmt.Fprintf(&b, ", %s %d", c.name, c.n)
		}
	}
	epochs := r.Epochs()
	for _, e := range slices.Sorted(maps.Keys(epochs)) {
		fmt.Fprintf(&b, ", epoch %d: %d", e, epochs[e])
	}
	fmt.Fprintf(&b, "; %.0f/s, p50 %v, p99 %v, longest silence %v", float64(r.Sent)/max(r.Elapsed.Seconds(), 1e-9),
		r.Latency.Quantile(0.5), r.Latency.Quantile(0.99), r.Silence.Round(10*time.Microsecond))
	if r.Behind() {
		b.WriteString("; THE GENERATOR FELL BEHIND")
	}
	return b.String()
}

// Histogram counts durations in buckets of 1/16 of their power of two: a
// quantile is right to 6%.
type Histogram struct {
	n [64 * subBuckets]uint64
}

const subBuckets = 16

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < subBuckets {
		return int(v)
	}
	exp := bits.Len64(v) - 5 // v>>exp is in [16, 32)
	return exp*subBuckets + int(v>>exp)
}

// upper is the highest duration in bucket i.
func upper(i int) time.Duration {
	if i < 2*subBuckets {
		return time.Duration(i)
	}
	exp := i/subBuckets - 1
	return time.Duration((uint64(i%subBuckets+subBuckets)+1)<<exp - 1)
}

// Add counts d.
func (h *Histogram) Add(d time.Duration) { h.n[bucketOf(d)]++ }

// Merge adds the counts of o.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.n {
		h.n[i] += n
	}
}

// Since returns what was added to h after earlier was a copy of it.
func (h *Histogram) Since(earlier *Histogram) (d Histogram) {
	for i, n := range h.n {
		d.n[i] = n - earlier.n[i]
	}
	return d
}

// Count is how many durations were added.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.n {
		n += c
	}
	return n
}

// Quantile returns a duration that the fraction q of all did not exceed, 0
// where there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.Count()))
	var seen uint64
	for i, c := range h.n {
		seen += c
		if c != 0 && seen > min(rank, h.Count()-1) {
			return upper(i)
		}
	}
	return 0
}
