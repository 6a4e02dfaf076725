package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/task"
)

// QueueInfo describes the state of a queue in one shard.
type QueueInfo struct {
	Config                                       task.QueueConfig
	Scheduled, Claimed, Retrying, Dead, Poisoned int64
	Ready                                        [3]int64 // by priority, high first
	Held                                         int64    // of the ready: blocked by a limit or a pause
	OldestReady                                  time.Duration
	Breakers                                     []breaker.Info // not closed: up to 100, the longest open first
	BreakersOpen                                 int            // all that are not closed
}

// DescribeQueue returns the state of a queue.
func DescribeQueue(r *Round, ns, name string) (QueueInfo, error) {
	q := r.Queue(ns, name)
	if q == nil {
		return QueueInfo{}, task.NotFound("queue", name)
	}
	c := q.counts
	i := QueueInfo{Config: q.config, Scheduled: c.Scheduled, Claimed: c.Claimed, Retrying: c.Retrying, Dead: c.Dead,
		Poisoned: c.Poisoned, Ready: c.Ready}
	i.Held = q.heldTasks(r.now)
	i.Breakers, i.BreakersOpen = q.breakers.NotClosed(&q.config.Settings)
	for _, p := range task.Priorities {
		if since, some := q.lanes.Oldest(&r.lanes, p); some {
			i.OldestReady = max(i.OldestReady, r.now.Sub(since))
		}
	}
	return i, nil
}
