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
	Tasks(ctx context.Context, shard uint32, ns string, f Filter, cursor []byte, limit int) (Page, Stamp, error)
	Cancel(ctx context.Context, by task.Author, ns string, id task.ID) (*View, Stamp, error)
	Retry(ctx context.Context, by task.Author, ns string, id task.ID) (*View, Stamp, error)
	RunNow(ctx context.Context, by task.Author, ns string, id task.ID) (*View, Stamp, error)
	Discard(ctx context.Context, by task.Author, ns string, id task.ID) (*View, Stamp, error)
	Update(ctx context.Context, by task.Author, ns string, id task.ID, e Edit) (*View, Stamp, error)

	Explain(ctx context.Context, ns string, id task.ID) (*Explanation, Stamp, error)
	ExplainQueue(ctx context.Context, shard uint32, ns, name string) (*QueueExplanation, Stamp, error)

	Queue(ctx context.Context, shard uint32, ns, name string) (QueueInfo, Stamp, error)
	Purge(ctx context.Context, by task.Author, shard uint32, ns, name string) (int64, Stamp, error)
	CloseBreakers(ctx context.Context, by task.Author, shard uint32, ns, name, typ string) (int, Stamp, error)
	DeadGroups(ctx context.Context, shard uint32, ns, queue string, s task.State) ([]Group, bool, Stamp, error)
	Replay(ctx context.Context, shard uint32, ns string, s Selection) (matched, done int64, at Stamp, err error)
	DiscardDead(ctx context.Context, shard uint32, ns string, s Selection) (matched, done int64, at Stamp, err error)
	Draining() <-chan struct{}
}
