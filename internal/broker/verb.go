package broker

import (
	"context"
	"math/rand/v2"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on data shards. Each is described once, next to its request and answer: what the request embeds
// determines the shard, and changes, reads or onReplica how it runs there. A router brings it to the leader, and a
// Broker runs it on the shards that this node leads.
var Verbs verb.Table[*Broker]

// Do implements verb.Runner for the shards that this node leads.
func (b *Broker) Do(ctx context.Context, c verb.Call) error { return c.Run(ctx, b) }

// OnShard is a request to a shard.
type OnShard struct {
	Shard     uint32
	Namespace string
}

// TargetShard implements verb.Sharded.
func (o *OnShard) TargetShard() uint32 { return o.Shard }

// SetShard implements verb.AnyShard.
func (o *OnShard) SetShard(shard uint32) { o.Shard = shard }

// OnQueue is a request to the partition of a queue in a shard.
type OnQueue struct {
	OnShard
	Queue string
}

// OnTask is a request about a task.
type OnTask struct {
	Namespace string
	ID        task.ID
}

// TargetShard implements verb.Sharded.
func (o *OnTask) TargetShard() uint32 { return o.ID.Shard() }

// ObjectID implements verb.ByID.
func (o *OnTask) ObjectID() (kind, id string) { return "task", o.ID.String() }

func (o *OnTask) within(round *engine.Round, s task.Scope) error {
	return engine.TaskWithin(round, s, o.Namespace, o.ID)
}

// Authored is a request of an operator, who is recorded in the audit log.
type Authored struct{ By task.Author }

// Stamped is an answer that carries the moment of the shard that it describes.
type Stamped struct{ At Stamp }

// Stamp returns that moment.
func (s *Stamped) Stamp() Stamp { return s.At }

func (s *Stamped) stamp(at Stamp) { s.At = at }

// Shown is an object as it is, or after a call.
type Shown[T any] struct {
	View T
	Stamped
}

// Paged is a page of a list.
type Paged[P any] struct {
	Page P
	verb.Lack
	Stamped
}

// Explains is the explanation why something waits.
type Explains[E any] struct {
	Explanation E
	Stamped
}

// placed is a request that a shard's replica can run.
type placed[Req any] interface {
	*Req
	verb.Sharded
}

// onReplica describes a verb that needs more than one round, or more than one read of the state.
func onReplica[Req, Resp any, P placed[Req]](rule verb.Rule, run func(ctx context.Context, r *replica, q *Req) (Resp,
	error)) *verb.Verb[Req, Resp] {
	return verb.New(&Verbs, rule, func(b *Broker, ctx context.Context, q Req) (out Resp, err error) {
		r, err := b.replica(P(&q).TargetShard())
		if err != nil {
			return out, err
		}
		return run(ctx, r, &q)
	})
}

// changes describes a verb that is a function of a round. The object of the request must be within the call's scope.
func changes[Req, Resp any, P placed[Req]](rule verb.Rule, fn func(round *engine.Round, q *Req) (Resp, error)) *verb.Verb[Req, Resp] {
	return onReplica[Req, Resp, P](rule, func(ctx context.Context, r *replica, q *Req) (Resp, error) {
		do := func(round *engine.Round) (Resp, error) { return fn(round, q) }
		if scoped, ok := any(q).(interface {
			within(*engine.Round, task.Scope) error
		}); ok {
			do = inScope(ctx, scoped.within, do)
		}
		out, at, err := change(ctx, r, do)
		stamp(&out, at)
		return out, err
	})
}

// reads describes a verb that is a function of the state and of the call's scope.
func reads[Req, Resp any, P placed[Req]](rule verb.Rule, fn func(from store.Reader, scope task.Scope, q *Req) (Resp, error)) *verb.Verb[Req,
	Resp] {
	rule.Idempotent = true
	return onReplica[Req, Resp, P](rule, func(ctx context.Context, r *replica, q *Req) (Resp, error) {
		out, at, err := read(ctx, r, func(from store.Reader) (Resp, error) { return fn(from, task.ScopeOf(ctx), q) })
		stamp(&out, at)
		return out, err
	})
}

func stamp(answer any, at Stamp) {
	if s, ok := answer.(interface{ stamp(Stamp) }); ok {
		s.stamp(at)
	}
}

// newID returns an id for a new object of the shard.
func (r *replica) newID() task.ID {
	now, _ := r.shard.Now()
	return task.NewID(r.id, int64(now)/1000, rand.Uint64())
}
