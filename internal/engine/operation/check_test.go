package operation

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/checktest"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// The counts of an operation must add up, and its times must fit its state.
func TestCheckOperations(t *testing.T) {
	counts := func(matched, done, failed, skipped int64) Tally {
		return Tally{Matched: matched, Done: done, Failed: failed, Skipped: []Skipped{{task.SkipSame, skipped}}}
	}
	for _, c := range []struct {
		name string
		o    Operation
		want string
	}{
		{"running", Operation{State: Running, Tally: counts(6, 3, 2, 1)}, ""},
		{"about to be paused", Operation{State: Running, Stopping: Paused}, ""},
		{"paused", Operation{State: Paused, PausedAt: 5, Tally: counts(6, 3, 2, 1)}, ""},
		{"done", Operation{State: Done, EndedAt: 5, Tally: counts(6, 3, 2, 1)}, ""},
		{"more than matched", Operation{State: Running, Tally: counts(5, 3, 2, 1)}, "5 tasks matched, 3 done, 2 failed, 1 skipped"},
		{"fewer than matched", Operation{State: Running, Tally: counts(7, 3, 2, 1)}, "7 tasks matched"},
		{"some are on their way", Operation{State: Running, Spec: Spec{Action: task.Move}, Tally: counts(7, 3, 2, 1)}, ""},
		{"more than matched are moved", Operation{State: Running, Spec: Spec{Action: task.Move}, Tally: counts(5, 3, 2, 1)},
			"5 tasks matched"},
		{"some of one that failed", Operation{State: Failed, EndedAt: 5, Spec: Spec{Action: task.Move}, Tally: counts(7, 3, 2, 1)}, ""},
		{"some of one that is done", Operation{State: Done, EndedAt: 5, Spec: Spec{Action: task.Move}, Tally: counts(7, 3, 2, 1)},
			"7 tasks matched"},
		{"running with an end", Operation{State: Running, EndedAt: 5}, "is running: ended 5"},
		{"running since a pause", Operation{State: Running, PausedAt: 5}, "is running: ended 0, paused 5"},
		{"paused never", Operation{State: Paused}, "is paused"},
		{"paused, about to stop", Operation{State: Paused, PausedAt: 5, Stopping: Aborted}, "is paused"},
		{"done, about to stop", Operation{State: Done, EndedAt: 5, Stopping: Aborted}, "is done"},
		{"in two shards, with one postponed", Operation{State: Running, Progress: Progress{Visit: Visit{Shard: 2},
			Postponed: []Visit{{Shard: 1, Open: true}, {Shard: 3}}, Last: 3}}, ""},
		{"paused with one postponed", Operation{State: Paused, PausedAt: 5, Progress: Progress{Visit: Visit{Shard: 2},
			Postponed: []Visit{{Shard: 1}}, Last: 2}}, ""},
		{"paused with an open step", Operation{State: Paused, PausedAt: 5, Progress: Progress{Visit: Visit{Shard: 2},
			Postponed: []Visit{{Shard: 1, Open: true}}, Last: 2}}, "postponed"},
		{"twice in the current shard", Operation{State: Running, Progress: Progress{Visit: Visit{Shard: 1}, Postponed: []Visit{{Shard: 1}},
			Last: 2}}, "postponed"},
		{"twice in a postponed shard", Operation{State: Running, Progress: Progress{Visit: Visit{Shard: 3}, Postponed: []Visit{{Shard: 1},
			{Shard: 2}, {Shard: 1}}, Last: 3}}, "postponed"},
		{"in a shard that is not begun", Operation{State: Running, Progress: Progress{Visit: Visit{Shard: 1},
			Postponed: []Visit{{Shard: 3}}, Last: 2}}, "postponed"},
		{"postponed with a maximum", Operation{State: Running, Spec: Spec{Max: 9}, Progress: Progress{Visit: Visit{Shard: 2},
			Postponed: []Visit{{Shard: 1}}, Last: 2}}, "postponed"},
		{"done never", Operation{State: Done}, "is done: ended 0"},
	} {
		w := checktest.New()
		w.Set(schema.IDKey(checktest.NS, schema.TableOperation, task.ID{1}), c.o.encode())
		check(w)
		t.Log(c.name)
		deadlines := 0
		if c.o.State.Ended() {
			deadlines = 1
		}
		w.Expect(t, c.want, deadlines)
	}
	w := checktest.New()
	for i := range byte(maxOperations) {
		w.Set(schema.IDKey(checktest.NS, schema.TableOperation, task.ID{1, i}), (&Operation{State: Running}).encode())
	}
	check(w)
	w.Expect(t, "", 0)
	w.Set(schema.IDKey(checktest.NS, schema.TableOperation, task.ID{2}), (&Operation{State: Paused, PausedAt: 5}).encode())
	check(w)
	w.Expect(t, "11 operations have not ended", 0)
	w = checktest.New()
	w.Set(schema.IDKey(checktest.NS, schema.TableOperation, task.ID{1}), []byte{0xff})
	check(w)
	w.Expect(t, "can't be read", 0)
}

// A shard's last step must count the tasks it has sent away.
func TestCheckSteps(t *testing.T) {
	id := task.ID{1}
	for _, c := range []struct {
		name  string
		row   []byte // of the last step; nil: there is none
		away  byte   // messages of the operation
		want  string
		index int
	}{
		{"none", nil, 0, "", 0},
		{"two are away", (&stepRow{step: 1, away: 2}).encode(), 2, "", 1},
		{"none is away", (&stepRow{step: 1}).encode(), 0, "", 1},
		{"one less", (&stepRow{step: 1, away: 2}).encode(), 1, "and 1 tasks are on their way", 0},
		{"one more", (&stepRow{step: 1, away: 2}).encode(), 3, "and 3 tasks are on their way", 0},
		{"no number", (&stepRow{}).encode(), 0, "the last step", 0},
		{"not to be read", append((&stepRow{step: 1}).encode(), 0xff), 0, "the last step", 0},
		{"no step", nil, 2, "2 tasks are on their way", 0},
	} {
		w := checktest.New()
		if c.row != nil {
			w.Set(schema.IDKey(checktest.NS, schema.TableStep, id), c.row)
		}
		for i := range c.away {
			m := &schema.Message{Request: task.ID{2, i}, From: schema.Origin{Operation: id}}
			w.Set(schema.IDKey(checktest.NS, schema.TableOutbox, m.Request), m.Encode())
		}
		other := &schema.Message{Request: task.ID{3}}
		w.Set(schema.IDKey(checktest.NS, schema.TableOutbox, other.Request), other.Encode())
		w.Set(schema.IDKey(checktest.NS, schema.TableOutbox, task.ID{4}), []byte{0xff}) // which another check finds
		check(w)
		t.Log(c.name)
		w.Expect(t, c.want, c.index)
	}
}
