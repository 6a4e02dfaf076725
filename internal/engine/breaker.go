package engine

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// roundQueue implements breaker.Host.

func (h roundQueue) Now() store.Time              { return h.r.now }
func (h roundQueue) Rule(typ string) task.Breaker { return h.q.config.Settings.BreakerOf(typ) }
func (h roundQueue) MayHave(typ string) bool      { return h.q.lanes.MayHave(typ) }

func (h roundQueue) Changed(c breaker.Change) {
	c.Namespace, c.Queue = h.q.ns, h.q.name
	h.r.Breakers = append(h.r.Breakers, c)
}

func (h roundQueue) SetDeadline(typ string, was, at store.Time) {
	if was != 0 {
		h.r.tx.Delete(schema.DeadlineKey(was, schema.OnBreaker, h.q.ns, schema.TypeRest(h.q.name, typ)))
	}
	if at != 0 {
		h.r.SetDeadline(at, schema.OnBreaker, h.q.ns, schema.TypeRest(h.q.name, typ))
	}
}

func (h roundQueue) Touch(typ string) { h.r.breakers = append(h.r.breakers, dirtyBreaker{h.q, typ}) }

type dirtyBreaker struct {
	q   *Queue
	typ string
}

// sealBreakers writes the rows of the breakers that the round changed.
func (r *Round) sealBreakers() {
	for _, d := range r.breakers {
		key := schema.BreakerKey(d.q.ns, d.q.name, d.typ)
		if b := d.q.breakers.Of(d.typ); b != nil {
			b.Dirty = false
			r.tx.Set(key, b.Encode())
		} else {
			r.tx.Delete(key)
		}
	}
	r.breakers = nil
}

// breakerDue handles the deadline of a breaker.
func breakerDue(r *Round, d schema.Deadline) {
	name, typ, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Damaged(schema.ErrDeadline(d.Rest))
	}
	if q := r.Queue(d.Namespace, string(name)); q != nil && q.breakers != nil {
		q.breakers.HoldEnds(q.in(r), string(typ), d.At)
	}
}

// readBreakers must run before the lanes are read, so that no task of a held type becomes visible.
func (h roundQueue) readBreakers() {
	q := h.q
	if !q.config.Settings.Breaks() {
		return
	}
	q.watchTypes()
	prefix := schema.QueueKey(q.ns, schema.TableBreaker, q.name)
	h.r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		b, err := breaker.Decode(string(k[len(prefix):]), v)
		b = schema.MustRow(k, b, err)
		if q.breakers.Add(b); b.State != breaker.Closed {
			h.Hold(b.Type)
		}
		return true
	})
}

// watchTypes starts tracking tasks by type, which breakers need.
func (q *Queue) watchTypes() {
	q.breakers = breaker.NewSet()
	q.lanes.WatchTypes(true)
}

// followBreakers applies changed rules to the breakers.
func (h roundQueue) followBreakers(was *task.Settings) {
	q := h.q
	now := &q.config.Settings
	if q.breakers == nil {
		if now.Breaks() {
			q.watchTypes()
		}
		return
	}
	if q.breakers.Follow(h, was); !now.Breaks() {
		q.breakers = nil
		q.lanes.WatchTypes(false)
	}
}

// CloseBreakers manually closes the breaker of a type, or all breakers of the queue if typ is "". It returns how many it closed.
func CloseBreakers(r *Round, ns, name, typ string) (n int, err error) {
	q := r.Queue(ns, name)
	if q == nil {
		return 0, task.NotFound("queue", name)
	}
	if q.breakers == nil {
		return 0, nil
	}
	return q.breakers.Close(q.in(r), typ), nil
}
