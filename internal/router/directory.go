package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/auditlog"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Directory gives access to the system shard's queues, wherever it is led. Reads return what was last written; only Place, Copied and
// Shards use this node's copy.
type Directory struct{ r *Router }

// Directory returns the router's Directory.
func (r *Router) Directory() Directory { return Directory{r} }

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

// onSystem defines a method that calls Control.
func onSystem[A, R any](name string, idempotent bool, run func(ctx context.Context, c Control, a A) (R, error)) *method[A, R] {
	return serve(&method[A, R]{Rule: verb.Rule{Name: name, Idempotent: idempotent}, run: func(ctx context.Context, r *Router, a A) (R, error) {
		out, err := run(ctx, r.cfg.Control, a)
		return out, broker.Refusal(systemShard, err)
	}})
}

var (
	placeQueue = onSystem("place", true, func(ctx context.Context, c Control, a queueArgs) (queues.Queue, error) {
		return c.Place(ctx, a.Namespace, a.Name)
	})
	getQueue = onSystem("get-queue", true, func(ctx context.Context, c Control, a queueArgs) (queues.Queue, error) {
		return c.Queue(ctx, a.Namespace, a.Name)
	})
	getQueues = onSystem("get-queues", true, func(ctx context.Context, c Control, a queueArgs) ([]queues.Queue, error) {
		return c.Queues(ctx, a.Namespace, a.List)
	})
	putQueue = onSystem("put-queue", false, func(ctx context.Context, c Control, a queueArgs) (queues.Queue, error) {
		return c.PutQueue(ctx, auditlog.Action{By: a.By, Action: a.Action}, a.Namespace, a.Name, a.change)
	})
	dropQueue = onSystem("drop-queue", false, func(ctx context.Context, c Control, a queueArgs) (nothing, error) {
		return nothing{}, c.DropQueue(ctx, a.By, a.Namespace, a.Name)
	})
	ensureQueue = onSystem("ensure-queue", true, func(ctx context.Context, c Control, a queueArgs) (queues.Queue, error) {
		if a.Shard == 0 { // the request is from a node of feature level 1, which takes every queue to be in one shard
			return c.PutQueue(ctx, auditlog.Action{}, a.Namespace, a.Name, func(*task.QueueConfig) error { return nil })
		}
		return c.EnsureQueue(ctx, a.Shard, a.Namespace, a.Name)
	})
	spreadQueue = onSystem("spread-queue", true, func(ctx context.Context, c Control, a queueArgs) (queues.Queue, error) {
		return c.Spread(ctx, a.By, a.Namespace, a.Name, a.Onto)
	})
	hasShard = onSystem("has-shard", true, func(ctx context.Context, c Control, id uint32) (bool, error) { return c.HasShard(ctx, id) })
)

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
func (d Directory) Place(ctx context.Context, ns, name string) (queues.Queue, error) {
	if q, ok := d.r.cfg.Map.Queue(ns, name); ok {
		return q, nil
	}
	q, err := call(ctx, d.r, placeQueue, systemShard, queueArgs{Namespace: ns, Name: name})
	if err == nil {
		d.r.cfg.Map.Learned(q)
	}
	return q, err
}

// Copied returns a queue from this node's copy, which may be out of date.
func (d Directory) Copied(ns, name string) (queues.Queue, bool) { return d.r.cfg.Map.Queue(ns, name) }

// Shards returns the data shards.
func (d Directory) Shards() []uint32 { return d.r.cfg.Map.Shards() }

// Queue returns a queue.
func (d Directory) Queue(ctx context.Context, ns, name string) (q queues.Queue, exists bool, err error) {
	q, err = call(ctx, d.r, getQueue, systemShard, queueArgs{Namespace: ns, Name: name})
	if errors.Is(err, task.ErrNotFound) {
		return queues.Queue{}, false, nil
	}
	return q, err == nil, err
}

// Queues returns the queues of a namespace that match a query.
func (d Directory) Queues(ctx context.Context, ns string, of queues.Query) ([]queues.Queue, error) {
	return call(ctx, d.r, getQueues, systemShard, queueArgs{Namespace: ns, List: of})
}

// maxChanges is how often a change is retried because another was faster.
const maxChanges = 10

