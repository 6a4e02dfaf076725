package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Explain says why a task is not running.
func (b *Broker) Explain(ctx context.Context, ns string, id task.ID) (*Explanation, Stamp, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	return change(ctx, r, inScope(ctx, onTask(ns, id), func(round *engine.Round) (*Explanation, error) {
		return engine.Explain(round, ns, id, func(queue string) engine.Takers { return r.takers(ns, queue) }, r.errands.of)
	}))
}

// ExplainQueue says what the ready tasks of a queue wait for in a shard.
func (b *Broker) ExplainQueue(ctx context.Context, shardID uint32, ns, name string) (*QueueExplanation, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	g, at, err := change(ctx, r, func(round *engine.Round) (*engine.Glance, error) {
		return engine.GlanceAt(round, ns, name, func(queue string) engine.Takers { return r.takers(ns, queue) })
	})
	if err != nil {
		return nil, at, err
	}
	return read(ctx, r, func(from store.Reader) (*QueueExplanation, error) { return engine.ExplainQueue(from, ns, name, g) })
}

// ExplainView is what can be said of a task without the leader of its shard, which misses the reason for that itself.
func ExplainView(v *View) *Explanation { return engine.ExplainView(v) }
