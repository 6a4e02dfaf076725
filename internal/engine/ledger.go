package engine

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// LedgerEntry is an entry in the ledger of a schedule: what became of one tick, or of several that were skipped for one reason.
type LedgerEntry struct {
	Seq     uint64
	Planned store.Time // the tick; of several the first
	Until   store.Time // of several the last; 0: it is one
	Count   int        // how many; MaxCount: or more
	At      store.Time // when it was decided
	Outcome TickOutcome
	Reason  string // why it was skipped
	// Task is the tick's task. Of one that overlaps it is the task that runs. Zero: there is none, or it is on its way to another
	// shard.
	Task task.ID
	// Request is that of a trigger.
	Request task.ID
}

// Ticked is an entry that was added to the ledger of a schedule.
type Ticked struct {
	Namespace, Schedule string
	// Trace is the traceparent of the task that the tick made; "": it belongs to no trace, or there is no task.
	Trace string
	LedgerEntry
}

// Late is how much later than planned a tick was decided.
func (t *LedgerEntry) Late() time.Duration {
	if t.Planned == 0 {
		return 0
	}
	return t.At.Sub(t.Planned)
}

// TickOutcome says what became of a tick. The values are stored.
type TickOutcome byte

// What can become of a tick.
const (
	TickFired     TickOutcome = 1 + iota
	TickCaughtUp              // fired, after it was missed
	TickTriggered             // fired by an operator
	TickSkipped
)

var tickOutcomes = []string{TickFired: "fired", TickCaughtUp: "caught_up", TickTriggered: "triggered", TickSkipped: "skipped"}

func (o TickOutcome) String() string {
	if int(o) >= len(tickOutcomes) { // of a later release
		return fmt.Sprintf("outcome_%d", o)
	}
	return tickOutcomes[o]
}

// Why a tick is skipped, beside the codes of refusals.
const (
	SkippedMissed  = "missed"
	SkippedPaused  = "paused"
	SkippedOverlap = "overlap"
	SkippedUnique  = "unique" // another task holds the unique key that the schedule's task asks for
)

const (
	// ledgerLength is how many entries a ledger keeps.
	ledgerLength = 1000
	// MaxCount is how far skipped ticks are counted.
	MaxCount = 100
)

// oldestTick is the number of the oldest entry of a ledger.
func oldestTick(newest uint64) uint64 {
	if newest <= ledgerLength {
		return 1
	}
	return newest - ledgerLength + 1
}

// note adds an entry to the ledger.
func (r *Round) note(ns, name string, c *course, t LedgerEntry) {
	c.seq++
	t.Seq, t.At = c.seq, r.now
	r.tx.Set(schema.TickKey(ns, name, t.Seq), t.encode())
	if c.seq > ledgerLength {
		r.tx.Delete(schema.TickKey(ns, name, c.seq-ledgerLength))
	}
	r.Ticked = append(r.Ticked, Ticked{Namespace: ns, Schedule: name, LedgerEntry: t})
}

// ScheduleHistory reads up to limit entries of a schedule's ledger, newest first, below a number; 0: from the newest.
func ScheduleHistory(from store.Reader, ns, name string, below uint64, limit int) (ticks []*LedgerEntry, err error) {
	_, c, ok := readSchedule(from, ns, name)
	if !ok {
		return nil, task.NotFound("schedule", name)
	}
	if below == 0 || below > c.seq {
		below = c.seq + 1
	}
	for seq := below - 1; seq >= oldestTick(c.seq) && len(ticks) < limit; seq-- {
		if row, ok := from.Get(schema.TickKey(ns, name, seq)); ok {
			t, err := decodeTick(seq, row)
			schema.Must(err)
			ticks = append(ticks, t)
		}
	}
	return ticks, nil
}

// tickDelivered notes in the ledger what became of a tick whose task was sent to another shard.
func (r *Round) tickDelivered(ns string, on *OutboxMessage, a Accepted, refused *task.Error) {
	_, c, ok := r.schedule(ns, on.From.Schedule)
	if !ok || c.id != on.From.Plan || on.From.Tick < oldestTick(c.seq) {
		return
	}
	key := schema.TickKey(ns, on.From.Schedule, on.From.Tick)
	row, ok := r.tx.Get(key)
	if !ok {
		return
	}
	t, err := decodeTick(on.From.Tick, row)
	schema.Must(err)
	t.Task = a.ID
	if a.Met {
		t.Outcome, t.Reason = TickSkipped, skippedFor(on.Spec.Unique)
	}
	if refused != nil {
		t.Outcome, t.Reason = TickSkipped, string(refused.Code)
	}
	r.tx.Set(key, t.encode())
}
