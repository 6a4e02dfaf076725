package engine

import (
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/store"
)

// MaxRunning returns how many tasks of the queue may run in this shard at a time.
func (q *Queue) MaxRunning() int64 { return q.own.MaxRunning() }

// mayRun reports whether any task of the queue may run.
func (q *Queue) mayRun(now store.Time) bool {
	if q.config.Paused || q.own.Full() || q.space.Full() {
		return false
	}
	return q.limits.HasToken("", now)
}

// Weight returns the weight of a key.
func (q *Queue) Weight(key string) float64 {
	return float64(max(q.config.Settings.RulesOf(key).Weight, 1))
}

// Held returns why no further task of a key may run while it has those claims; 0: one may.
func (q *Queue) Held(key string, claims *limit.Claims, now store.Time) lanes.Hold {
	if key == "" {
		return 0
	}
	if _, held := q.config.HeldKey(key); held {
		return lanes.HeldByPause
	}
	if most := q.config.Settings.RulesOf(key).MaxRunning; most > 0 && claims.Count() >= most {
		return lanes.HeldByRunning
	}
	if !q.limits.HasToken(key, now) {
		return lanes.HeldByRate
	}
	if q.strict() && claims.Count() > claims.Yielding {
		return lanes.HeldByOrder
	}
	return 0
}

// heldTasks returns the number of ready tasks that must not run now.
func (q *Queue) heldTasks(now store.Time) (n int64) {
	if !q.mayRun(now) {
		return q.counts.Ready[0] + q.counts.Ready[1] + q.counts.Ready[2]
	}
	return q.counts.Parked + q.lanes.HeldTasks()
}

// Claims returns the claims of a key.
func (q *Queue) Claims(key string) limit.Claims {
	if f := q.lanes.Known(key); f != nil && key != "" {
		return f.Use
	}
	return limit.Claims{}
}