// PutQueue changes the configuration of a queue, which is created if need be. change runs here, on what was just read, and the result is
// written unless another change was faster; so it may run more than once.
func (d Directory) PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (queues.Queue, error) {
	for range maxChanges {
		old, exists, err := d.Queue(ctx, ns, name)
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
		q, err := call(ctx, d.r, putQueue, systemShard, a)
		if err == nil {
			d.r.cfg.Map.Learned(q)
			return q, nil
		}
		if !errors.Is(err, errChanged) {
			return queues.Queue{}, err
		}
	}
	return queues.Queue{}, task.Unavailable(time.Second, "queue %q: too many concurrent changes", name)
}

// Spread spreads a queue over shards: see cluster.Control.
func (d Directory) Spread(ctx context.Context, by task.Author, ns, name string, target queues.SpreadTarget) (queues.Queue, error) {
	q, err := call(ctx, d.r, spreadQueue, systemShard, queueArgs{Namespace: ns, Name: name, Onto: target, By: by})
	if err == nil {
		d.r.cfg.Map.Learned(q)
	}
	return q, err
}

// DropQueue removes an empty queue.
func (d Directory) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	_, err := call(ctx, d.r, dropQueue, systemShard, queueArgs{Namespace: ns, Name: name, By: by})
	if err == nil || errors.Is(err, task.ErrNotFound) {
		d.r.cfg.Map.Dropped(ns, name)
	}
	return err
}

// EnsureQueue makes sure that a shard has its copy of a queue's configuration. It is for broker.Config.
func (r *Router) EnsureQueue(ctx context.Context, shard uint32, ns, name string) error {
	q, err := call(ctx, r, ensureQueue, systemShard, queueArgs{Namespace: ns, Name: name, Shard: shard})
	if err != nil {
		return err
	}
	r.cfg.Map.Learned(q)
	if !q.In(shard) {
		return movedTo(q)
	}
	return nil
}

// refresh reads which shards have a queue now. If the queue does not exist, it is created at its next use.
func (r *Router) refresh(ctx context.Context, ns, name string) error {
	q, exists, err := r.Directory().Queue(ctx, ns, name)
	switch {
	case err != nil:
		return err
	case exists:
		r.cfg.Map.Learned(q)
	default:
		r.cfg.Map.Dropped(ns, name)
	}
	return nil
}

// whoLeads asks a shard's leader for its term and index.
var whoLeads = serve(&method[uint32, leaderAnswer]{Rule: verb.Rule{Name: "leader", Idempotent: true}, run: func(_ context.Context, r *Router, shard uint32) (leaderAnswer, error) {
	node, term, index := r.cfg.Broker.Leader(shard)
	if uint32(node) != r.cfg.Node {
		return leaderAnswer{}, &broker.NotLeader{Shard: shard, Node: uint32(node)}
	}
	return leaderAnswer{node, term, index}, nil
}})

type leaderAnswer struct{ Node, Term, Index uint64 }

// leaderTime bounds how long Leader asks others: it is for pages and probes, which can do without.
const leaderTime = 500 * time.Millisecond

// Leader returns the leader of a shard: by this node's replica, otherwise by asking others; 0 if it is unknown.
func (r *Router) Leader(ctx context.Context, shard uint32) (node, term, index uint64) {
	if node, term, index = r.cfg.Broker.Leader(shard); node != 0 {
		return node, term, index
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	if a, err := callRemote(ctx, r, whoLeads, shard, shard); err == nil {
		return a.Node, a.Term, a.Index
	}
	return uint64(r.leaders.of(shard)), 0, 0
}

// maxMapAge is how old this node's copy of the map may be: an older one may route every call to the wrong node.
const maxMapAge = 30 * time.Second

// Ready returns why this node should get no calls now; nil: it should.
func (r *Router) Ready() error {
	if age := r.cfg.Map.Age(); age > maxMapAge {
		return task.Unavailable(time.Second, "the map of the cluster is %s old", age.Truncate(time.Second))
	}
	for _, shard := range append([]uint32{systemShard}, r.cfg.Map.Shards()...) {
		if slices.Contains(r.cfg.Map.Replicas(shard), r.cfg.Node) && r.leaderHere(shard) == 0 {
			return task.Unavailable(time.Second, "shard %d: no leader is known", shard)
		}
	}
	return nil
}

// leaderHere returns the leader of a shard according to this node's replica; 0: it knows none.
func (r *Router) leaderHere(shard uint32) uint32 {
	if shard == systemShard {
		return r.cfg.SystemLeader()
	}
	node, _, _ := r.cfg.Broker.Leader(shard)
	return uint32(node)
}
