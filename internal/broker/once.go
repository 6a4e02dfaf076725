package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/once"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Types of the engine for once keys.
type (
	OnceCall   = once.Call
	OnceAnswer = once.Answer
	OnceHolder = once.Holder
	OnceVerb   = once.Verb
	OnceState  = once.State
)

// Verbs on a once key, and the states that it can then be in.
const (
	OnceBegin   = once.Begin
	OnceFinish  = once.Finish
	OnceAbandon = once.Abandon

	OnceFree = once.Free
	OnceRun  = once.Run
	OnceDone = once.Done
	OnceHeld = once.Held
	OnceAway = once.Away
)

// Once runs a verb on a once key in one shard: the task's, or the one that stores the key.
func (b *Broker) Once(ctx context.Context, shardID uint32, c OnceCall) (OnceAnswer, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return OnceAnswer{}, Stamp{}, err
	}
	once := func(round *engine.Round) (OnceAnswer, error) { return once.Do(round, &c) }
	if c.By == nil {
		once = inScope(ctx, onTask(c.Hold.Namespace, c.Hold.ID), once)
	}
	if c.Queue == "" { // a shard that has a claimed task has its queue
		return change(ctx, r, once)
	}
	return withQueues(ctx, r, c.Hold.Namespace, []string{c.Queue}, once)
}

// OnceHold identifies a claim that may hold a once key.
type OnceHold struct {
	Namespace string
	Holder    OnceHolder
}

// TargetShard implements verb.Sharded.
func (o *OnceHold) TargetShard() uint32 { return o.Holder.ID.Shard() }

// OnceHolds reports whether a claim still holds its task.
var OnceHolds = reads(verb.Rule{Name: "once-holds"}, func(from store.Reader, _ task.Scope, q *OnceHold) (bool, error) {
	return once.ClaimHolds(from, q.Namespace, q.Holder), nil
})

// OnceUntil returns when the last once key expires of some slots of a queue in a shard; 0 means that there is none.
var OnceUntil = reports(verb.Rule{Name: "once-until"}, func(from store.Reader, q *OnSlots) (Time, error) {
	return once.LastEnd(from, q.Namespace, q.Queue, q.Slots)
})
