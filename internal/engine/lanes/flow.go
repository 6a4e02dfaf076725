package lanes

import (
	"math"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/store"
)

// The tasks of one key in a queue are a flow; those without a key are one, too. Within a priority the flows share what the
// workers give the queue, by their weights: the next task comes from the flow that has used the least of the workers' time,
// tasks that run at this moment included. So one key's million tasks delay another key's first by no more than the task that
// is next to end, and a key with long tasks gets no more than one with short ones.
//
// A flow that had nothing to run begins where the first of the others is, and saves no credit. When tasks begin to wait, all
// accounts begin at nothing: who used much while nobody else wanted it owes nothing.

// Flow is the leader's memory of one key in a queue that has ready or claimed tasks.
type Flow struct {
	Key     string
	weight  float64
	lanes   int               // not empty ones
	ready   [3]ranking[*Lane] // those of types that may run, the longest waiting task first
	place   [3]int32          // in the order of each priority; -1: nothing of it may run
	Held    Hold              // why none of its tasks may run
	Use     limit.Claims
	Running int // claimed tasks, also of tasks without a key

	used    float64    // workers' time in microseconds by weight, up to at
	at      store.Time // when used was reckoned
	account int        // in which account that was
	rank    float64    // what it was when the flow was last put in order: no more than it is
}

// leastRun is what a task costs its flow at least, in microseconds: so flows take turns when tasks are claimed at once.
const leastRun = 1000

// turn is a price as it counts in the order of flows. Those that are about even take turns by the age of their tasks: so what is
// claimed next lies together on disk, mostly.
func turn(price float64) float64 { return math.Floor(price/leastRun) * leastRun }

// shared says whether there is anybody to share with. Else nothing is reckoned: who comes begins where the only one is.
func (s *Set) shared() bool { return len(s.flows)+len(s.cold.byKey) > 1 || s.Partial() }

func (f *Flow) idle() bool { return f.lanes == 0 && f.Running == 0 }

// first is a lower bound of the first sequence number in a priority.
func (f *Flow) first(p int) uint64 { return f.ready[p].top().first() }

// flowTable finds flows by their keys.
type flowTable struct {
	rules Rules
	flows map[string]*Flow
	plain *Flow // that of tasks without a key
}

// Flow is the flow of a key, which begins where the others are.
func (t *flowTable) Flow(key string, now store.Time) *Flow {
	if key == "" && t.plain != nil {
		return t.plain
	}
	f := t.flows[key]
	if f == nil {
		f = &Flow{Key: key, place: [3]int32{-1, -1, -1}, account: -1}
		for i := range f.ready {
			f.ready[i] = ranking[*Lane]{order: byAge, place: func(l *Lane) *int32 { return &l.own }}
		}
		t.flows[key] = f
		if key == "" {
			t.plain = f
		}
		t.rule(f)
		f.Held = t.rules.Held(key, 0, now)
	}
	return f
}

// rule gives a flow the weight that the settings say.
func (t *flowTable) rule(f *Flow) {
	f.weight = t.rules.Weight(f.Key)
}

// Forget drops a flow that has nothing left: idle keys cost nothing.
func (t *flowTable) Forget(f *Flow) {
	if f.idle() {
		delete(t.flows, f.Key)
		if f == t.plain {
			t.plain = nil
		}
	}
}

// Known is the flow of a key; nil: nothing of it is claimed, and what is ready of it is cold or unread.
func (t *flowTable) Known(key string) *Flow { return t.flows[key] }

// ForgetIdle drops the flow of a key if it has nothing left.
func (t *flowTable) ForgetIdle(key string) {
	if f := t.flows[key]; f != nil {
		t.Forget(f)
	}
}

// Begin is for a task of a flow that is claimed. BeginEnds must follow, when the claim's tokens are taken.
func (s *Set) Begin(f *Flow, now store.Time) {
	if s.shared() {
		s.reckon(f, now)
		f.used += leastRun / f.weight
	}
	f.Running++
}

// BeginEnds puts the flow of a task in order that was claimed.
func (s *Set) BeginEnds(f *Flow, now store.Time) {
	if s.shared() {
		s.reprice(f, now)
	}
	s.Hold(f, now)
}

// End is for a claim of a flow that has ended. It says whether the flow is held, or lets its tasks run, since then.
func (s *Set) End(r *Round, f *Flow) (changed bool) {
	if s.shared() {
		s.reckon(f, r.now)
	}
	f.Running--
	was := f.Held
	s.Hold(f, r.now)
	s.Forget(f)
	r.settleFlow(s, f, nil)
	return was != f.Held
}

// Hold holds a flow back or lets it run, as the rules say now.
func (s *Set) Hold(f *Flow, now store.Time) {
	s.setHeld(f, s.rules.Held(f.Key, f.Use.Count(), now), now)
}

// Refresh is for a flow of whose rules one has changed, such as by a token that came; a key that has no flow is not held.
func (s *Set) Refresh(r *Round, key string) {
	if f := s.flows[key]; f != nil {
		s.Hold(f, r.now)
		r.settleFlow(s, f, nil)
	}
}

// FollowRules holds flows back and lets them run after the rules have changed, which name some keys.
func (s *Set) FollowRules(r *Round, named []string) {
	for _, f := range s.flows {
		s.rule(f)
		s.Hold(f, r.now)
	}
	for _, key := range named {
		if c := s.cold.byKey[key]; c != nil {
			s.thaw(c, r.now)
		}
	}
}
