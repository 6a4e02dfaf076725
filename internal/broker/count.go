package broker

import (
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
)

// count records a committed round's task events in the statistics. It runs on the shard's loop.
func (r *replica) count(round *engine.Round) {
	recorder := r.b.cfg.Stats
	if recorder == nil {
		return
	}
	for i := range round.Transitions {
		r.events = append(r.events, eventOf(&round.Transitions[i], round.Now()))
	}
	now := time.Now()
	recorder.Record(now, r.events)
	clear(r.events)
	r.events = r.events[:0]
	for i := range round.Ticked {
		t := &round.Ticked[i]
		if t.Outcome == schema.TickTriggered {
			continue
		}
		tick := stats.Tick{Namespace: t.Namespace, Schedule: t.Schedule, Late: t.Late(), Reason: t.Reason}
		if t.Outcome == schema.TickSkipped {
			tick.Skipped = max(t.Count, 1)
		}
		recorder.Tick(now, tick)
	}
}

// eventOf converts a transition to a statistics event.
func eventOf(t *engine.Transition, now Time) stats.Event {
	e := stats.Event{Namespace: t.Namespace, Queue: t.To.Queue, Type: t.To.Type, Readied: t.To.State == task.Ready, Ran: -1}
	switch {
	case t.Created():
		e.Counts = e.Counts.With(stats.Enqueued)
	case t.Claims():
		e.Counts, e.Waited = e.Counts.With(stats.Claimed), t.Waited()
	case t.Replays():
		e.Counts = e.Counts.With(stats.Replayed)
	}
	if t.Outcome != task.OutcomeNone {
		if int(t.Outcome) < len(attemptCounts) {
			e.Counts |= attemptCounts[t.Outcome]
		}
		e.Ran, e.Error, e.ErrorType = t.Ran(now), task.Cut(t.Failure.Message, maxErrorKept), task.Cut(t.Failure.Type, maxErrorKept)
		e.Task, e.Worker = t.ID, t.Worker()
	}
	switch t.To.State {
	case task.Dead:
		e.Counts = e.Counts.With(stats.Dead)
	case task.Poisoned:
		e.Counts = e.Counts.With(stats.Poisoned)
	case task.Cancelled:
		e.Counts = e.Counts.With(stats.Cancelled)
	case task.Discarded:
		e.Counts = e.Counts.With(discardCounter(t.To.Reason))
	}
	return e
}

// maxErrorKept bounds the part of an error that is kept, in bytes.
const maxErrorKept = 256

// attemptCounts maps the outcome of an attempt to its counter. If the task ends with its attempt, its state is counted instead.
var attemptCounts = [...]stats.Set{task.OutcomeSucceeded: 1 << stats.Succeeded, task.OutcomeFailed: 1 << stats.Failed,
	task.OutcomeDead: 1 << stats.Failed, task.OutcomeLeaseLost: 1 << stats.Crashed, task.OutcomeTimedOut: 1 << stats.TimedOut,
	task.OutcomeLeaderless: 1 << stats.Leaderless, task.OutcomeReleased: 1 << stats.Released, task.OutcomeSnoozed: 1 << stats.Snoozed}

func discardCounter(reason string) stats.Counter {
	switch reason {
	case task.ReasonExpired:
		return stats.Expired
	case task.ReasonMoved:
		return stats.Moved
	}
	return stats.Discarded
}

// countDuplicates counts enqueues that found an existing task. They write nothing, so no round reports them.
func countDuplicates(recorder *stats.Recorder, ns string, specs []task.Spec, out []Enqueued) {
	if recorder == nil {
		return
	}
	var events []stats.Event
	for i := range out {
		if out[i].Err == nil && out[i].Duplicate {
			events = append(events, stats.Event{Namespace: ns, Queue: specs[i].Queue, Type: specs[i].Type, Ran: -1,
				Counts: stats.Set(0).With(stats.Deduplicated)})
		}
	}
	if len(events) > 0 {
		recorder.Record(time.Now(), events)
	}
}

// countStale counts verbs on claims that were refused because the claim no longer held.
func countStale(recorder *stats.Recorder, calls []Settle, out []Settled) {
	if recorder == nil {
		return
	}
	for i := range out {
		var e *task.Error
		if out[i].Err != nil && errors.As(out[i].Err, &e) && e.Code == task.CodeStaleClaim {
			recorder.Stale(calls[i].Hold.Namespace, e.Reason)
		}
	}
}
