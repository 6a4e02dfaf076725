package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

const (
	// sweepRest is how often full buckets and idle breakers are forgotten. A deadline for each would cost as much as the tokens do.
	sweepRest = time.Minute
	// sweepLimit bounds how many are forgotten in one round.
	sweepLimit = 1000
)

// sweepAt sets when the full buckets and idle breakers of a queue are forgotten, unless that is set.
func (r *Round) sweepAt(q *Queue, at store.Time) {
	if q.counts.Sweep == 0 {
		q.counts.Sweep = at
		r.touch(q)
		r.SetDeadline(at, schema.OnSweep, q.ns, []byte(q.name))
	}
}

// sweepLater is sweepAt for what is to be forgotten when it has rested.
func (r *Round) sweepLater(q *Queue) { r.sweepAt(q, r.now.Add(sweepRest)) }

// sweep forgets full buckets and breakers of which nothing was heard for a window: idle keys and types cost nothing.
func (r *Round) sweep(d schema.Deadline) {
	q := r.Queue(d.Namespace, string(d.Rest))
	if q == nil || q.counts.Sweep != d.At {
		return
	}
	q.counts.Sweep = 0
	r.touch(q)
	dropped, left := q.limits.Sweep(r, sweepLimit)
	if q.breakers != nil {
		n, some := q.breakers.Sweep(breakerHost{r, q}, sweepLimit-dropped)
		dropped, left = dropped+n, left || some
	}
	switch {
	case dropped == sweepLimit:
		r.sweepAt(q, r.now+1)
	case left:
		r.sweepLater(q)
	}
}
