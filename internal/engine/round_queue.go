package engine

import (
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// roundQueue is a queue within a round that changes it. It is the host of the queue's breakers.
type roundQueue struct {
	r *Round
	q *Queue
}

func (q *Queue) in(r *Round) roundQueue { return roundQueue{r, q} }

// Wake makes waiting claims look at the queue again.
func (h roundQueue) Wake() { h.r.Woken = append(h.r.Woken, Woken{h.q.ns, h.q.name}) }

// touch makes the round write the queue's counters.
func (h roundQueue) touch() {
	if !h.q.dirty {
		h.q.dirty = true
		h.r.queues = append(h.r.queues, h.q)
	}
}

// holdAll holds back or releases all keys and types, after the rules changed.
func (h roundQueue) holdAll() {
	r, q := h.r, h.q
	var keys []string
	types := q.lanes.HeldTypes()
	for _, h := range q.config.Holds {
		if h.Type != "" {
			types = append(types, h.Type)
		} else {
			keys = append(keys, h.Key)
		}
	}
	q.lanes.FollowRules(&r.lanes, keys)
	for _, typ := range types {
		h.Hold(typ)
	}
}

// Hold holds a type back, releases it, or lets it run on trial, according to its pause and its breaker.
func (h roundQueue) Hold(typ string) {
	q := h.q
	_, paused := q.config.HeldType(typ)
	open, try := false, false
	if b := q.breakers.Of(typ); b != nil {
		open, try = b.State != breaker.Closed, b.Tries() && !paused
	}
	q.lanes.SetType(&h.r.lanes, typ, paused || open, try)
	h.readLater()
}

// readClaims reads which tasks of keys are claimed. It must run before the lanes are read.
func (h roundQueue) readClaims() {
	r, q := h.r, h.q
	keyed := 0
	q.limits.Read(r.tx, func(id task.ID, x *schema.Exec, named bool) {
		f := q.lanes.Flow(x.Key, r.now)
		f.Use.Add(id, x, named)
		f.Running++
		keyed++
	})
	if rest := int(q.counts.Claimed) - keyed; rest > 0 {
		q.lanes.Flow("", r.now).Running = rest
	}
}
