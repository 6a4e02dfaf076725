package router

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// Explain returns why a task is not running. While its shard has no leader, that is the first reason, besides what a replica knows of the
// task.
func (t *Tasks) Explain(ctx context.Context, ns string, id task.ID) (*broker.Explanation, broker.Stamp, error) {
	if err := t.forward.CheckTask(ctx, id); err != nil {
		return nil, broker.Stamp{}, err
	}
	out, err := broker.ExplainTask.Call(ctx, t.forward, broker.Explained{Namespace: ns, ID: id})
	var none *forward.NoLeader
	if !errors.As(err, &none) {
		return out.Explanation, out.At, err
	}
	why := none.Reason()
	v, at, age, err := t.Peek(ctx, ns, id)
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

// ExplainQueue returns what the ready tasks of a queue wait for in a shard. While the shard has no leader, that is the only reason.
func (t *Tasks) ExplainQueue(ctx context.Context, shard uint32, ns, name string) (*broker.QueueExplanation, broker.Stamp, error) {
	out, err := broker.ExplainQueue.Call(ctx, t.forward, broker.OnQueue{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Queue: name})
	var none *forward.NoLeader
	if errors.As(err, &none) {
		return &broker.QueueExplanation{Reasons: []broker.Reason{none.Reason()}, Partial: true}, broker.Stamp{}, nil
	}
	return out.Explanation, out.At, err
}
