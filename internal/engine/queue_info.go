package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/task"
)

// QueueInfo describes the state of a queue in one shard.
type QueueInfo struct {
	Scheduled, Claimed, Retrying, Dead, Poisoned int64
	Ready                                        [3]int64       // by priority, high first
	Held                                         int64          // of the ready: blocked by a limit or a pause
	OldestReady                                  time.Duration  // set by the caller of DescribeQueue, from query.OldestReady
	Breakers                                     []breaker.Info // not closed: up to 100, the longest open first
	BreakersOpen                                 int            // all that are not closed
}

// DescribeQueue returns the state of a queue, as far as it is in memory: a round waits for it.
func DescribeQueue(r *Round, ns, name string) (QueueInfo, error) {
	q := r.Queue(ns, name)
	if q == nil {
		return QueueInfo{}, task.NotFound("queue", name)
	}
	c := q.counts
	i := QueueInfo{Scheduled: c.Scheduled, Claimed: c.Claimed, Retrying: c.Retrying, Dead: c.Dead, Poisoned: c.Poisoned, Ready: c.Ready,
		Held: q.heldTasks(r.now)}
	i.Breakers, i.BreakersOpen = q.breakers.NotClosed(&q.config.Settings)
	return i, nil
}
