package lanes

import (
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A type on trial is held except for one task, the probe of its breaker: of all its lanes only the one whose turn it is
// is put in order ("shown").
//
// The simple idea, to release the type until a probe is claimed and then hold it again, would move all its lanes twice
// for each probe: with tasks of 100,000 keys that is a sixth of a second.

// types holds the types that a queue must not run now.
type types struct {
	held   map[string]bool  // types that must not run
	trials map[string]*Lane // held types that are on trial, with the lane that is shown; nil: no task of the type may run
}

// HeldTypes returns the types that are held.
func (t *types) HeldTypes() []string { return slices.Collect(maps.Keys(t.held)) }

// Holds reports whether a type is held.
func (t *types) Holds(typ string) bool { return t.held[typ] }

// maxOffered bounds the lanes among which the one to show is chosen. For a type with more lanes the choice is only approximate.
const maxOffered = 100

// trial is the trial of one type.
type trial struct {
	s   *Set
	typ string
}

// begin puts the type, which must be held, on trial.
func (t trial) begin(now store.Time) {
	if _, tried := t.s.trials[t.typ]; !tried {
		t.offer(now)
	}
}

// end ends the trial.
func (t trial) end() {
	if shown := t.s.trials[t.typ]; shown != nil {
		t.s.hide(shown)
	}
	delete(t.s.trials, t.typ)
}

// offer shows the lane of the next probe, if the type has a runnable lane.
func (t trial) offer(now store.Time) {
	s := t.s
	var best *Lane
	looked := 0
	for _, l := range s.ofType[t.typ] {
		if l.flow.Held != 0 {
			continue
		}
		if best == nil || l.before(best) {
			best = l
		}
		if looked++; looked == maxOffered {
			break
		}
	}
	s.trials[t.typ] = nil
	for p, of := range s.cold.byType {
		if c := of[t.typ]; c != nil && (best == nil || c.before(best)) {
			s.thaw(s.cold.topOf(p, t.typ), now) // which also offers it
			return
		}
	}
	if s.trials[t.typ] = best; best != nil {
		s.show(best, now)
	}
}

// offerIfBetter shows a lane instead of the one that is shown, if it comes first.
func (t trial) offerIfBetter(l *Lane, now store.Time) {
	shown := t.s.trials[t.typ]
	if l.flow.Held != 0 || shown != nil && !l.before(shown) {
		return
	}
	if shown != nil {
		t.s.hide(shown)
	}
	t.s.trials[t.typ] = l
	t.s.show(l, now)
}

// offerAgain updates the trials after a flow was held or released.
func (s *Set) offerAgain(f *Flow, now store.Time) {
	for typ, shown := range s.trials {
		if f.Held != 0 && shown != nil && shown.flow == f {
			s.hide(shown)
			trial{s, typ}.offer(now)
		}
		if f.Held == 0 {
			for _, p := range task.Priorities {
				if l := s.byName[schema.LaneName{Priority: p, Key: f.Key, Type: typ}]; l != nil {
					trial{s, typ}.offerIfBetter(l, now)
				}
			}
		}
	}
}

// before reports whether l is claimed from before o, a lane of the same type.
func (l *Lane) before(o *Lane) bool {
	switch {
	case l.Priority != o.Priority:
		return l.Priority < o.Priority
	case l.flow.rank != o.flow.rank:
		return l.flow.rank < o.flow.rank
	}
	return l.first() < o.first()
}
