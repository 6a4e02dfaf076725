package gateway

import (
	"context"
	"errors"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// stampRecorder runs verbs for calls of the API, and records which state of which shards their answers reflect.
type stampRecorder struct{ verb.Runner }

// Do implements verb.Runner.
func (s stampRecorder) Do(ctx context.Context, c verb.Call) error {
	err := s.Runner.Do(ctx, c)
	for _, part := range append(c.Parts(), c) {
		if a, ok := part.Answer().(interface{ Stamp() broker.Stamp }); ok {
			noteStamp(ctx, a.Stamp())
		}
	}
	return err
}

// onShard returns the arguments that address a shard.
func onShard(ctx context.Context, shard uint32) broker.OnShard {
	return broker.OnShard{Shard: shard, Namespace: namespaceOf(ctx)}
}

// onQueue returns the arguments that address the part of a queue in a shard.
func onQueue(ctx context.Context, shard uint32, name string) broker.OnQueue {
	return broker.OnQueue{OnShard: onShard(ctx, shard), Queue: name}
}

// eachPart calls do for the parts of a queue, one after the other. It skips shards that no task of the queue has come to yet.
func eachPart(q queues.Queue, do func(shard uint32) error) error {
	for _, shard := range q.Shards() {
		if err := do(shard); err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}
	}
	return nil
}
