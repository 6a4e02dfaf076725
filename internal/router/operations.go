package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// The operations of all namespaces live in the first data shard, which every cluster has. So their number is bounded exactly and one
// shard can list them; they are few, and their work is done where the tasks lie.

// operationArgs are what the calls on operations take.
type operationArgs struct {
	Shard     uint32
	Namespace string
	ID        task.ID
	Spec      broker.OperationSpec
	By        task.Author
	Wait      time.Duration
	Limit     int
	Filter    broker.Filter
	Step      broker.StepCall
}

type operationAnswer struct {
	View    broker.OperationView
	Page    broker.OperationPage
	Matches broker.Matches
	Step    broker.StepAnswer
	At      broker.Stamp
}

// All may be repeated: what is started is known by its request, a step by its number.
var (
	startOperation = onBroker("start-operation", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.View, out.At, err = b.StartOperation(ctx, a.Shard, a.Namespace, a.Spec)
		return err
	})
	pauseOperation = onBroker("pause-operation", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.View, out.At, err = b.PauseOperation(ctx, a.Namespace, a.ID, a.By)
		return err
	})
	resumeOperation = onBroker("resume-operation", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.View, out.At, err = b.ResumeOperation(ctx, a.Namespace, a.ID, a.By)
		return err
	})
	abortOperation = onBroker("abort-operation", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.View, out.At, err = b.AbortOperation(ctx, a.Namespace, a.ID, a.By)
		return err
	})
	listOperations = onBroker("operations", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.Page, out.At, err = b.Operations(ctx, a.Shard, a.Namespace, a.ID, a.Limit)
		return err
	})
	countMatches = onBroker("count-matches", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.Matches, out.At, err = b.CountMatches(ctx, a.Shard, a.Namespace, a.Filter, a.Limit, a.Wait)
		return err
	})
	operateSome = onBroker("operate-some", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.Step, err = b.OperateSome(ctx, a.Shard, a.Namespace, a.Step)
		return err
	})
	showOperation = waitsForOperation(onBroker("operation", true, func(ctx context.Context, b Broker, a *operationArgs, out *operationAnswer) (err error) {
		out.View, out.At, err = b.Operation(ctx, a.Namespace, a.ID, a.Wait)
		return err
	}))
)

// waitsForOperation lets a method wait, by its arguments.
func waitsForOperation(m *method[operationArgs, operationAnswer]) *method[operationArgs, operationAnswer] {
	m.wait = func(a *operationArgs) *time.Duration { return &a.Wait }
	return m
}

// mayOperate refuses operations while a shard may be led by a node that does not know them.
func (r *Router) mayOperate() error {
	switch level := r.cfg.Map.Level(); {
	case level == 0:
		return task.Unavailable(searchRest, "operations: this node does not know yet at which feature level the cluster works")
	case level < cluster.PoliciesLevel:
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(
			"operations: the cluster must work at feature level %d, and it is at %d: see `pawl cluster raise-level`", cluster.PoliciesLevel, level)}
	}
	return nil
}

// operationsHome is the shard where operations live.
func (r *Router) operationsHome() (uint32, error) {
	shards := r.cfg.Map.Shards()
	if len(shards) == 0 {
		return 0, task.Unavailable(time.Second, "operations: there is no data shard yet")
	}
	return slices.Min(shards), nil
}

// StartOperation makes an operation, which runs from now on. A queue to which it moves tasks is created if need be. Total is counted
// here.
func (r *Router) StartOperation(ctx context.Context, ns string, spec broker.OperationSpec) (broker.OperationView, broker.Stamp, error) {
	home, err := r.operationsHome()
	if err == nil {
		err = r.mayOperate()
	}
	if err == nil && spec.Action == task.Move {
		_, err = r.Directory().Place(ctx, ns, spec.ToQueue)
	}
	if err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	n, stamps, err := r.CountMatches(ctx, ns, spec.Filter, 0, broker.CountTime)
	if err != nil {
		return broker.OperationView{}, broker.Stamp{}, err
	}
	spec.Total, spec.TotalSoFar = n.Count, n.Next != nil
	for _, at := range stamps {
		spec.Until = append(spec.Until, broker.ShardTime{Shard: at.Shard, At: at.Time})
	}
	out, err := call(ctx, r, startOperation, home, operationArgs{Shard: home, Namespace: ns, Spec: spec})
	return out.View, out.At, err
}

