package enqueue

import (
	"context"
	"errors"
	"time"

	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Map is this node's copy of the queues. It may be out of date.
type Map interface {
	Queue(ns, name string) (queues.Queue, bool)
	// Learned adds a queue as just read, Dropped records that it does not exist.
	Learned(queues.Queue)
	Dropped(ns, name string)
}

// Directory gives access to the system shard's queues, wherever it is led. Reads return what was last written; only Place, Copied and
// Shards use this node's copy.
type Directory struct {
	forward *forward.Forwarder
	copy    Map
}

// NewDirectory returns a directory over the copy of this node.
func NewDirectory(f *forward.Forwarder, copy Map) *Directory { return &Directory{f, copy} }

// Place returns a queue, which is created at its first use.
func (d *Directory) Place(ctx context.Context, ns, name string) (queues.Queue, error) {
	if q, ok := d.copy.Queue(ns, name); ok {
		return q, nil
	}
	q, err := queues.Place.Call(ctx, d.forward, queues.Name{Namespace: ns, Name: name})
	if err == nil {
		d.copy.Learned(q)
	}
	return q, err
}

// Copied returns a queue from this node's copy, which may be out of date.
func (d *Directory) Copied(_ context.Context, ns, name string) (queues.Queue, bool) {
	return d.copy.Queue(ns, name)
}

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
	q, err = queues.Find.Call(ctx, d.forward, queues.Name{Namespace: ns, Name: name})
	if errors.Is(err, task.ErrNotFound) {
		return queues.Queue{}, false, nil
	}
	return q, err == nil, err
}

// Queues returns the queues of a namespace that match a query.
func (d *Directory) Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error) {
	return queues.List.Call(ctx, d.forward, queues.Listing{Namespace: ns, Query: of})
}

// maxChanges is how often a change is retried because another was faster.
const maxChanges = 10

// PutQueue changes the configuration of a queue, which is created if need be. change runs here, on what was just read, and the result is
// written unless another change was faster; so it may run more than once.
func (d *Directory) PutQueue(ctx context.Context, action auditlog.Action, ns, name string,
	change func(*task.QueueConfig) error) (queues.Queue, error) {
	for range maxChanges {
		old, exists, err := d.Current(ctx, ns, name)
		if err != nil {
			return queues.Queue{}, err
		}
		a := queues.Replacement{Namespace: ns, Name: name, Version: old.Config.Version, Config: old.Config, By: action.By,
			Action: action.Action}
		if !exists {
			a.Config.Settings = task.DefaultSettings()
		}
		if err := change(&a.Config); err != nil {
			return queues.Queue{}, err
		}
		q, err := queues.Replace.Call(ctx, d.forward, a)
		if err == nil {
			d.copy.Learned(q)
			return q, nil
		}
		if !errors.Is(err, queues.ErrChanged) {
			return queues.Queue{}, err
		}
	}
	return queues.Queue{}, task.Unavailable(time.Second, "queue %q: too many concurrent changes", name)
}

// Spread spreads a queue over shards: see queues.Queues.
func (d *Directory) Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error) {
	q, err := queues.Spread.Call(ctx, d.forward, queues.Spreading{Namespace: ns, Name: name, Onto: target, By: by})
	if err == nil {
		d.copy.Learned(q)
	}
	return q, err
}

// DropQueue removes an empty queue.
func (d *Directory) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	_, err := queues.Drop.Call(ctx, d.forward, queues.Removal{Namespace: ns, Name: name, By: by})
	if err == nil || errors.Is(err, task.ErrNotFound) {
		d.copy.Dropped(ns, name)
	}
	return err
}

// EnsureQueue makes sure that a shard has its copy of a queue's configuration. It is for broker.Config.
func (d *Directory) EnsureQueue(ctx context.Context, shard uint32, ns, name string) error {
	q, err := queues.Ensure.Call(ctx, d.forward, queues.InShard{Namespace: ns, Name: name, Shard: shard})
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
