package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// QueueName names a queue.
type QueueName struct{ Namespace, Name string }

// workers asks the nodes what they know of the workers of some queues, in their order.
func (b *Broker) workers(ctx context.Context, queues []QueueName) []task.QueueWorkers {
	out := make([]task.QueueWorkers, len(queues))
	if b.cfg.Workers != nil && len(queues) > 0 {
		copy(out, b.cfg.Workers(ctx, queues))
	}
	return out
}

// Explain says why a task is not running.
func (b *Broker) Explain(ctx context.Context, ns string, id task.ID) (*Explanation, Stamp, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	queue, at, err := read(ctx, r, func(from store.Reader) (string, error) { return explain.WaitsIn(from, ns, id), nil })
	if err != nil {
		return nil, at, err
	}
	var workers task.QueueWorkers
	if queue != "" {
		workers = b.workers(ctx, []QueueName{{ns, queue}})[0]
	}
	return change(ctx, r, inScope(ctx, onTask(ns, id), func(round *engine.Round) (*Explanation, error) {
		return explain.Task(round, ns, id, func(queue string) explain.Workers { return r.workersOf(ns, queue, workers) }, r.deliveries.of)
	}))
}

// ExplainQueue says what the ready tasks of a queue wait for in a shard.
func (b *Broker) ExplainQueue(ctx context.Context, shardID uint32, ns, name string) (*QueueExplanation, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, Stamp{}, err
	}
	workers := b.workers(ctx, []QueueName{{ns, name}})[0]
	g, at, err := change(ctx, r, func(round *engine.Round) (*explain.Memory, error) {
		return explain.MemoryOf(round, ns, name, func(queue string) explain.Workers { return r.workersOf(ns, queue, workers) })
	})
	if err != nil {
		return nil, at, err
	}
	return read(ctx, r, func(from store.Reader) (*QueueExplanation, error) { return explain.Queue(from, ns, name, g) })
}

// ExplainView is what can be said of a task without the leader of its shard, which misses the reason for that itself.
func ExplainView(v *View) *Explanation { return explain.View(v) }
