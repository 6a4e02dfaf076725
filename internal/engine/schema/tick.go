package schema

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Tick is an entry in the history of a schedule: what became of one tick, or of several that were skipped for one reason.
type Tick struct {
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

// Late is how much later than planned a tick was decided.
func (t *Tick) Late() time.Duration {
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
