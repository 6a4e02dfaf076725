package engine

import (
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/task"
)

// queueIn is a queue in a round that changes it. To the queue's breakers it is their host.
type queueIn struct {
	r *Round
	q *Queue
}

func (q *Queue) in(r *Round) queueIn { return queueIn{r, q} }

// Wake lets waiting claims look at the queue again.
func (h queueIn) Wake() { h.r.Woken = append(h.r.Woken, Woken{h.q.ns, h.q.name}) }

// touch has the round write the queue's counters.
func (h queueIn) touch() {
	if !h.q.dirty {
		h.q.dirty = true
		h.r.queues = append(h.r.queues, h.q)
	}
}

// holdAll holds all keys and types back or lets them run, after the rules changed.
func (h queueIn) holdAll() {
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

// Hold holds a type back, lets it run, or puts it on trial, as a pause of it and its breaker say.
func (h queueIn) Hold(typ string) {
	q := h.q
	_, paused := q.config.HeldType(typ)
	open, try := false, false
	if b := q.breakers.Of(typ); b != nil {
		open, try = b.State != breaker.Closed, b.Tries() && !paused
	}
	q.lanes.SetType(&h.r.lanes, typ, paused || open, try)
	h.readLater()
}

// readClaims finds which tasks of keys are claimed. It comes before the lanes.
func (h queueIn) readClaims() {
	r, q := h.r, h.q
	keyed := 0
	q.limits.Read(r.tx, func(key string, id task.ID, named bool) {
		f := q.lanes.Flow(key, r.now)
		if named {
			f.Use.Named = append(f.Use.Named, id)
		} else {
			f.Use.AddOther(id)
		}
		f.Running++
		keyed++
	})
	if rest := int(q.counts.Claimed) - keyed; rest > 0 {
		q.lanes.Flow("", r.now).Running = rest
	}
}
