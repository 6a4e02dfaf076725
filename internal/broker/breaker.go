package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/task"
)

// CloseBreakers closes by hand the breaker of a type, or for "" all that a queue has in a shard. It says how many were not closed.
func (b *Broker) CloseBreakers(ctx context.Context, by task.Author, shardID uint32, ns, name, typ string) (int, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, Stamp{}, err
	}
	return change(ctx, r, func(round *engine.Round) (int, error) { return engine.CloseBreakers(round, by, ns, name, typ) })
}

// maxBreakersLogged bounds the lines of one round: a change of the settings may close thousands.
const maxBreakersLogged = 100

// logBreakers tells which breakers have opened and closed.
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
