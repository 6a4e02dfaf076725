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
	// MaxTypes bounds the types of a queue that have a breaker at a time. Others pass unjudged until some were idle for a window.
	MaxTypes = 10_000
	// MaxTold bounds the breakers that are told of a queue: those that have been open longest.
	MaxTold = 100
	// probeWait is how long a breaker waits for a task to probe with. If none is there then, the type is not used any more.
	probeWait = 24 * time.Hour
)

// Host is the queue whose breakers act, in a round.
type Host interface {
	Now() store.Time
	// Rule is the rule of a type, by the queue's settings.
	Rule(typ string) task.Breaker
	// Touch has the row of a type written, or deleted, when the round ends.
	Touch(typ string)
	// SetDeadline moves the deadline of a type's breaker; 0: it had none, or has none.
	SetDeadline(typ string, was, at store.Time)
	// Hold holds the type back, lets it run, or lets one probe through, as its breaker says.
	Hold(typ string)
	// Wake lets claims that wait look at the queue again.
	Wake()
	// MayHave says whether a ready task of the type may be there.
	MayHave(typ string) bool
	// Changed tells of a breaker that opened or closed.
	Changed(Change)
	// SweepLater has idle breakers forgotten some time.
	SweepLater()
}

// Set is the breakers of a queue. A nil set is that of a queue without rules.
type Set struct {
	byType map[string]*Breaker
	open   map[string]*Breaker // those that are not closed
}

// NewSet returns a set without breakers.
func NewSet() *Set { return &Set{byType: map[string]*Breaker{}, open: map[string]*Breaker{}} }

// Of is the breaker of a type; nil: nothing was heard of the type lately.
func (s *Set) Of(typ string) *Breaker {
	if s == nil {
		return nil
	}
	return s.byType[typ]
}

// Add adds a breaker that was stored.
func (s *Set) Add(b *Breaker) {
	s.byType[b.Type] = b
	if b.State != Closed {
		s.open[b.Type] = b
	}
}

// Types are the types that have a breaker, sorted.
func (s *Set) Types() []string {
	if s == nil {
		return nil
	}
	return schema.SortedKeys(s.byType)
}

// Told are the breakers that are not closed, the longest open first, up to MaxTold, and how many there are.
func (s *Set) Told(settings *task.Settings) (infos []Info, all int) {
	if s == nil || len(s.open) == 0 {
		return nil, 0
	}
	for typ, b := range s.open {
		infos = append(infos, b.Info(settings.BreakerOf(typ)))
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Type, b.Type)) })
	return slices.Clip(infos[:min(len(infos), MaxTold)]), len(infos)
}

// verdict is what the end of an attempt says of its type.
type verdict uint8

const (
	noVerdict verdict = iota
	success
	failure
)

// verdictOf: a payload that can't be read, a release, a snooze, a discard and a cancel say nothing, and a lease that ended
// because no leader served is nobody's fault.
func verdictOf(o task.Outcome) verdict {
	switch o {
	case task.OutcomeSucceeded:
		return success
	case task.OutcomeFailed, task.OutcomeDead, task.OutcomeTimedOut, task.OutcomeLeaseLost:
		return failure
	}
	return noVerdict
}

// Judge tells the breaker of a task's type how an attempt has ended. It comes after the move.
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

// touch has the row of a breaker written once in a round, however many attempts it judges.
func touch(h Host, b *Breaker) {
	if !b.Dirty {
		b.Dirty = true
		h.Touch(b.Type)
	}
}

// mayOpen opens a closed breaker if the attempts of its window say so.
func (s *Set) mayOpen(h Host, b *Breaker, rule task.Breaker) {
	t := b.Seen.Sum(h.Now(), rule.Window)
	if t.Attempts < rule.MinAttempts || 100*t.Failed < rule.FailureRate*t.Attempts {
		return
	}
	b.Cause, b.Over, b.Since, b.Seen = t, rule.Window, h.Now(), Window{}
	s.open[b.Type] = b
	openFor(h, b, rule)
}

// openFor holds the type for a time.
func openFor(h Host, b *Breaker, rule task.Breaker) {
	b.State, b.Passed = Open, 0
	b.Opened++
	setUntil(h, b, h.Now().Add(rule.HoldAfter(b.Opened)))
	h.Hold(b.Type)
	h.Changed(Change{Info: b.Info(rule)})
}

// HoldEnds is for the deadline of a type's breaker: it lets a probe through, or forgets a breaker for which there is none.
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

// nextProbe makes place for a probe.
func nextProbe(h Host, b *Breaker) {
	b.Probe = task.ID{}
	setUntil(h, b, h.Now().Add(probeWait))
	h.Hold(b.Type)
	h.Wake()
}

// LetThrough makes a task that is claimed the probe of its type, if its breaker waits for one.
func (s *Set) LetThrough(h Host, id task.ID, typ string) {
	if b := s.open[typ]; b != nil && b.Tries() {
		b.Probe = id
		setUntil(h, b, 0)
		h.Hold(typ)
	}
}

// probed is for a probe that has ended.
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

// close lets the type run. What is known of it begins anew.
func (s *Set) close(h Host, b *Breaker, by ClosedBy) {
	h.Changed(Change{Closed: by, Info: b.Info(h.Rule(b.Type))})
	s.forget(h, b)
	h.Hold(b.Type)
	h.Wake()
}

// Close closes by hand the breaker of a type, or for "" all of them. It says how many were not closed.
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

// Drop forgets all breakers, of a queue that goes.
func (s *Set) Drop(h Host) {
	for _, b := range s.byType {
		s.forget(h, b)
	}
}

// Sweep forgets up to limit breakers of which nothing was heard for a window, and says whether closed ones are left.
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

// setUntil moves the deadline of a breaker; 0: it has none.
func setUntil(h Host, b *Breaker, at store.Time) {
	h.SetDeadline(b.Type, b.Until, at)
	b.Until = at
	touch(h, b)
}

// Follow lets the breakers follow rules that have changed. One whose rule is gone closes; one that is closed begins anew if it looks at
// another time, and is judged by the new rule at once; one that is not keeps to the new hold and number of probes.
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
