package schema

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Tick is an entry in the history of a schedule: the outcome of one tick, or of several that were skipped for one reason.
type Tick struct {
	Seq     uint64
	Planned store.Time // the planned time; of several ticks that of the first
	Until   store.Time // of several ticks that of the last; 0: it is one tick
	Count   int        // how many ticks; MaxCount: that many or more
	At      store.Time // when it was decided
	Outcome TickOutcome
	Reason  string // why it was skipped
	// Task is the tick's task, or for a tick skipped because of overlap, the running task. Zero: there is none, or it is
	// on its way to another shard.
	Task task.ID
	// Request is the request id of a trigger.
	Request task.ID
}

// Late returns how much later than planned the tick was decided.
func (t *Tick) Late() time.Duration {
	if t.Planned == 0 {
		return 0
	}
	return t.At.Sub(t.Planned)
}

// TickOutcome is the outcome of a tick. The values are stored.
type TickOutcome byte

// Outcomes of a tick.
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
