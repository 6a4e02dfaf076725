package schedule

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Reasons for skipping a tick, besides the codes of refused enqueues.
const (
	SkippedMissed  = "missed"
	SkippedPaused  = "paused"
	SkippedOverlap = "overlap"
	SkippedUnique  = "unique" // another task holds the unique key of the schedule's task
)

const (
	// HistoryLength is how many entries a history has at most.
	HistoryLength = 1000
	// MaxCount is the number up to which skipped ticks are counted.
	MaxCount = 100
)

// oldestTick returns the number of the oldest entry of a history.
func oldestTick(newest uint64) uint64 {
	if newest <= HistoryLength {
		return 1
	}
	return newest - HistoryLength + 1
}

// note adds an entry to the history.
func note(r *engine.Round, ns, name string, c *progress, t schema.Tick) {
	c.seq++
	t.Seq, t.At = c.seq, r.Now()
	r.Tx().Set(schema.TickKey(ns, name, t.Seq), encodeTick(&t))
	if c.seq > HistoryLength {
		r.Tx().Delete(schema.TickKey(ns, name, c.seq-HistoryLength))
	}
	r.Ticked = append(r.Ticked, engine.Ticked{Namespace: ns, Schedule: name, Tick: t})
}

// History reads up to limit entries of a schedule's history, newest first, below a number; 0: from the newest.
func History(from store.Reader, ns, name string, below uint64, limit int) (ticks []*schema.Tick, err error) {
	_, c, ok := readSchedule(from, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if below == 0 || below > c.seq {
		below = c.seq + 1
	}
	for seq := below - 1; seq >= oldestTick(c.seq) && len(ticks) < limit; seq-- {
		if row, ok := from.Get(schema.TickKey(ns, name, seq)); ok {
			t := schema.Must(decodeTick(seq, row))
			ticks = append(ticks, t)
		}
	}
	return ticks, nil
}

// delivered records in the history the outcome of a tick whose task was sent to another shard.
func delivered(r *engine.Round, ns string, on *schema.Message, a engine.Accepted, refused *task.Error) (stays bool) {
	if on.From.Schedule == "" {
		return false
	}
	_, c, ok := schedule(r, ns, on.From.Schedule)
	if !ok || c.id != on.From.Plan || on.From.Tick < oldestTick(c.seq) {
		return false
	}
	key := schema.TickKey(ns, on.From.Schedule, on.From.Tick)
	row, ok := r.Tx().Get(key)
	if !ok {
		return false
	}
	t := schema.Must(decodeTick(on.From.Tick, row))
	t.Task = a.ID
	if a.KeyTaken {
		t.Outcome, t.Reason = schema.TickSkipped, skippedFor(on.Spec.Unique)
	}
	if refused != nil {
		t.Outcome, t.Reason = schema.TickSkipped, string(refused.Code)
	}
	r.Tx().Set(key, encodeTick(t))
	return false
}
