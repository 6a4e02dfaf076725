package engine

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// begin takes what a task's claim uses.
func (r *Round) begin(q *Queue, id task.ID, x *schema.Exec) {
	f := q.lanes.Flow(x.Key, r.now)
	q.lanes.Begin(f, r.now)
	taken := false
	if x.Key != "" {
		x.Claim.Counted = true
		taken = q.limits.Begin(r, &f.Use, id, x)
	}
	if q.limits.TakeOfQueue(r, x) || taken {
		r.sweepLater(q)
	}
	q.lanes.BeginEnds(f, r.now)
	if q.breakers != nil {
		q.breakers.LetThrough(breakerHost{r, q}, id, x.Type)
	}
}

// end gives back what a claim has used.
func (r *Round) end(q *Queue, id task.ID, x *schema.Exec) {
	f := q.lanes.Flow(x.Key, r.now)
	if x.Key != "" && !q.limits.End(r, f.Key, &f.Use, id) {
		q.lanes.Forget(f)
		f = q.lanes.Flow("", r.now) // as readClaims counts it
	}
	changed := q.lanes.End(&r.lanes, f)
	if most := q.config.Settings.MaxRunning; changed || most > 0 && q.counts.Claimed == int64(most)-1 {
		r.wake(q)
	}
	r.quotas.RoomIn(q.space)
}

// Full says whether the queue runs as much as it may.
func (q *Queue) Full() bool {
	most := q.config.Settings.MaxRunning
	return most > 0 && q.counts.Claimed >= int64(most)
}

// mayRun says whether anything of the queue may run.
func (q *Queue) mayRun(now store.Time) bool {
	if q.config.Paused || q.Full() || q.space.Full() {
		return false
	}
	return q.limits.HasToken("", now)
}

// Weight is the weight of a key.
func (q *Queue) Weight(key string) float64 {
	return float64(max(q.config.Settings.RulesOf(key).Weight, 1))
}

// Limited says whether the queue has limits, or had.
func (q *Queue) Limited() bool { return q.config.Limited() }

// Held is why no task of a key may run that has so many claimed ones.
func (q *Queue) Held(key string, claims int, now store.Time) lanes.Hold {
	if key == "" {
		return 0
	}
	if _, held := q.config.HeldKey(key); held {
		return lanes.HeldByPause
	}
	if most := q.config.Settings.RulesOf(key).MaxRunning; most > 0 && claims >= most {
		return lanes.HeldByRunning
	}
	if !q.limits.HasToken(key, now) {
		return lanes.HeldByRate
	}
	if q.strict() && claims > 0 {
		return lanes.HeldByOrder
	}
	return 0
}

// tokensCame lets tasks run that waited for a token.
func (r *Round) tokensCame(d schema.Deadline) {
	name, key, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Must(schema.ErrDeadline(d.Rest))
	}
	q := r.Queue(d.Namespace, string(name))
	if q == nil || !q.limits.TokensCame(r, string(key), d.At) {
		return
	}
	r.sweepLater(q)
	q.lanes.Refresh(&r.lanes, string(key))
	r.wake(q)
}

// holdAll holds all keys and types back or lets them run, after the rules changed.
func (r *Round) holdAll(q *Queue) {
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
		r.holdType(q, typ)
	}
}

// holdType holds a type back, lets it run, or puts it on trial, as a pause of it and its breaker say.
func (r *Round) holdType(q *Queue, typ string) {
	_, paused := q.config.HeldType(typ)
	open, try := false, false
	if b := q.breakers.Of(typ); b != nil {
		open, try = b.State != breaker.Closed, b.Tries() && !paused
	}
	q.lanes.SetType(&r.lanes, typ, paused || open, try)
	r.readLater(q)
}

// heldTasks counts the ready tasks that may not run now.
func (q *Queue) heldTasks(now store.Time) (n int64) {
	if !q.mayRun(now) {
		return q.counts.Ready[0] + q.counts.Ready[1] + q.counts.Ready[2]
	}
	return q.counts.Parked + q.lanes.HeldTasks()
}

// readClaims finds which tasks of keys are claimed. It comes before the lanes.
func (r *Round) readClaims(q *Queue) {
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

// Claims are the claimed tasks of a key.
func (q *Queue) Claims(key string) limit.Claims {
	if f := q.lanes.Known(key); f != nil && key != "" {
		return f.Use
	}
	return limit.Claims{}
}

// wake lets waiting claims look at a queue again.
func (r *Round) wake(q *Queue) { r.Woken = append(r.Woken, Woken{q.ns, q.name}) }
