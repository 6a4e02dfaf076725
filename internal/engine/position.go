package engine

import (
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Position returns the place of a waiting task in the order of claims. It changes nothing, and is valid until the round writes.
func (r *Round) Position(q *Queue, x *schema.Exec) *lanes.Position {
	return r.lanes.Position(q.lanes, x)
}

// Counts returns the numbers of the queue's tasks by state. They must not be changed.
func (q *Queue) Counts() *schema.Counts { return &q.counts }

// Breaker returns the breaker of a type; nil: the type has none, or no recent outcomes.
func (q *Queue) Breaker(typ string) *breaker.Breaker { return q.breakers.Of(typ) }

// NextToken reports whether the rate limit of a key, or of the queue if key is "", keeps tasks from running now, and until when.
func (q *Queue) NextToken(key string, now store.Time) (until store.Time, empty bool) {
	return q.limits.NextToken(key, now)
}

// Space returns what the namespace uses in this shard, and whether its running tasks have reached their limit.
func (q *Queue) Space() (s task.Space, full bool) { return q.space.Info(), q.space.Full() }

// StaleRows returns rows that list tasks as claimed that are not.
func (q *Queue) StaleRows() [][]byte { return q.limits.Stale() }

// ClaimedTasks returns claimed tasks of a queue, found among up to most tasks that this leader has in memory.
func (r *Round) ClaimedTasks(q *Queue, most int) (ids []task.ID) {
	return r.l.hot.Claimed(q.ns, q.name, most)
}
