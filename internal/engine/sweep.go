package engine

import (
	"bytes"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
)

const (
	// sweepRest is the interval at which full buckets and idle breakers are forgotten. A deadline for each would cost as
	// much as the tokens do.
	sweepRest = time.Minute
	// sweepLimit bounds how many are forgotten in one round.
	sweepLimit = 1000
)

// sweepAt schedules the sweep of a queue's full buckets and idle breakers, unless one is scheduled.
func (h roundQueue) sweepAt(at store.Time) {
	if q := h.q; q.counts.Sweep == 0 {
		q.counts.Sweep = at
		h.touch()
		h.r.SetDeadline(at, schema.OnSweep, q.ns, []byte(q.name))
	}
}

// SweepLater schedules a sweep after sweepRest.
func (h roundQueue) SweepLater() { h.sweepAt(h.r.now.Add(sweepRest)) }

// sweep forgets full buckets, and breakers without an outcome for a whole window, so that idle keys and types cost nothing.
func sweep(r *Round, d schema.Deadline) {
	q := r.Queue(d.Namespace, string(d.Rest))
	if q == nil || q.counts.Sweep != d.At {
		return
	}
	in := q.in(r)
	q.counts.Sweep = 0
	in.touch()
	dropped, left := q.limits.Sweep(r, sweepLimit)
	if q.breakers != nil {
		n, some := q.breakers.Sweep(in, sweepLimit-dropped)
		dropped, left = dropped+n, left || some
	}
	switch {
	case dropped == sweepLimit:
		in.sweepAt(r.now + 1)
	case left:
		in.SweepLater()
	}
}

// tokenDue releases tasks that waited for a token.
func tokenDue(r *Round, d schema.Deadline) {
	name, key, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Damaged(schema.ErrDeadline(d.Rest))
	}
	q := r.Queue(d.Namespace, string(name))
	if q == nil || !q.limits.TokenDue(r, string(key), d.At) {
		return
	}
	q.in(r).SweepLater()
	q.lanes.Refresh(&r.lanes, string(key))
	q.in(r).Wake()
}
