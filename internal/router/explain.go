package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// Explain returns why a task is not running. While its shard has no leader, that is the first reason, besides what a replica knows of the
// task.
func (r *Router) Explain(ctx context.Context, ns string, id task.ID) (*broker.Explanation, broker.Stamp, error) {
	if err := r.checkCopy(ctx, id); err != nil {
		return nil, broker.Stamp{}, err
	}
	out, err := broker.ExplainTask.Call(ctx, r, broker.Explained{Namespace: ns, ID: id})
	var none *noLeader
	if !errors.As(err, &none) {
		return out.Explanation, out.At, err
	}
	why := none.reason()
	v, at, age, err := r.Peek(ctx, ns, id)
	switch {
	case errors.Is(err, task.ErrUnavailable):
		why.Detail += "; none of its replicas could be asked about the task, so its state is unknown"
		return &broker.Explanation{ID: id, Reasons: []broker.Reason{why}}, at, nil
	case errors.Is(err, task.ErrNotFound): // it may have been accepted since
		why.Detail += fmt.Sprintf("; the replica that was asked did not have the task at most %s ago", age.Round(time.Second))
		return &broker.Explanation{ID: id, Reasons: []broker.Reason{why}}, at, nil
	case err != nil:
		return nil, at, err
	}
	e := broker.ExplainView(v)
	if e.State.Ended() {
		return e, at, nil
	}
	why.Detail += fmt.Sprintf("; the task was %s at most %s ago", e.State, age.Round(time.Second))
	e.Reasons = append([]broker.Reason{why}, e.Reasons...)
	return e, at, nil
}

// checkCopy is check, but if this node's copy of the map knows the shard, it does not ask the system shard, which may have no leader
// either.
func (r *Router) checkCopy(ctx context.Context, id task.ID) error {
	if id.Shard() != systemShard && len(r.cfg.Map.Replicas(id.Shard())) > 0 {
		return nil
	}
	return r.check(ctx, id)
}

// ExplainQueue returns what the ready tasks of a queue wait for in a shard. While the shard has no leader, that is the only reason.
func (r *Router) ExplainQueue(ctx context.Context, shard uint32, ns, name string) (*broker.QueueExplanation, broker.Stamp, error) {
	out, err := broker.ExplainQueue.Call(ctx, r, broker.OnQueue{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Queue: name})
	var none *noLeader
	if errors.As(err, &none) {
		return &broker.QueueExplanation{Reasons: []broker.Reason{none.reason()}, Partial: true}, broker.Stamp{}, nil
	}
	return out.Explanation, out.At, err
}

// noLeader is the error of a call that has found no leader of its shard.
type noLeader struct {
	refusal *task.Error
	since   time.Time // the first of the calls that found none began at this time or earlier
}

func (e *noLeader) Error() string { return e.refusal.Message }
func (e *noLeader) Unwrap() error { return e.refusal }

func (e *noLeader) reason() broker.Reason {
	since := broker.TimeOf(e.since)
	return broker.Reason{Code: task.WhyNoLeader, Since: since,
		Detail: fmt.Sprintf("%s; none was found since %s", e.refusal.Message, since.Time().Format(time.RFC3339)),
		Change: "most of the shard's replicas run and reach each other: pawl cluster status"}
}
