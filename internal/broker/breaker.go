package broker

import (
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/actions"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/verb"
)

// BreakersOf identifies the breaker of a task type in a queue's partition; "" stands for the breakers of all its types.
type BreakersOf struct {
	OnQueue
	Type string
	Authored
}

// BreakersClosed reports how many breakers were not closed before.
type BreakersClosed struct {
	Closed int
	Stamped
}

// CloseBreakers closes breakers by hand. Running it twice is harmless: a breaker that has opened again in the meantime is closed
// again, as the operator asked.
var CloseBreakers = changes(verb.Rule{Name: "close-breakers", Idempotent: true}, func(round *engine.Round,
	q *BreakersOf) (out BreakersClosed, err error) {
	out.Closed, err = actions.CloseBreakers(round, q.By, q.Namespace, q.Queue, q.Type)
	return out, err
})

// maxBreakersLogged bounds the log lines of one round: a change of settings may close thousands.
const maxBreakersLogged = 100

// logBreakers logs the breakers that have opened and closed.
func (r *replica) logBreakers(changes []breaker.Change) {
	for i := range changes[:min(len(changes), maxBreakersLogged)] {
		c := &changes[i]
		log := r.log.With("namespace", c.Namespace, "queue", c.Queue, "type", c.Type, "attempts", c.Attempts, "failed", c.Failed,
			"window", c.Window, "error", c.Error)
		switch {
		case c.Closed == "":
			log.Warn("breaker opened", "until", c.Until.Time(), "times", c.Opened)
		default:
			log.Info("breaker closed", "by", string(c.Closed), "open_since", c.Since.Time().Format(time.RFC3339))
		}
	}
	if more := len(changes) - maxBreakersLogged; more > 0 {
		r.log.Warn("more breakers opened or closed", "count", more)
	}
}
