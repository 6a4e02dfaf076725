package lanes

import (
	"math"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/store"
)

// The tasks of one key in a queue form a flow; so do those without a key. Within a priority, flows share the workers'
// time by their weights: the next task comes from the flow that has used the least of it, running tasks included. So a
// million tasks of one key delay another key's first task no longer than until the next task ends, and a key with long
// tasks gets no more time than one with short ones.
//
// A flow that had nothing to run starts level with the first of the others and saves no credit. When tasks begin to
// wait after none did, all usage is reset: a flow that used much while no other needed it owes nothing.

// Flow is the leader's memory of one key of a queue with ready or claimed tasks.
type Flow struct {
	Key     string
	weight  float64
	lanes   int               // number of lanes that are not empty
	ready   [3]ranking[*Lane] // those whose types are not held, oldest task first
	place   [3]int32          // in the heap of each priority; -1: none of its tasks may run
	Held    Hold              // why none of its tasks may run
	Use     limit.Claims
	Running int // claimed tasks, counted also for the flow without a key

	used   float64    // worker time in microseconds divided by the weight, up to at
	at     store.Time // when used was last updated
	period int        // the period of that; see accounts
	rank   float64    // the turn of its price when the flow was last ordered: a lower bound
}

// leastRun is the minimum cost of a task to its flow, in microseconds, so that flows take turns when tasks are claimed at the same moment.
const leastRun = 1000

// turn returns a price rounded for the order of flows. Flows that are about even are ordered by the age of their tasks,
// so that tasks claimed in succession are mostly adjacent on disk.
func turn(price float64) float64 { return math.Floor(price/leastRun) * leastRun }

// shared reports whether there is more than one flow. Otherwise usage is not tracked: a new flow starts level with the only one.
func (s *Set) shared() bool { return len(s.flows)+len(s.cold.byKey) > 1 || s.Partial() }

func (f *Flow) idle() bool { return f.lanes == 0 && f.Running == 0 }

// first returns a lower bound of the first sequence number in a priority.
func (f *Flow) first(p int) uint64 { return f.ready[p].top().first() }

// flowTable holds the flows by key.
type flowTable struct {
	rules Rules
	flows map[string]*Flow
	plain *Flow // the flow of tasks without a key
}

// Flow returns the flow of a key, creating it if need be.
func (t *flowTable) Flow(key string, now store.Time) *Flow {
	if key == "" && t.plain != nil {
		return t.plain
	}
	f := t.flows[key]
	if f == nil {
		f = &Flow{Key: key, place: [3]int32{-1, -1, -1}, period: -1}
		for i := range f.ready {
			f.ready[i] = ranking[*Lane]{order: byAge, place: func(l *Lane) *int32 { return &l.own }}
		}
		t.flows[key] = f
		if key == "" {
			t.plain = f
		}
		t.rule(f)
		f.Held = t.rules.Held(key, &f.Use, now)
	}
	return f
}

// rule sets the weight of a flow from the settings.
func (t *flowTable) rule(f *Flow) {
	f.weight = t.rules.Weight(f.Key)
}

// Forget drops a flow if it is idle, so that idle keys cost nothing.
func (t *flowTable) Forget(f *Flow) {
	if f.idle() {
		delete(t.flows, f.Key)
		if f == t.plain {
			t.plain = nil
		}
	}
}

// Known returns the flow of a key; nil: the key has no claimed tasks, and its ready ones are cold or unread.
func (t *flowTable) Known(key string) *Flow { return t.flows[key] }

// ForgetIdle drops the flow of a key if it is idle.
func (t *flowTable) ForgetIdle(key string) {
	if f := t.flows[key]; f != nil {
		t.Forget(f)
	}
}

// Begin counts a new claim of a flow. BeginEnds must follow, when the claim's tokens are taken.
func (s *Set) Begin(f *Flow, now store.Time) {
	if s.shared() {
		s.updateUsage(f, now)
		f.used += leastRun / f.weight
	}
	f.Running++
}

// BeginEnds reorders the flow of a task that was claimed.
func (s *Set) BeginEnds(f *Flow, now store.Time) {
	if s.shared() {
		s.reprice(f, now)
	}
	s.Hold(f, now)
}

// End counts the end of a claim of a flow. It reports whether the reason for which the flow is held, if any, has changed.
func (s *Set) End(r *Round, f *Flow) (changed bool) {
	if s.shared() {
		s.updateUsage(f, r.now)
	}
	f.Running--
	was := f.Held
	s.Hold(f, r.now)
	s.Forget(f)
	r.settleFlow(s, f, nil)
	return was != f.Held
}

// Hold holds a flow back or releases it, according to the current rules.
func (s *Set) Hold(f *Flow, now store.Time) {
	s.setHeld(f, s.rules.Held(f.Key, &f.Use, now), now)
}

// Refresh is Hold for the flow of a key, after something has changed that may hold it, such as a new token. A key
// without a flow is not held.
func (s *Set) Refresh(r *Round, key string) {
	if f := s.flows[key]; f != nil {
		s.Hold(f, r.now)
		r.settleFlow(s, f, nil)
	}
}

// FollowRules applies changed rules, which name some keys, to all flows.
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
