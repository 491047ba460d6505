package control

import (
	"fmt"
	"strings"
	"time"
)

// Describe returns in words what d waits for, such as
// "3 UDP flows, newest idle 4.1 s; deadline in 31 s".
func (d *Drain) Describe() string {
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(d.Flows, "UDP flow, idle "+seconds(d.Idle.Duration()), "UDP flows, newest idle "+seconds(d.Idle.Duration()))
	add(d.TCP, "TCP connection", "TCP connections")
	add(d.HalfOpen, "half-open TCP connection", "half-open TCP connections")
	add(d.Queries, "query in flight", "queries in flight")
	add(d.QUIC, "QUIC connection", "QUIC connections")
	add(int(d.Unsent), "byte unsent", "bytes unsent")

	if len(parts) == 0 {
		return "nothing more"
	}
	what := strings.Join(parts, ", ")
	if d.DeadlineLeft <= 0 {
		return what + "; handing over what is left"
	}
	return what + "; deadline in " + seconds(d.DeadlineLeft.Duration())
}

// seconds formats d with a precision that suits its size: 0.4 s, 4.1 s, 31 s.
func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
