package router

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// The operations of all namespaces are in the first data shard, which every cluster has. So their number is bounded exactly and one shard
// can list them; they are few, and their work is done where the tasks are.

// mayOperate returns an error for operations while a shard may be led by a node that does not know them.
func (r *Router) mayOperate() error {
	switch level := r.cfg.Map.Level(); {
	case level == 0:
		return task.Unavailable(noLeaderRetry, "operations: this node does not know the cluster's feature level yet")
	case level < cluster.PoliciesLevel:
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(
			"operations need feature level %d, and the cluster is at %d: see `pawl cluster raise-level`", cluster.PoliciesLevel, level)}
	}
	return nil
}

// firstShard returns the shard that has the operations.
func (r *Router) firstShard() (uint32, error) {
	shards := r.cfg.Map.Shards()
	if len(shards) == 0 {
		return 0, task.Unavailable(time.Second, "operations: there is no data shard yet")
	}
	return slices.Min(shards), nil
}

// StartOperation creates an operation, which runs from now on. If it moves tasks to a queue, that is created if need be. spec.Total is
// counted here.
func (r *Router) StartOperation(ctx context.Context, ns string, spec broker.OperationSpec) (broker.OperationView, broker.Stamp, error) {
	home, err := r.firstShard()
	if err == nil {
		err = r.mayOperate()
	}
	if err == nil && spec.Action == task.Move {
		_, err = r.Directory().Place(ctx, ns, spec.ToQueue)
	}
	if err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	count := broker.CountMatches.Make(broker.MatchCount{OnShard: broker.OnShard{Namespace: ns}, Filter: spec.Filter, Wait: broker.CountTime})
	if err := r.Do(ctx, count); err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	spec.Total, spec.TotalSoFar = count.Resp.Matches.Count, count.Resp.Matches.Next != nil
	for _, part := range count.Parts() {
		at := part.Answer().(*broker.MatchesCounted).At
		spec.Until = append(spec.Until, broker.ShardTime{Shard: at.Shard, At: at.Time})
	}
	out, err := broker.StartOperation.Call(ctx, r, broker.NewOperation{OnShard: broker.OnShard{Shard: home, Namespace: ns}, Spec: spec})
	return out.View, out.At, err
}

// HasShard reports whether a data shard exists. It is for broker.Config.
func (r *Router) HasShard(ctx context.Context, shard uint32) (bool, error) {
	return r.hasShard(ctx, shard)
}

// Operation returns an operation, waiting up to wait until it no longer runs.
func (r *Router) Operation(ctx context.Context, ns string, id task.ID, wait time.Duration) (broker.OperationView, broker.Stamp, error) {
	show := func(ctx context.Context, wait time.Duration) (broker.Shown[broker.OperationView], error) {
		return broker.ShowOperation.Call(ctx, r, broker.OperationWait{OnOperation: broker.OnOperation{Namespace: ns, ID: id}, Wait: wait})
	}
	deadline := time.Now().Add(wait)
	waiting, cancel := r.untilDrain(ctx)
	defer cancel()
	for {
		out, err := show(waiting, wait)
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			out, err = show(ctx, 0)
			return out.View, out.At, err
		}
		if err != nil || out.View.State != broker.OperationRunning {
			return out.View, out.At, err
		}
		// A node that is about to stop ends its waits early.
		if wait = time.Until(deadline); wait <= earlyPause || ctx.Err() != nil || r.isDraining() {
			return out.View, out.At, nil
		}
		r.sleep(ctx, earlyPause)
		wait -= earlyPause
	}
}
