package broker

import (
	"context"
	"errors"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/task"
)

// Events reads a shard's events after a position, waiting for new ones.
func (b *Broker) Events(ctx context.Context, shardID uint32, q events.Query) (events.Page, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return events.Page{}, err
	}
	page, err := r.ring.Read(ctx, q)
	if errors.Is(err, events.ErrClosed) {
		leader, _ := r.shard.Leader()
		return page, &NotLeader{Shard: shardID, Node: nodeOf(leader)}
	}
	return page, err
}

// publishEvents adds the events of a round to the ring, if anybody reads them.
func (r *replica) publishEvents(round *engine.Round, at shard.Stamp) {
	interest := r.ring.Committed(at.Index)
	var all []events.Event
	switch interest {
	case events.None:
		return
	case events.Look: // they are not kept in the ring
		all = r.scratch[:0]
	case events.Keep:
		all = make([]events.Event, 0, len(round.Transitions)+len(round.Breakers))
	}
	for i := range round.Transitions {
		all = addTransition(all, &round.Transitions[i])
	}
	for i := range round.Breakers {
		all = append(all, breakerEvent(&round.Breakers[i]))
	}
	for i := range round.Events {
		h := &round.Events[i]
		all = append(all, events.Event{Kind: events.Kind(h.Kind), Namespace: h.Namespace, Name: h.Name, Queue: h.Queue, Type: h.Type,
			Reason: h.Reason, Count: int64(h.Count)})
	}
	now := at.Time.Time()
	for i := range all {
		all[i].At = now
	}
	r.ring.Add(at.Index, interest, all)
	if interest == events.Look && cap(all) <= maxScratch {
		r.scratch = all
	}
}

// maxScratch bounds the number of events that scratch space is kept for.
const maxScratch = 1024

// attemptKinds maps outcomes of attempts to kinds of events, for outcomes that don't end the task by themselves.
var attemptKinds = map[task.Outcome]events.Kind{
	task.OutcomeFailed: events.TaskFailed, task.OutcomeDead: events.TaskFailed, task.OutcomePoisoned: events.TaskFailed,
	task.OutcomeTimedOut: events.TaskFailed, task.OutcomeLeaseLost: events.TaskLeaseLost, task.OutcomeReleased: events.TaskReleased,
	task.OutcomeSnoozed: events.TaskReleased, task.OutcomeLeaderless: events.TaskReleased,
}

// stateKinds maps states to the kind of event for entering them.
var stateKinds = map[task.State]events.Kind{
	task.Claimed: events.TaskClaimed, task.Retrying: events.TaskRetrying, task.Succeeded: events.TaskSucceeded, task.Dead: events.TaskDead,
	task.Poisoned: events.TaskPoisoned, task.Discarded: events.TaskDiscarded, task.Cancelled: events.TaskCancelled,
}

// addTransition adds the events of a transition: the end of its attempt, if one ended, and the task's new state. A task that becomes
// due is no event: nobody did it.
func addTransition(all []events.Event, t *engine.Transition) []events.Event {
	e := events.Event{Namespace: t.Namespace, Queue: t.To.Queue, Type: t.To.Type, Task: t.ID, State: t.To.State, Attempt: t.Attempt(),
		Worker: t.Worker()}
	if kind, ok := attemptKinds[t.Outcome]; ok {
		ended := e
		ended.Kind, ended.Error = kind, events.CutError(t.Failure.Message)
		if t.Outcome != task.OutcomeFailed && t.Outcome != task.OutcomeLeaseLost {
			ended.Reason = t.Outcome.String()
		}
		all = append(all, ended)
	}
	switch {
	case t.Created():
		e.Kind = events.TaskEnqueued
	case t.Replays():
		e.Kind = events.TaskReplayed
	default:
		kind, ok := stateKinds[t.To.State]
		if !ok {
			return all
		}
		e.Kind = kind
	}
	if t.To.State.Ended() {
		e.Reason = t.To.Reason
	}
	return append(all, e)
}

func breakerEvent(c *breaker.Change) events.Event {
	e := events.Event{Kind: events.BreakerOpened, Namespace: c.Namespace, Queue: c.Queue, Type: c.Type, Error: events.CutError(c.Error)}
	if c.Closed != "" {
		e.Kind, e.Reason = events.BreakerClosed, string(c.Closed)
	} else {
		e.Reason = c.Reason()
	}
	return e
}
