package handover

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Protocol is the version of what two supervisors say to each other.
const Protocol = 1

// Terms are the numbers of a binary that the other one must have, too: of its
// protocols, and of the layout of each kind of shared memory.
type Terms map[string]uint32

// String returns the numbers in the order of their names, as "name=number ...".
func (t Terms) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, t[name]))
	}
	return strings.Join(parts, " ")
}

// ParseTerms is the inverse of String.
func ParseTerms(s string) (Terms, error) {
	t := make(Terms)
	for f := range strings.FieldsSeq(s) {
		name, number, ok := strings.Cut(f, "=")
		n, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q is no number of a binary, such as directory=3", f)
		}
		t[name] = uint32(n)
	}
	return t, nil
}

// TermsError says in what two binaries differ.
type TermsError struct{ Differ []string }

// Error names each number that differs and a remedy.
func (e *TermsError) Error() string {
	return fmt.Sprintf("the two binaries cannot share memory (%s; compare dnsapp version --handover): stop the old one and start the new one", strings.Join(e.Differ, ", "))
}

// Agree returns nil or a *TermsError. mine are those of the process that asks.
func (t Terms) Agree(theirs Terms) error {
	var differ []string
	names := maps.Clone(t)
	maps.Copy(names, theirs)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if t[name] != theirs[name] { // an unknown one is 0
			differ = append(differ, fmt.Sprintf("%s: %d here, %d there", name, t[name], theirs[name]))
		}
	}
	if differ == nil {
		return nil
	}
	return &TermsError{Differ: differ}
}

// Place is where a process is. Sockets, clocks and pids mean the same to two
// processes only if they are at the same place; and the kernel lets sockets of one
// user alone share an address.
type Place struct {
	UID  uint32 `json:"uid"`
	Net  uint64 `json:"net"`  // network namespace
	Time uint64 `json:"time"` // time namespace, 0: this kernel has none
	PID  uint64 `json:"pid"`  // pid namespace
}

// Here returns the place of this process.
func Here() (Place, error) {
	p := Place{UID: uint32(os.Geteuid())}
	for name, to := range map[string]*uint64{"net": &p.Net, "time": &p.Time, "pid": &p.PID} {
		var st unix.Stat_t
		err := unix.Stat("/proc/self/ns/"+name, &st)
		switch {
		case err == nil:
			*to = st.Ino
		case name != "time": // before Linux 5.6
			return p, fmt.Errorf("reading the %s namespace: %w", name, err)
		}
	}
	return p, nil
}

// Agree returns nil, or an error that says what differs and what to do. p is the
// place of the supervisor that has the instance.
func (p Place) Agree(other Place) error {
	switch {
	case p.UID != other.UID:
		return fmt.Errorf("the supervisor that has the instance runs as user id %d, the one that wants it as %d: sockets cannot change hands between users; start it as the same user", p.UID, other.UID)
	case p.Net != other.Net:
		return errors.New("the two supervisors are not in the same network namespace: the sockets of one are of no use to the other; start it in the same one")
	case p.Time != other.Time:
		return errors.New("the two supervisors are not in the same time namespace: their clocks differ; start it in the same one")
	case p.PID != other.PID:
		return errors.New("the two supervisors are not in the same pid namespace: the workers of one cannot be watched by the other; start it in the same one (in containers: share the process namespace)")
	}
	return nil
}