// CountMatches counts the tasks of all shards that a filter selects, each for about so long, and reads some of the newest. Matches.Next
// is not nil if there may be more.
func (r *Router) CountMatches(ctx context.Context, ns string, f broker.Filter, sample int, patience time.Duration) (n broker.Matches, at []broker.Stamp, err error) {
	shards := r.cfg.Map.Shards()
	got := make([]operationAnswer, len(shards))
	errs := r.eachShard(shards, func(i int, shard uint32) (err error) {
		got[i], err = call(ctx, r, countMatches, shard, operationArgs{Shard: shard, Namespace: ns, Filter: f, Limit: sample, Wait: patience})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		return n, nil, firstRefusal(errs, err)
	}
	for _, g := range got {
		at = append(at, g.At)
		n.Add(g.Matches)
		if g.Matches.Next != nil {
			n.Next = g.Matches.Next
		}
	}
	slices.SortFunc(n.Sample, func(a, b *broker.View) int { return slices.Compare(b.ID[:], a.ID[:]) })
	n.Sample = n.Sample[:min(len(n.Sample), sample)]
	return n, at, nil
}

// OperateSome does a step of an operation in a shard: what broker.Config asks for.
func (r *Router) OperateSome(ctx context.Context, shard uint32, ns string, c broker.StepCall) (broker.StepAnswer, error) {
	out, err := call(ctx, r, operateSome, shard, operationArgs{Shard: shard, Namespace: ns, Step: c})
	return out.Step, err
}

// HasShard says whether there is a data shard of this number: what broker.Config asks for.
func (r *Router) HasShard(ctx context.Context, shard uint32) (bool, error) {
	return r.hasShard(ctx, shard)
}

// atOperation runs a call where an operation lives, which its id says.
func (r *Router) atOperation(ctx context.Context, m *method[operationArgs, operationAnswer], a operationArgs) (broker.OperationView, broker.Stamp, error) {
	shard := a.ID.Shard()
	if !r.leads(shard) {
		exists, err := r.hasShard(ctx, shard)
		if err == nil && !exists {
			err = task.NotFound("operation", a.ID.String())
		}
		if err != nil {
			return broker.OperationView{}, broker.Stamp{}, err
		}
	}
	out, err := call(ctx, r, m, shard, a)
	return out.View, out.At, err
}

// Operation reads an operation, waiting up to wait until it does not run any more.
func (r *Router) Operation(ctx context.Context, ns string, id task.ID, wait time.Duration) (broker.OperationView, broker.Stamp, error) {
	deadline := time.Now().Add(wait)
	waiting, cancel := r.untilDrain(ctx)
	defer cancel()
	for {
		v, at, err := r.atOperation(waiting, showOperation, operationArgs{Namespace: ns, ID: id, Wait: wait})
		if err != nil && waiting.Err() != nil && ctx.Err() == nil {
			return r.atOperation(ctx, showOperation, operationArgs{Namespace: ns, ID: id})
		}
		if err != nil || v.State != broker.OperationRunning {
			return v, at, err
		}
		// A node that is about to stop ends its waits early.
		if wait = time.Until(deadline); wait <= earlyRest || ctx.Err() != nil || r.isDraining() {
			return v, at, nil
		}
		r.sleep(ctx, earlyRest)
		wait -= earlyRest
	}
}

// Operations reads up to limit operations below an id, the newest first; a zero id: from the newest.
func (r *Router) Operations(ctx context.Context, ns string, below task.ID, limit int) (broker.OperationPage, broker.Stamp, error) {
	home, err := r.operationsHome()
	if err != nil {
		return broker.OperationPage{}, broker.Stamp{}, err
	}
	out, err := call(ctx, r, listOperations, home, operationArgs{Shard: home, Namespace: ns, ID: below, Limit: limit})
	return out.Page, out.At, err
}

// stopTime is how long a pause or an abort waits until the step that is under way has been answered.
const stopTime = 2 * time.Second

// stopped is an operation that was told to stop, once it has or stopTime is over.
func (r *Router) stopped(ctx context.Context, m *method[operationArgs, operationAnswer], a operationArgs) (broker.OperationView, broker.Stamp, error) {
	v, at, err := r.atOperation(ctx, m, a)
	if err != nil || v.Stopping == 0 {
		return v, at, err
	}
	if now, nowAt, err := r.Operation(ctx, a.Namespace, a.ID, stopTime); err == nil {
		v, at = now, nowAt
	}
	return v, at, nil
}

// PauseOperation lets an operation rest.
func (r *Router) PauseOperation(ctx context.Context, ns string, id task.ID, by task.Author) (broker.OperationView, broker.Stamp, error) {
	return r.stopped(ctx, pauseOperation, operationArgs{Namespace: ns, ID: id, By: by})
}

// AbortOperation ends an operation.
func (r *Router) AbortOperation(ctx context.Context, ns string, id task.ID, by task.Author) (broker.OperationView, broker.Stamp, error) {
	return r.stopped(ctx, abortOperation, operationArgs{Namespace: ns, ID: id, By: by})
}

// ResumeOperation lets an operation go on where it was.
func (r *Router) ResumeOperation(ctx context.Context, ns string, id task.ID, by task.Author) (broker.OperationView, broker.Stamp, error) {
	return r.atOperation(ctx, resumeOperation, operationArgs{Namespace: ns, ID: id, By: by})
}
