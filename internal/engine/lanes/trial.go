package lanes

import (
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A type on trial is held but for one task, a probe of its breaker: of all its lanes one is shown, that whose turn it is.
//
// The simple idea, to let the type run until a probe is claimed and then to hold it again, moves all its lanes twice for each
// probe: with tasks of 100,000 keys that is a sixth of a second.

// maxOffered bounds the lanes among which the one to be shown is chosen. Of a type with more the choice is only about right.
const maxOffered = 100

// tryType puts a held type on trial, or ends that.
func (s *Set) tryType(typ string, try bool, now store.Time) {
	shown, tried := s.trials[typ]
	switch {
	case try && !tried:
		s.offer(typ, now)
	case tried && !try:
		if shown != nil {
			s.hide(shown)
		}
		delete(s.trials, typ)
	}
}

// offer shows the lane of a type on trial from which its probe comes, if there is one that may run.
func (s *Set) offer(typ string, now store.Time) {
	var best *Lane
	looked := 0
	for _, l := range s.ofType[typ] {
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
	s.trials[typ] = nil
	for p, of := range s.cold.byType {
		if t := of[typ]; t != nil && (best == nil || t.before(best)) {
			s.thaw(s.coldTop(p, typ), now) // and offers it
			return
		}
	}
	if s.trials[typ] = best; best != nil {
		s.show(best, now)
	}
}

// offerIfBetter shows a lane of a type on trial in place of the one that is, if it comes before that.
func (s *Set) offerIfBetter(l *Lane, now store.Time) {
	shown := s.trials[l.Type]
	if shown == l || l.flow.Held != 0 || shown != nil && !l.before(shown) {
		return
	}
	if shown != nil {
		s.hide(shown)
	}
	s.trials[l.Type] = l
	s.show(l, now)
}

// offerAgain follows a flow that is held from now on, or runs again.
func (s *Set) offerAgain(f *Flow, now store.Time) {
	for typ, shown := range s.trials {
		if f.Held != 0 && shown != nil && shown.flow == f {
			s.hide(shown)
			s.offer(typ, now)
		}
		if f.Held == 0 {
			for _, p := range task.Priorities {
				if l := s.byName[schema.LaneName{Priority: p, Key: f.Key, Type: typ}]; l != nil {
					s.offerIfBetter(l, now)
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
