package engine

import (
	"bytes"
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
func (h queueIn) sweepAt(at store.Time) {
	if q := h.q; q.counts.Sweep == 0 {
		q.counts.Sweep = at
		h.touch()
		h.r.SetDeadline(at, schema.OnSweep, q.ns, []byte(q.name))
	}
}

// SweepLater is sweepAt for what is to be forgotten when it has rested.
func (h queueIn) SweepLater() { h.sweepAt(h.r.now.Add(sweepRest)) }

// sweep forgets full buckets and breakers of which nothing was heard for a window: idle keys and types cost nothing.
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

// tokensCame lets tasks run that waited for a token.
func tokensCame(r *Round, d schema.Deadline) {
	name, key, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Must(schema.ErrDeadline(d.Rest))
	}
	q := r.Queue(d.Namespace, string(name))
	if q == nil || !q.limits.TokensCame(r, string(key), d.At) {
		return
	}
	q.in(r).SweepLater()
	q.lanes.Refresh(&r.lanes, string(key))
	q.in(r).Wake()
}
