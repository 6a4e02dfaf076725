package breaker

import (
	"cmp"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// MaxTypes bounds the types of a queue that have a breaker at a time. Other types are not judged until some breakers
	// were idle for a window.
	MaxTypes = 10_000
	// MaxListed bounds the breakers that are reported for a queue: those that have been open longest.
	MaxListed = 100
	// probeWait is how long a breaker waits for a task to probe with. If there is none by then, the type is considered unused.
	probeWait = 24 * time.Hour
)

// Host is the queue of the breakers, within a round.
type Host interface {
	Now() store.Time
	// Rule returns the rule of a type from the queue's settings.
	Rule(typ string) task.Breaker
	// Touch makes the end of the round write, or delete, the row of a type.
	Touch(typ string)
	// SetDeadline moves the deadline of a type's breaker; 0 means none.
	SetDeadline(typ string, was, at store.Time)
	// Hold holds the type back, releases it, or lets one probe through, according to its breaker.
	Hold(typ string)
	// Wake makes waiting claims look at the queue again.
	Wake()
	// MayHave reports whether there may be a ready task of the type.
	MayHave(typ string) bool
	// Changed reports a breaker that opened or closed.
	Changed(Change)
	// SweepLater schedules a call of Set.Sweep.
	SweepLater()
}

// Set holds the breakers of a queue. The set of a queue without rules is nil.
type Set struct {
	byType map[string]*Breaker
	open   map[string]*Breaker // breakers that are not closed
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{byType: map[string]*Breaker{}, open: map[string]*Breaker{}} }

// Of returns the breaker of a type; nil: it is closed and has no recent outcomes.
func (s *Set) Of(typ string) *Breaker {
	if s == nil {
		return nil
	}
	return s.byType[typ]
}

// Add adds a stored breaker.
func (s *Set) Add(b *Breaker) {
	s.byType[b.Type] = b
	if b.State != Closed {
		s.open[b.Type] = b
	}
}

// Types returns the types that have a breaker, sorted.
func (s *Set) Types() []string {
	if s == nil {
		return nil
	}
	return schema.SortedKeys(s.byType)
}

// NotClosed returns the breakers that are not closed, the longest open first, up to MaxListed, and how many there are in all.
func (s *Set) NotClosed(settings *task.Settings) (infos []Info, all int) {
	if s == nil || len(s.open) == 0 {
		return nil, 0
	}
	for typ, b := range s.open {
		infos = append(infos, b.Info(settings.BreakerOf(typ)))
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Type, b.Type)) })
	return slices.Clip(infos[:min(len(infos), MaxListed)]), len(infos)
}

// verdict is what the outcome of an attempt says about its type.
type verdict uint8

const (
	noVerdict verdict = iota
	success
	failure
)

// verdictOf returns the verdict of an outcome. An unreadable payload, a release, a snooze, a discard and a cancel say
// nothing, and neither does a lease that ended because the shard had no leader.
func verdictOf(o task.Outcome) verdict {
	switch o {
	case task.OutcomeSucceeded:
		return success
	case task.OutcomeFailed, task.OutcomeDead, task.OutcomeTimedOut, task.OutcomeLeaseLost:
		return failure
	}
	return noVerdict
}

// Judge reports the outcome of an attempt to the breaker of the task's type. It must be called after the task's move.
func (s *Set) Judge(h Host, id task.ID, typ string, o task.Outcome, f schema.Failure) {
	rule, b := h.Rule(typ), s.byType[typ]
	switch v := verdictOf(o); {
	case !rule.IsSet():
	case b != nil && b.Probe == id && b.Probe != task.ID{}:
		s.probed(h, b, rule, v, f)
	case v == noVerdict || b != nil && b.State != Closed:
	case b == nil && len(s.byType) >= MaxTypes:
	default:
		if b == nil {
			b = &Breaker{Type: typ}
			s.byType[typ] = b
		}
		b.Seen.add(h.Now(), rule.Window, v == failure)
		if v == failure {
			b.LastError = task.Cut(f.Message, maxError)
		}
		touch(h, b)
		h.SweepLater()
		s.mayOpen(h, b, rule)
	}
}

// touch makes the round write the breaker's row, once for however many attempts it judges.
func touch(h Host, b *Breaker) {
	if !b.Dirty {
		b.Dirty = true
		h.Touch(b.Type)
	}
}

// mayOpen opens a closed breaker if too many attempts in its window failed.
func (s *Set) mayOpen(h Host, b *Breaker, rule task.Breaker) {
	t := b.Seen.Sum(h.Now(), rule.Window)
	if t.Attempts < rule.MinAttempts || 100*t.Failed < rule.FailureRate*t.Attempts {
		return
	}
	b.Cause, b.Over, b.Since, b.Seen = t, rule.Window, h.Now(), Window{}
	s.open[b.Type] = b
	openFor(h, b, rule)
}

