package history

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
)

// queue is a small correct task queue of one shard: histories made with it must pass. It is written from the API's
// contract, and shares no code with the model.
type queue struct {
	shard  uint32
	rng    *rand.Rand
	index  uint64
	now    int64 // shard time, us
	led    int64 // when its leader was elected
	tasks  map[string]*qTask
	order  []*qTask
	byReq  map[string]*qTask
	claims map[string][]grant // by claim key
	ready  []*qTask           // some have left
	timers timers
	wrote  bool // in the current round
}

type qTask struct {
	id, queue          string
	payload            uint64
	state              string
	max                int
	fence              int64
	failures, crashes  int
	exhausted          int
	token              string
	until, due, lease  int64
	orphaned, repeated bool
	log                map[string]*qAttempt
	last               int // number of the last attempt that began
	listed             bool
}

type qAttempt struct {
	how   string // succeeded, failed, released, cancelled, lost
	then  string
	due   int64
	fence int64
}

type grant struct {
	t     *qTask
	fence int64
	until int64
}

const (
	qIndexStep = 1000 // room between entries for those that tests insert
	qGrace     = 15_000_000
)

func newQueue(shard uint32, rng *rand.Rand) *queue {
	return &queue{shard: shard, rng: rng, index: qIndexStep, tasks: map[string]*qTask{}, byReq: map[string]*qTask{},
		claims: map[string][]grant{}}
}

func (t *qTask) attempt() int { return t.failures + t.crashes + 1 }

func (t *qTask) ended() bool {
	return slices.Contains([]string{"succeeded", "discarded", "dead", "poisoned", "cancelled"}, t.state)
}

func (t *qTask) used() int { return t.failures + t.crashes - t.exhausted }

// timer is a time at which a task moves by itself.
type timer struct {
	at    int64
	t     *qTask
	state string
}

type timers []timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timers) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

func (q *queue) wait(t *qTask, state string, until int64) {
	t.state, t.due = state, until
	heap.Push(&q.timers, timer{until, t, state})
	q.wrote = true
}

func (q *queue) makeReady(t *qTask) {
	t.state, q.wrote = "ready", true
	if !t.listed {
		q.ready, t.listed = append(q.ready, t), true
	}
}

func (q *queue) close(t *qTask, how string) *qAttempt {
	a := &qAttempt{how: how, then: t.state, fence: t.fence}
	if t.state == "scheduled" || t.state == "retrying" {
		a.due = t.due
	}
	t.log[t.token] = a
	return a
}

// tick moves tasks whose time has come.
func (q *queue) tick() {
	for len(q.timers) > 0 && q.timers[0].at <= q.now {
		m := heap.Pop(&q.timers).(timer)
		t := m.t
		switch {
		case t.state != m.state:
		case m.state != "claimed":
			if t.due == m.at {
				q.makeReady(t)
			}
		case t.until == m.at:
			q.lose(t)
		}
	}
}

func (q *queue) lose(t *qTask) {
	if grace := q.led + min(t.lease, qGrace); q.led > 0 && q.now < grace {
		t.orphaned = t.until <= q.led
		t.until = grace
		heap.Push(&q.timers, timer{t.until, t, "claimed"})
		return
	}
	switch {
	case t.orphaned:
		q.makeReady(t)
	default:
		if t.crashes++; t.used() >= t.max {
			t.state, q.wrote = "dead", true
		} else {
			q.makeReady(t)
		}
	}
	q.close(t, "lost")
}

// run executes one call. The caller stamps the answer.
func (q *queue) run(r *Record) {
	t := q.tasks[r.Task]
	if r.Op != Enqueue && t == nil {
		r.Code, r.Reason = Refused, NotFound
		return
	}
	r.Code = OK
	switch r.Op {
	case Enqueue:
		q.enqueue(r)
	case Ack, Fail, Release, Extend:
		q.settle(t, r)
	case Cancel:
		q.cancel(t, r)
	case Retry:
		q.replay(t, r)
	case RunNow:
		switch t.state {
		case "scheduled", "retrying":
			q.makeReady(t)
		case "ready":
		default:
			r.wrong(t)
		}
	case Discard:
		switch {
		case t.state == "discarded":
		case !t.ended() && t.state != "claimed" || t.state == "dead" || t.state == "poisoned":
			t.state, q.wrote = "discarded", true
		default:
			r.wrong(t)
		}
	case Get:
		q.get(t, r)
	}
}

func (r *Record) wrong(t *qTask) { r.Code, r.Reason, r.State = Refused, WrongState, t.state }

func (q *queue) enqueue(r *Record) {
	t := q.byReq[r.RequestID]
	if t == nil && r.Key != "" {
		t = q.byReq["k"+r.Key]
	}
	if t != nil {
		if t.payload != r.Payload {
			r.Code, r.Reason = Refused, Conflict
			return
		}
		r.Task, r.State, r.Duplicate = t.id, t.state, true
		return
	}
	t = &qTask{id: fmt.Sprintf("s%d-t%d", q.shard, len(q.tasks)), queue: r.Queue, payload: r.Payload, max: r.MaxAttempts,
		log: map[string]*qAttempt{}}
	q.tasks[t.id], q.byReq[r.RequestID] = t, t
	q.order = append(q.order, t)
	if r.Key != "" {
		q.byReq["k"+r.Key] = t
	}
	if r.DelayUS > 0 {
		q.wait(t, "scheduled", q.now+r.DelayUS)
	} else {
		q.makeReady(t)
	}
	r.Task, r.State = t.id, t.state
}

