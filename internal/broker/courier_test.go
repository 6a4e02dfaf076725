package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// What is remembered of parcels that are not taken is bounded, goes with them, and ends with the term.
func TestErrands(t *testing.T) {
	var e errands
	e.begin()
	parcels, out := make([]*Parcel, maxErrands+1), make([]Enqueued, maxErrands+1)
	kept := make([]int, len(parcels))
	for i := range parcels {
		parcels[i] = &Parcel{Request: task.ID{1, byte(i >> 8), byte(i)}} // #nosec G115 -- cut on purpose
		out[i].Err, kept[i] = errors.New("read tcp: reset"), i
	}
	out[1].Err = task.Unavailable(time.Second, "shard 7 has no leader")
	for range 3 {
		e.done(parcels, out, kept)
	}
	for i, want := range map[int]engine.Carried{0: {Tries: 3, Error: "its shard did not answer"}, 1: {Tries: 3, Error: "shard 7 has no leader"}, maxErrands: {}} {
		if got := e.of(parcels[i].Request); got != want {
			t.Errorf("parcel %d: %+v, want %+v", i, got, want)
		}
	}
	e.done(parcels[:2], out, []int{1})
	e.done(parcels[maxErrands:], out, []int{0}) // there is room now
	for i, want := range map[int]int64{0: 0, 1: 4, maxErrands: 1} {
		if got := e.of(parcels[i].Request).Tries; got != want {
			t.Errorf("then parcel %d has %d tries, want %d", i, got, want)
		}
	}
	if e.begin(); e.of(parcels[1].Request) != (engine.Carried{}) {
		t.Error("another term knows of tries")
	}
}
