package router

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

type peekArgs struct {
	Namespace string
	ID        task.ID
}

type peekAnswer struct {
	View *broker.View
	At   broker.Stamp
	Age  time.Duration
}

var peekTask = serve(&method[peekArgs, peekAnswer]{Rule: verb.Rule{Name: "peek", Idempotent: true}, run: func(ctx context.Context, r *Router, a peekArgs) (out peekAnswer, err error) {
	out.View, out.At, out.Age, err = r.cfg.Broker.Peek(ctx, a.Namespace, a.ID)
	return out, err
}})

// Peek reads a task from any replica of its shard: this node's if it has one, otherwise the first that answers.
func (r *Router) Peek(ctx context.Context, ns string, id task.ID) (v *broker.View, at broker.Stamp, age time.Duration, err error) {
	a := peekArgs{ns, id}
	replicas := r.cfg.Map.Replicas(id.Shard())
	if id.Shard() == systemShard || len(replicas) == 0 {
		return nil, at, 0, task.NotFound("task", id.String())
	}
	var out peekAnswer
	if slices.Contains(replicas, r.cfg.Node) {
		if out, err = peekTask.run(ctx, r, a); err == nil || !retryElsewhere(&peekTask.Rule, err) {
			return out.View, out.At, out.Age, err
		}
	}
	for _, node := range replicas {
		if node == r.cfg.Node {
			continue
		}
		c := peekTask.call(id.Shard(), a)
		err = r.ask(ctx, c, id.Shard(), node)
		if out = c.Resp; err == nil || !retryElsewhere(&peekTask.Rule, err) {
			return out.View, out.At, out.Age, err
		}
	}
	return nil, at, 0, task.Unavailable(noLeaderRetry, "shard %d: none of its replicas answers: %v", id.Shard(), err)
}