// claim takes up to n tasks.
func (q *queue) claim(r *Record, n int, lease int64) (got []Record) {
	for _, g := range q.claims[r.ClaimKey] {
		if g.until > q.now && g.t.state == "claimed" && g.t.fence == g.fence {
			if !g.t.repeated {
				g.t.repeated, q.wrote = true, true
			}
			got = append(got, q.given(r, g.t))
		}
	}
	if len(got) > 0 {
		return got
	}
	var grants []grant
	for len(got) < n && len(q.ready) > 0 {
		t := q.ready[0]
		q.ready, t.listed = q.ready[1:], false
		if t.state != "ready" {
			continue
		}
		t.fence++
		t.state, t.token, t.lease, t.until = "claimed", fmt.Sprintf("%s.%d.%x", t.id, t.fence, q.rng.Uint32()), lease, q.now+lease
		t.orphaned, t.repeated, t.last, q.wrote = false, false, t.attempt(), true
		heap.Push(&q.timers, timer{t.until, t, "claimed"})
		grants = append(grants, grant{t, t.fence, t.until})
		got = append(got, q.given(r, t))
	}
	if len(got) > 0 {
		q.claims[r.ClaimKey] = grants
	}
	return got
}

func (q *queue) given(r *Record, t *qTask) Record {
	g := *r
	g.Code, g.Task, g.Token, g.Fence, g.Payload, g.Attempt, g.LeaseUntilUS = OK, t.id, t.token, t.fence, t.payload, t.attempt(), t.until
	return g
}

// takeBack releases claims whose answer was lost.
func (q *queue) takeBack(got []Record) {
	for i := range got {
		if t := q.tasks[got[i].Task]; t.state == "claimed" && t.token == got[i].Token && !t.repeated {
			q.makeReady(t)
			q.close(t, "released")
		}
	}
}

func (q *queue) settle(t *qTask, r *Record) {
	if t.state != "claimed" || t.token != r.Token {
		q.stale(t, r)
		return
	}
	q.wrote = true
	switch r.Op {
	case Ack:
		t.state = "succeeded"
		q.close(t, "succeeded")
	case Fail:
		q.fail(t, r)
		r.DueUS = q.close(t, "failed").due
	case Release:
		if r.DelayUS > 0 {
			q.wait(t, "scheduled", q.now+r.DelayUS)
		} else {
			q.makeReady(t)
		}
		r.DueUS = q.close(t, "released").due
	case Extend:
		t.until, t.orphaned = max(t.until, q.now+t.lease), false
		heap.Push(&q.timers, timer{t.until, t, "claimed"})
		r.LeaseUntilUS = t.until
	}
	r.State = t.state
}

func (q *queue) fail(t *qTask, r *Record) {
	switch r.Fall {
	case FallDead:
		t.failures++
		t.state = "dead"
	case FallDiscard:
		t.state = "discarded"
	case FallPoison:
		t.state = "poisoned"
	default:
		if t.failures++; t.used() >= t.max {
			t.state = "dead"
		} else {
			q.wait(t, "retrying", q.now+int64(10_000+q.rng.IntN(500_000)))
		}
	}
}

func (q *queue) stale(t *qTask, r *Record) {
	a := t.log[r.Token]
	if a == nil {
		r.Code, r.Reason = Refused, NotFound
		return
	}
	if a.how == map[Op]string{Ack: "succeeded", Fail: "failed", Release: "released"}[r.Op] {
		r.State, r.DueUS = a.then, a.due
		return
	}
	r.Code = Refused
	switch {
	case a.how == "cancelled" || a.how == "lost" && t.state == "cancelled":
		r.Reason = Cancelled
	case a.how != "lost":
		r.Reason = Completed
	case t.fence == a.fence:
		r.Reason = Expired
	default:
		r.Reason = Reclaimed
	}
}

func (q *queue) cancel(t *qTask, r *Record) {
	if t.ended() && t.state != "cancelled" {
		r.wrong(t)
		return
	}
	if t.state != "cancelled" {
		held := t.state == "claimed"
		t.state, q.wrote = "cancelled", true
		if held {
			q.close(t, "cancelled")
		}
	}
	r.State = t.state
}

func (q *queue) replay(t *qTask, r *Record) {
	if t.state != "retrying" && (!t.ended() || t.state == "succeeded") {
		r.wrong(t)
		return
	}
	if t.ended() {
		t.exhausted = t.failures + t.crashes
	}
	q.makeReady(t)
	r.State = t.state
}

func (q *queue) get(t *qTask, r *Record) {
	r.State, r.Fence, r.Attempt, r.Payload, r.Queue = t.state, t.fence, t.last, t.payload, t.queue
	switch t.state {
	case "claimed":
		r.LeaseUntilUS = t.until
	case "scheduled", "retrying":
		r.DueUS = t.due
	}
}
