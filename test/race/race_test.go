package race

import (
	"os"
	"testing"
)

// The run that calls itself the race detector's run is one.
func TestRaceDetectorIsOn(t *testing.T) {
	if wanted := os.Getenv("DNSAPP_WANT_RACE") != ""; wanted && !enabled {
		t.Fatal("this run is meant to be under the race detector but was not built with -race")
	}
}
