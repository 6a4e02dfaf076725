package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// ShardCalls are the calls on the tasks and queues of a shard. Broker implements them for the shards that this node leads; the layers
// above implement them for all shards, wherever they are led.
type ShardCalls interface {
	Enqueue(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]Enqueued, Stamp, error)
	Claim(ctx context.Context, shard uint32, c ClaimCall, wait time.Duration) ([]Claimed, Stamp, error)
	Await(ctx context.Context, shard uint32, c ClaimCall) error
	Settle(ctx context.Context, shard uint32, calls []Settle) ([]Settled, Stamp, error)

	Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*View, Stamp, error)
	Peek(ctx context.Context, ns string, id task.ID) (v *View, at Stamp, age time.Duration, err error)

	Draining() <-chan struct{}
}
