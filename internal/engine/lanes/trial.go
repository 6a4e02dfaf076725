package lanes

import (
	"maps"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A type on trial is held but for one task, a probe of its breaker: of all its lanes one is shown, that whose turn it is.
//
// The simple idea, to let the type run until a probe is claimed and then to hold it again, moves all its lanes twice for each
// probe: with tasks of 100,000 keys that is a sixth of a second.

// types are what a queue may not run now.
type types struct {
	held   map[string]bool  // types that may not run
	trials map[string]*Lane // held types that are on trial, and the lane that is shown; nil: no task of the type may run
}

// HeldTypes are the types that are held.
func (t *types) HeldTypes() []string { return slices.Collect(maps.Keys(t.held)) }

// Holds says whether a type is held.
func (t *types) Holds(typ string) bool { return t.held[typ] }

// maxOffered bounds the lanes among which the one to be shown is chosen. Of a type with more the choice is only about right.
const maxOffered = 100

// trial is that of one type.
type trial struct {
	s   *Set
	typ string
}

// begin puts the type, which is held, on trial.
func (t trial) begin(now store.Time) {
	if _, tried := t.s.trials[t.typ]; !tried {
		t.offer(now)
	}
}

// end ends that.
func (t trial) end() {
	if shown := t.s.trials[t.typ]; shown != nil {
		t.s.hide(shown)
	}
	delete(t.s.trials, t.typ)
}

// offer shows the lane from which the probe comes, if there is one that may run.
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
			s.thaw(s.cold.topOf(p, t.typ), now) // and offers it
			return
		}
	}
	if s.trials[t.typ] = best; best != nil {
		s.show(best, now)
	}
}

// offerIfBetter shows a lane in place of the one that is, if it comes before that.
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

// offerAgain has the trials follow a flow that is held from now on, or runs again.
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

// before is the order in which the lanes of a type are claimed from.
func (l *Lane) before(o *Lane) bool {
	switch {
	case l.Priority != o.Priority:
		return l.Priority < o.Priority
	case l.flow.rank != o.flow.rank:
		return l.flow.rank < o.flow.rank
	}
	return l.first() < o.first()
}
