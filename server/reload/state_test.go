package reload

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Status shows the state as JSON, in the words of the logs.
func TestStateJSON(t *testing.T) {
	var tr transcript
	tr.feed(ReloadRequested{ID: 1})
	tr.goOn("")
	tr.feed(ReloadRequested{ID: 2})
	tr.goOn("flipping")
	tr.feed(ReloadRequested{ID: 3, Mode: Restart})

	got, err := json.MarshalIndent(tr.s, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	const free = `{
			"stage": "free",
			"epoch": 0,
			"workers": 0,
			"up": 0,
			"await": 0,
			"signal": "none",
			"request": 0,
			"outcome": "done",
			"reason": ""
		}`
	want := `{
	"phase": "flipping",
	"mode": "graceful",
	"stop": "none",
	"return": "none",
	"active": {
		"slot": 0,
		"epoch": 1
	},
	"next": {
		"slot": 1,
		"epoch": 2
	},
	"request": 2,
	"pending": {
		"id": 3,
		"mode": "restart",
		"overlap": "finish-oldest"
	},
	"lapses": 0,
	"orders": 5,
	"await": 5,
	"slots": [
		{
			"stage": "active",
			"epoch": 1,
			"workers": 3,
			"up": 3,
			"await": 0,
			"signal": "none",
			"request": 0,
			"outcome": "done",
			"reason": ""
		},
		{
			"stage": "starting",
			"epoch": 2,
			"workers": 3,
			"up": 3,
			"await": 0,
			"signal": "none",
			"request": 0,
			"outcome": "done",
			"reason": ""
		},
		` + free + `,
		` + free + `
	]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The walks and transcripts have two workers; a generation may have 64.
func TestWorkerSet(t *testing.T) {
	for _, tt := range []struct {
		set  WorkerSet
		want string
	}{
		{0, "{}"},
		{AllWorkers(1), "{0}"},
		{AllWorkers(3) &^ OneWorker(1), "{0,2}"},
		{OneWorker(MaxWorkers - 1), "{63}"},
		{AllWorkers(MaxWorkers) &^ AllWorkers(MaxWorkers-2), "{62,63}"},
	} {
		if got := tt.set.String(); got != tt.want {
			t.Errorf("%#x: got %s, want %s", uint64(tt.set), got, tt.want)
		}
	}
	for i := range (OneWorker(5) | OneWorker(9)).All() {
		if i != 5 {
			t.Errorf("the loop goes on at %d", i)
		}
		break
	}
	if got, want := (Workers{1: AllWorkers(2), 3: OneWorker(4)}).String(), "1:{0,1} 3:{4}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
