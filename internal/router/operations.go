package router

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// The operations of all namespaces are in the first data shard, which every cluster has. So their number is bounded exactly and one shard
// can list them; they are few, and their work is done where the tasks are.

// Operations starts and shows operations.
type Operations struct {
	forward *forward.Forwarder
	queues  *enqueue.Directory
	since   func(ns string) uint64 // the version since which a namespace exists
}

// StartOperation creates an operation, which runs from now on. If it moves tasks to a queue, that is created if need
// be, but only now: see RunStep. spec.Total is counted here.
func (o *Operations) StartOperation(ctx context.Context, ns string, spec broker.OperationSpec) (broker.OperationView, broker.Stamp, error) {
	home, err := o.forward.FirstShard()
	if err == nil && spec.Action == task.Move {
		_, err = o.queues.Place(ctx, ns, spec.ToQueue)
	}
	if err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	count := broker.CountMatches.Make(broker.MatchCount{OnShard: broker.OnShard{Namespace: ns}, Filter: spec.Filter,
		Wait: broker.CountTime})
	if err := o.forward.Do(ctx, count); err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	spec.Total, spec.TotalSoFar = count.Resp.Matches.Count, count.Resp.Matches.Next != nil || len(count.Resp.Missing) > 0
	for _, part := range count.Parts() { // a shard that is missing has counted nothing: there, the operation's own time holds
		at := part.Answer().(*broker.MatchesCounted).At
		spec.Until = append(spec.Until, broker.ShardTime{Shard: at.Shard, At: at.Time})
	}
	out, err := broker.StartOperation.Call(ctx, o.forward, broker.NewOperation{OnShard: broker.OnShard{Shard: home, Namespace: ns},
		Since: o.since(ns), Spec: spec})
	return out.View, out.At, err
}

// RunStep runs a step of an operation in a shard. A step that would move tasks to a queue that was deleted is refused,
// or it would create the queue again, where nobody may look for them. Tasks that are on their way are waited for.
func (o *Operations) RunStep(ctx context.Context, shard uint32, ns string, c broker.StepCall) (broker.StepAnswer, error) {
	gone := false
	if c.Action == task.Move {
		_, exists, err := o.queues.Queue(ctx, ns, c.ToQueue)
		if err != nil {
			return broker.StepAnswer{}, err
		}
		if gone = !exists; gone {
			c.Count = 0 // an earlier call may have done the step already
		}
	}
	out, err := broker.RunStep.Call(ctx, o.forward, broker.StepOrder{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Step: c})
	if a := out.Step; err == nil && gone && a.Away == 0 && a.Matched == 0 && a.Done == 0 && a.Failed == 0 && a.SkippedCount() == 0 {
		err = task.Invalid("to_queue", "queue %q was deleted", c.ToQueue)
	}
	return out.Step, err
}

// Operation returns an operation, waiting up to wait until it no longer runs.
func (o *Operations) Operation(ctx context.Context, ns string, id task.ID, wait time.Duration) (broker.OperationView, broker.Stamp, error) {
	show := func(ctx context.Context, wait time.Duration) (broker.Shown[broker.OperationView], error) {
		return broker.ShowOperation.Call(ctx, o.forward, broker.OperationWait{OnOperation: broker.OnOperation{Namespace: ns, ID: id},
			Wait: wait})
	}
	out, err := forward.Wait(ctx, o.forward, wait, show, func(out broker.Shown[broker.OperationView]) bool {
		return out.View.State != broker.OperationRunning
	})
	return out.View, out.At, err
}
