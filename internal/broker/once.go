package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The engine's words for once keys.
type (
	OnceCall   = engine.OnceCall
	OnceAnswer = engine.OnceAnswer
	OnceHolder = engine.OnceHolder
	OnceVerb   = engine.OnceVerb
	OnceState  = engine.OnceState
)

// What a claim does with a once key, and how that stands then.
const (
	OnceBegin   = engine.OnceBegin
	OnceFinish  = engine.OnceFinish
	OnceAbandon = engine.OnceAbandon

	OnceFree = engine.OnceFree
	OnceRun  = engine.OnceRun
	OnceDone = engine.OnceDone
	OnceHeld = engine.OnceHeld
	OnceAway = engine.OnceAway
)

// Once runs a verb on a once key in one shard: the task's, or the one where the key lies.
func (b *Broker) Once(ctx context.Context, shardID uint32, c OnceCall) (OnceAnswer, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return OnceAnswer{}, Stamp{}, err
	}
	once := func(round *engine.Round) (OnceAnswer, error) { return engine.Once(round, &c) }
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
	holds, _, err := read(ctx, r, func(from store.Reader) (bool, error) { return engine.OnceHolds(from, ns, h), nil })
	return holds, err
}

// OnceUntil is when the last once key of some slots ends that a queue has in a shard; 0: it has none.
func (b *Broker) OnceUntil(ctx context.Context, shardID uint32, ns, name string, slots task.SlotSet) (Time, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return 0, err
	}
	last, _, err := read(ctx, r, func(from store.Reader) (Time, error) { return engine.OnceUntil(from, ns, name, slots) })
	return last, err
}
