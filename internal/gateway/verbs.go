package gateway

import (
	"context"
	"errors"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// seeing runs verbs for the calls of the API, and notes of which moments of which shards their answers tell.
type seeing struct{ verb.Runner }

// Do implements verb.Runner.
func (s seeing) Do(ctx context.Context, c verb.Call) error {
	err := s.Runner.Do(ctx, c)
	for _, part := range append(c.Parts(), c) {
		if a, ok := part.Answer().(interface{ Stamp() broker.Stamp }); ok {
			saw(ctx, a.Stamp())
		}
	}
	return err
}

// onShard is what a call takes on a shard.
func onShard(ctx context.Context, shard uint32) broker.OnShard {
	return broker.OnShard{Shard: shard, Namespace: namespaceOf(ctx)}
}

// onQueue is what a call takes on the part of a queue in a shard.
func onQueue(ctx context.Context, shard uint32, name string) broker.OnQueue {
	return broker.OnQueue{OnShard: onShard(ctx, shard), Queue: name}
}

// eachPart does something with the parts of a queue, one after the other. A shard to which no task of the queue has come yet is passed over.
func eachPart(q cluster.Queue, do func(shard uint32) error) error {
	for _, shard := range q.Shards() {
		if err := do(shard); err != nil && !errors.Is(err, task.ErrNotFound) {
			return err
		}
	}
	return nil
}
