package fanout

import (
	"context"

	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Scoped is a Cluster for calls that may be limited to some queues.
type Scoped struct{ Cluster }

// Place implements Cluster.
func (c Scoped) Place(ctx context.Context, ns, queue string) (queues.Queue, error) {
	if err := callinfo.MayUse(ctx, queue); err != nil {
		return queues.Queue{}, err
	}
	return c.Cluster.Place(ctx, ns, queue)
}

// Copied implements Cluster. It has no copies of queues beyond the scope; Queue and Place say why.
func (c Scoped) Copied(ctx context.Context, ns, queue string) (queues.Queue, bool) {
	if !task.ScopeOf(ctx).Sees(queue) {
		return queues.Queue{}, false
	}
	return c.Cluster.Copied(ctx, ns, queue)
}

// Queue implements Cluster.
func (c Scoped) Queue(ctx context.Context, ns, name string) (queues.Queue, bool, error) {
	if err := callinfo.MayUse(ctx, name); err != nil {
		return queues.Queue{}, false, err
	}
	return c.Cluster.Queue(ctx, ns, name)
}

// Current implements Cluster.
func (c Scoped) Current(ctx context.Context, ns, name string) (queues.Queue, bool, error) {
	if err := callinfo.MayUse(ctx, name); err != nil {
		return queues.Queue{}, false, err
	}
	return c.Cluster.Current(ctx, ns, name)
}

// PutQueue implements Cluster.
func (c Scoped) PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue,
	error) {
	if err := callinfo.MayUse(ctx, name); err != nil {
		return queues.Queue{}, err
	}
	return c.Cluster.PutQueue(ctx, action, ns, name, change)
}

// DropQueue implements Cluster.
func (c Scoped) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	if err := callinfo.MayUse(ctx, name); err != nil {
		return err
	}
	return c.Cluster.DropQueue(ctx, by, ns, name)
}

// Spread implements Cluster.
func (c Scoped) Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error) {
	if err := callinfo.MayUse(ctx, name); err != nil {
		return queues.Queue{}, err
	}
	return c.Cluster.Spread(ctx, by, ns, name, target)
}

// Queues returns the queues that the call may see.
func (c Scoped) Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error) {
	of.Within = task.ScopeOf(ctx)
	return c.Cluster.Queues(ctx, ns, of)
}

// Cluster is what the gateway needs of the system shard, wherever it is led, and of this node's copy of its tables.
type Cluster interface {
	// Place returns the queue, with its shards, from this node's copy. It creates a queue that doesn't exist.
	Place(ctx context.Context, ns, queue string) (queues.Queue, error)
	// Copied returns a queue from this node's copy, which may be outdated.
	Copied(ctx context.Context, ns, queue string) (queues.Queue, bool)
	Shards() []uint32
	// Queue returns a queue, from this node's copy if the system shard does not answer in time.
	Queue(ctx context.Context, ns, name string) (q queues.Queue, exists bool, err error)
	// Current returns a queue as the system shard has it.
	Current(ctx context.Context, ns, name string) (q queues.Queue, exists bool, err error)
	Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error)
	PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error)
}