// openFor opens the breaker, which holds the type for a time.
func openFor(h Host, b *Breaker, rule task.Breaker) {
	b.State, b.Passed = Open, 0
	b.Opened++
	setUntil(h, b, h.Now().Add(rule.HoldAfter(b.Opened)))
	h.Hold(b.Type)
	h.Changed(Change{Info: b.Info(rule)})
}

// HoldEnds handles the deadline of a type's breaker: it lets a probe through, or closes a breaker that found no task to probe with.
func (s *Set) HoldEnds(h Host, typ string, at store.Time) {
	b := s.byType[typ]
	if b == nil || b.Until != at {
		return
	}
	b.Until = 0
	if b.State == Probing && !h.MayHave(b.Type) {
		s.close(h, b, Unused)
		return
	}
	b.State = Probing
	nextProbe(h, b)
}

// nextProbe lets the next task of the type start as a probe.
func nextProbe(h Host, b *Breaker) {
	b.Probe = task.ID{}
	setUntil(h, b, h.Now().Add(probeWait))
	h.Hold(b.Type)
	h.Wake()
}

// LetThrough makes a task that is being claimed the probe of its type, if the breaker waits for one.
func (s *Set) LetThrough(h Host, id task.ID, typ string) {
	if b := s.open[typ]; b != nil && b.Tries() {
		b.Probe = id
		setUntil(h, b, 0)
		h.Hold(typ)
	}
}

// probed handles the end of a probe.
func (s *Set) probed(h Host, b *Breaker, rule task.Breaker, v verdict, f schema.Failure) {
	switch v {
	case failure:
		b.Probe, b.LastError = task.ID{}, task.Cut(f.Message, maxError)
		openFor(h, b, rule)
		return
	case success:
		b.Passed++
	}
	if b.Passed >= rule.Probes {
		s.close(h, b, ByProbes)
	} else {
		nextProbe(h, b)
	}
}

// close releases the type and forgets its breaker.
func (s *Set) close(h Host, b *Breaker, by ClosedBy) {
	h.Changed(Change{Closed: by, Info: b.Info(h.Rule(b.Type))})
	s.forget(h, b)
	h.Hold(b.Type)
	h.Wake()
}

// Close manually closes the breaker of a type, or all breakers if typ is "". It returns how many it closed.
func (s *Set) Close(h Host, typ string) (n int) {
	for _, open := range schema.SortedKeys(s.open) {
		if typ == "" || open == typ {
			s.close(h, s.open[open], ByHand)
			n++
		}
	}
	return n
}

func (s *Set) forget(h Host, b *Breaker) {
	setUntil(h, b, 0)
	delete(s.byType, b.Type)
	delete(s.open, b.Type)
}

// Drop forgets all breakers of a queue that is deleted.
func (s *Set) Drop(h Host) {
	for _, b := range s.byType {
		s.forget(h, b)
	}
}

// Sweep forgets up to limit breakers without an outcome for a whole window, and reports whether closed ones remain.
func (s *Set) Sweep(h Host, limit int) (dropped int, left bool) {
	for typ, b := range s.byType {
		switch {
		case b.State != Closed: // has a deadline of its own
		case dropped == limit || !b.Seen.over(h.Now(), h.Rule(typ).Window):
			left = true
		default:
			s.forget(h, b)
			dropped++
		}
	}
	return dropped, left
}

// setUntil moves the deadline of a breaker; 0 means none.
func setUntil(h Host, b *Breaker, at store.Time) {
	h.SetDeadline(b.Type, b.Until, at)
	b.Until = at
	touch(h, b)
}

// Follow applies changed rules. A breaker whose rule was removed closes; a closed one starts over if its window has
// changed, and is otherwise judged by the new rule immediately; any other adopts the new hold and number of probes.
func (s *Set) Follow(h Host, was *task.Settings) {
	for _, typ := range schema.SortedKeys(s.byType) {
		b, before, rule := s.byType[typ], was.BreakerOf(typ), h.Rule(typ)
		switch {
		case rule == before:
		case b.State == Closed && (!rule.IsSet() || rule.Window != before.Window):
			s.forget(h, b)
		case !rule.IsSet():
			s.close(h, b, BySettings)
		case b.State == Closed:
			s.mayOpen(h, b, rule)
		case b.State == Open:
			began := b.Until.Add(-before.HoldAfter(b.Opened))
			setUntil(h, b, max(began.Add(rule.HoldAfter(b.Opened)), h.Now()))
		case b.Passed >= rule.Probes:
			s.close(h, b, ByProbes)
		}
	}
}
