package engine

import (
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Position finds a task of a queue that waits in the order of claims. It changes nothing, and holds until the round writes.
func (r *Round) Position(q *Queue, x *schema.Exec) *lanes.Position {
	return r.lanes.Position(q.lanes, x)
}

// Counts are the numbers of the queue's tasks by state, which must not be changed.
func (q *Queue) Counts() *schema.Counts { return &q.counts }

// Breaker is the breaker of a type; nil: the type has none, or nothing was heard of it lately.
func (q *Queue) Breaker(typ string) *breaker.Breaker { return q.breakers.Of(typ) }

// NextToken says whether the rate of a key, or for "" that of the queue, keeps tasks from running now, and until when.
func (q *Queue) NextToken(key string, now store.Time) (until store.Time, empty bool) {
	return q.limits.NextToken(key, now)
}

// Space says how the namespace stands in this shard, and whether it runs as much as it may.
func (q *Queue) Space() (s task.Space, full bool) { return q.space.Info(), q.space.Full() }

// StaleRows are rows of claimed tasks that are not.
func (q *Queue) StaleRows() [][]byte { return q.limits.Stale() }

// ClaimedTasks are claimed tasks of a queue, found among up to most tasks that this leader has in memory.
func (r *Round) ClaimedTasks(q *Queue, most int) (ids []task.ID) {
	return r.l.hot.Claimed(q.ns, q.name, most)
}
