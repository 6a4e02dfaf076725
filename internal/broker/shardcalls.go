package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// ShardCalls are the calls on tasks and queues of a shard. Broker has them for the shards that are led on this node; the layers
// above have the same for all, wherever they are led.
type ShardCalls interface {
	Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]Enqueued, Stamp, error)
	Claim(ctx context.Context, shard uint32, c ClaimCall, wait time.Duration) ([]Claimed, Stamp, error)
	Await(ctx context.Context, shard uint32, c ClaimCall) error
	Settle(ctx context.Context, shard uint32, calls []Settle) ([]Settled, Stamp, error)

	Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*View, Stamp, error)
	Peek(ctx context.Context, ns string, id task.ID) (v *View, at Stamp, age time.Duration, err error)

	Draining() <-chan struct{}
}
