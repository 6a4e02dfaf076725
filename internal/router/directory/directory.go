package directory

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// Map is this node's copy of the queues. It may be out of date.
type Map interface {
	Queue(ns, name string) (queues.Queue, bool)
	// Learned adds a queue as just read, Dropped records that it does not exist.
	Learned(queues.Queue)
	Dropped(ns, name string)
}

// Control changes and reads queues where the system shard is led; elsewhere it returns the shard's error.
type Control interface {
	// Place returns a queue, which is created at its first use.
	Place(ctx context.Context, ns, name string) (queues.Queue, error)
	Queue(ctx context.Context, ns, name string) (queues.Queue, error)
	Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error)
	// PutQueue returns the error of change unchanged if it is a *task.Error.
	PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error)
	DropQueue(ctx context.Context, by task.Author, ns, name string) error
	// EnsureQueue makes sure that a shard has its copy of a queue, if it has a part of the queue.
	EnsureQueue(ctx context.Context, shard uint32, ns, name string) (queues.Queue, error)
	// Spread spreads a queue over shards.
	Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error)
}

// Directory gives access to the system shard's queues, wherever it is led. Reads return what was last written; only Place, Copied and
// Shards use this node's copy.
type Directory struct {
	forward *forward.Forwarder
	copy    Map

	place, get, put, ensure, spread systemCaller[queues.Queue]
	list                            systemCaller[[]queues.Queue]
	drop                            systemCaller[nothing]
}

type systemCaller[R any] = forward.Caller[queueArgs, R]

type nothing struct{}

type queueArgs struct {
	Namespace string
	Name      string
	List      queues.Query
	Version   uint64
	Config    task.QueueConfig
	Shard     uint32
	Onto      queues.SpreadTarget
	By        task.Author
	Action    task.Action
}

// New returns a directory over the control and the copy of this node.
func New(f *forward.Forwarder, c Control, copy Map) *Directory {
	return &Directory{forward: f, copy: copy,
		place: forward.RegisterSystem(f, "place", true, func(ctx context.Context, a queueArgs) (queues.Queue, error) {
			return c.Place(ctx, a.Namespace, a.Name)
		}),
		get: forward.RegisterSystem(f, "get-queue", true, func(ctx context.Context, a queueArgs) (queues.Queue, error) {
			return c.Queue(ctx, a.Namespace, a.Name)
		}),
		list: forward.RegisterSystem(f, "get-queues", true, func(ctx context.Context, a queueArgs) ([]queues.Queue, error) {
			return c.Queues(ctx, a.Namespace, a.List)
		}),
		put: forward.RegisterSystem(f, "put-queue", false, func(ctx context.Context, a queueArgs) (queues.Queue, error) {
			return c.PutQueue(ctx, auditlog.Action{By: a.By, Action: a.Action}, a.Namespace, a.Name, a.change)
		}),
		drop: forward.RegisterSystem(f, "drop-queue", false, func(ctx context.Context, a queueArgs) (nothing, error) {
			return nothing{}, c.DropQueue(ctx, a.By, a.Namespace, a.Name)
		}),
		ensure: forward.RegisterSystem(f, "ensure-queue", true, func(ctx context.Context, a queueArgs) (queues.Queue, error) {
			return c.EnsureQueue(ctx, a.Shard, a.Namespace, a.Name)
		}),
		spread: forward.RegisterSystem(f, "spread-queue", true, func(ctx context.Context, a queueArgs) (queues.Queue, error) {
			return c.Spread(ctx, a.By, a.Namespace, a.Name, a.Onto)
		}),
	}
}

// errChanged means that the configuration is no longer the one that a change was based on.
var errChanged = &task.Error{Code: task.CodeConflict, Reason: "changed", Message: "the queue's configuration was changed concurrently"}

// change replaces the configuration, if it is still the version that the new one is based on.
func (a queueArgs) change(c *task.QueueConfig) error {
	if c.Version != a.Version {
		return errChanged
	}
	version, created := c.Version, c.CreatedAt
	*c = a.Config
	c.Version, c.CreatedAt = version, created
	return nil
}

