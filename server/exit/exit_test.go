package exit

import (
	"errors"
	"fmt"
	"testing"
)

func TestOf(t *testing.T) {
	cause := errors.New("cause")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, Done},
		{cause, Failed},
		{With(Refused, cause), Refused},
		{fmt.Errorf("outer: %w", With(Unreachable, cause)), Unreachable},
		{errors.Join(cause, With(Usage, cause)), Usage},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("Of(%v) = %d, want %d", c.err, got, c.want)
		}
	}
}

func TestWith(t *testing.T) {
	cause := errors.New("cause")
	if err := With(Refused, cause); err.Error() != "cause" || !errors.Is(err, cause) {
		t.Errorf("With changed %v", err)
	}
	if With(Usage, nil) != nil {
		t.Error("With makes an error of nil")
	}
}
