package counters

// Class is a kind of answer whose latency is counted by itself: an rcode that
// says how much work there was. Most rcodes share one.
type Class uint8

// The classes. They index the counter block: append only, and raise Layout.
const (
	ClassPlain    Class = iota // of a service without rcodes
	ClassNoError               // NOERROR
	ClassNXDomain              // NXDOMAIN
	ClassServFail              // SERVFAIL
	ClassRefused               // REFUSED
	ClassOther                 // any other rcode
	NumClasses
)

// classNames are the metric labels of the classes.
var classNames = [NumClasses]string{"none", "NOERROR", "NXDOMAIN", "SERVFAIL", "REFUSED", "other"}

// String returns the metric label of c.
func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "other"
}

// ClassOf returns the class of answers with this (extended) rcode.
func ClassOf(rcode uint16) Class {
	switch rcode {
	case 0:
		return ClassNoError
	case 2:
		return ClassServFail
	case 3:
		return ClassNXDomain
	case 5:
		return ClassRefused
	}
	return ClassOther
}

// LatencyBound returns the inclusive upper bound of latency bucket i in
// nanoseconds: 1 us, 2 us, 4 us ... about 0.52 s.
func LatencyBound(i int) int64 { return 1000 << i }

// LatencyID returns the counter of answers of a class that took ns nanoseconds.
func LatencyID(t Transport, c Class, ns int64) ID {
	i := ID(0)
	for i < NumLatency && ns > LatencyBound(int(i)) {
		i++
	}
	return LatencyFirst(t, c) + i
}

// LatencyFirst returns the counter of the first latency bucket of a class; the
// NumLatency others follow.
func LatencyFirst(t Transport, c Class) ID {
	return Latency + (ID(t)*ID(NumClasses)+ID(c))*(NumLatency+1)
}

// LatencyNsID returns the counter of the nanoseconds that all answers of a class
// took.
func LatencyNsID(t Transport, c Class) ID { return LatencyNs + ID(t)*ID(NumClasses) + ID(c) }