// Place returns a queue, which is created at its first use.
func (d *Directory) Place(ctx context.Context, ns, name string) (queues.Queue, error) {
	if q, ok := d.copy.Queue(ns, name); ok {
		return q, nil
	}
	q, err := d.place.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, Name: name})
	if err == nil {
		d.copy.Learned(q)
	}
	return q, err
}

// Copied returns a queue from this node's copy, which may be out of date.
func (d *Directory) Copied(ns, name string) (queues.Queue, bool) { return d.copy.Queue(ns, name) }

// Shards returns the data shards.
func (d *Directory) Shards() []uint32 { return d.forward.Shards() }

// CopyTime is how long the system shard may take to describe a queue that this node's copy has.
const CopyTime = 500 * time.Millisecond

// Queue returns a queue. If the system shard does not answer in time, this node's copy does, which may lack a new part of the queue: reads,
// and calls on single tasks, need that shard only for new queues.
func (d *Directory) Queue(ctx context.Context, ns, name string) (q queues.Queue, exists bool, err error) {
	copied, known := d.copy.Queue(ns, name)
	if !known {
		return d.Current(ctx, ns, name)
	}
	soon, cancel := context.WithTimeout(ctx, CopyTime)
	defer cancel()
	q, exists, err = d.Current(soon, ns, name)
	if err != nil && ctx.Err() == nil && (soon.Err() != nil || errors.Is(err, task.ErrUnavailable)) {
		return copied, true, nil
	}
	return q, exists, err
}

// Current returns a queue as the system shard has it.
func (d *Directory) Current(ctx context.Context, ns, name string) (q queues.Queue, exists bool, err error) {
	q, err = d.get.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, Name: name})
	if errors.Is(err, task.ErrNotFound) {
		return queues.Queue{}, false, nil
	}
	return q, err == nil, err
}

// Queues returns the queues of a namespace that match a query.
func (d *Directory) Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error) {
	return d.list.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, List: of})
}

// maxChanges is how often a change is retried because another was faster.
const maxChanges = 10

// PutQueue changes the configuration of a queue, which is created if need be. change runs here, on what was just read, and the result is
// written unless another change was faster; so it may run more than once.
func (d *Directory) PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error) {
	for range maxChanges {
		old, exists, err := d.Current(ctx, ns, name)
		if err != nil {
			return queues.Queue{}, err
		}
		a := queueArgs{Namespace: ns, Name: name, Version: old.Config.Version, Config: old.Config, By: action.By, Action: action.Action}
		if !exists {
			a.Config.Settings = task.DefaultSettings()
		}
		if err := change(&a.Config); err != nil {
			return queues.Queue{}, err
		}
		q, err := d.put.Call(ctx, forward.SystemShard, a)
		if err == nil {
			d.copy.Learned(q)
			return q, nil
		}
		if !errors.Is(err, errChanged) {
			return queues.Queue{}, err
		}
	}
	return queues.Queue{}, task.Unavailable(time.Second, "queue %q: too many concurrent changes", name)
}

// Spread spreads a queue over shards: see queues.Queues.
func (d *Directory) Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error) {
	q, err := d.spread.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, Name: name, Onto: target, By: by})
	if err == nil {
		d.copy.Learned(q)
	}
	return q, err
}

// DropQueue removes an empty queue.
func (d *Directory) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	_, err := d.drop.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, Name: name, By: by})
	if err == nil || errors.Is(err, task.ErrNotFound) {
		d.copy.Dropped(ns, name)
	}
	return err
}

// EnsureQueue makes sure that a shard has its copy of a queue's configuration. It is for broker.Config.
func (d *Directory) EnsureQueue(ctx context.Context, shard uint32, ns, name string) error {
	q, err := d.ensure.Call(ctx, forward.SystemShard, queueArgs{Namespace: ns, Name: name, Shard: shard})
	if err != nil {
		return err
	}
	d.copy.Learned(q)
	if !q.In(shard) {
		return forward.MovedTo(q)
	}
	return nil
}

// Refresh reads which shards have a queue now. If the queue does not exist, it is created at its next use.
func (d *Directory) Refresh(ctx context.Context, ns, name string) error {
	q, exists, err := d.Current(ctx, ns, name)
	switch {
	case err != nil:
		return err
	case exists:
		d.copy.Learned(q)
	default:
		d.copy.Dropped(ns, name)
	}
	return nil
}
