package gateway

import (
	"context"
	"errors"
	"slices"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// ExplainTask explains why a task is not running.
func (g *producerService) ExplainTask(ctx context.Context, r *pawlv1.ExplainTaskRequest) (*pawlv1.ExplainTaskResponse, error) {
	id, err := apiproto.IDOf("task_id", r.GetTaskId())
	if err != nil {
		return nil, err
	}
	e, at, err := g.broker.Explain(ctx, callinfo.Namespace(ctx), id)
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.ExplainTaskResponse{TaskId: id.String(), State: apiproto.StateProto(e.State), Status: apiproto.StatusProto(e.State),
		Queue: e.Queue, Type: e.Type, Key: e.Key}
	for i := range e.Reasons {
		out.Reasons = append(out.Reasons, apiproto.ReasonProto(&e.Reasons[i], e.Queue))
	}
	return out, nil
}

// ExplainQueue explains what the ready tasks of a queue wait for, in all its shards. It finds them in this node's copy of the map
// if possible, since the system shard may have no leader either.
func (g *operatorService) ExplainQueue(ctx context.Context, r *pawlv1.ExplainQueueRequest) (*pawlv1.ExplainQueueResponse, error) {
	name := r.GetQueue()
	q, copied := g.cluster.Copied(ctx, callinfo.Namespace(ctx), name)
	if !copied {
		var err error
		if q, err = g.Known(ctx, name); err != nil {
			return nil, err
		}
	}
	parts, err := g.explainParts(ctx, q)
	if err != nil {
		return nil, err
	}
	found := slices.ContainsFunc(parts.Value, func(e *broker.QueueExplanation) bool { return e != nil })
	if !found && len(parts.Missing) == 0 { // no task came yet, or the queue was deleted
		if _, err := g.Known(ctx, name); err != nil {
			return nil, err
		}
	}
	out := apiproto.ExplainedQueue(q, parts.Value)
	out.Missing = apiproto.MissingProto(parts.Missing)
	out.Partial = out.Partial || len(parts.Missing) > 0
	return out, nil
}

// explainParts asks the shards of a queue; nil: the queue has nothing there. One without a leader is missing, and the
// reason why tasks wait.
func (g *operatorService) explainParts(ctx context.Context, q queues.Queue) (verb.Partial[[]*broker.QueueExplanation], error) {
	shards := q.Shards()
	parts, err := verb.AskShards(ctx, shards, func(ctx context.Context, i int) (*broker.QueueExplanation, error) {
		e, at, err := g.broker.ExplainQueue(ctx, shards[i], callinfo.Namespace(ctx), q.Name)
		callinfo.Note(ctx, at)
		if errors.Is(err, task.ErrNotFound) {
			return nil, nil
		}
		return e, err
	})
	if err == nil {
		err = parts.CheckAny(len(shards))
	}
	for i, e := range parts.Value {
		if e != nil && len(e.Reasons) > 0 && e.Reasons[0].Code == task.WhyNoLeader {
			parts.Missing = append(parts.Missing, verb.Missing{Shard: shards[i], Why: e.Reasons[0].Detail})
		}
	}
	parts.Missing = verb.JoinMissing(parts.Missing)
	return parts, err
}
