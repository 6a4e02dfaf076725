package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/once"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The engine's words for once keys.
type (
	OnceCall   = once.Call
	OnceAnswer = once.Answer
	OnceHolder = once.Holder
	OnceVerb   = once.Verb
	OnceState  = once.State
)

// What a claim does with a once key, and how that stands then.
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

// Once runs a verb on a once key in one shard: the task's, or the one where the key lies.
func (b *Broker) Once(ctx context.Context, shardID uint32, c OnceCall) (OnceAnswer, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return OnceAnswer{}, Stamp{}, err
	}
	once := func(round *engine.Round) (OnceAnswer, error) { return once.Do(round, &c) }
	if c.By == nil { // a shard that has a claimed task has its queue
		return change(ctx, r, inScope(ctx, onTask(c.Hold.Namespace, c.Hold.ID), once))
	}
	return withQueues(ctx, r, c.Hold.Namespace, []string{c.Queue}, once)
}

// OnceHolds says whether a claim still holds its task.
func (b *Broker) OnceHolds(ctx context.Context, ns string, h OnceHolder) (bool, error) {
	r, err := b.replica(h.ID.Shard())
	if err != nil {
		return false, err
	}
	holds, _, err := read(ctx, r, func(from store.Reader) (bool, error) { return once.ClaimHolds(from, ns, h), nil })
	return holds, err
}

// OnceUntil is when the last once key of some slots ends that a queue has in a shard; 0: it has none.
func (b *Broker) OnceUntil(ctx context.Context, shardID uint32, ns, name string, slots task.SlotSet) (Time, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, err
	}
	last, _, err := read(ctx, r, func(from store.Reader) (Time, error) { return once.LastEnd(from, ns, name, slots) })
	return last, err
}
