package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// QueueName names a queue.
type QueueName struct{ Namespace, Name string }

// workers asks the nodes for what they know about the workers of some queues, and returns it in the same order.
func (b *Broker) workers(ctx context.Context, queues []QueueName) []task.QueueWorkers {
	out := make([]task.QueueWorkers, len(queues))
	if b.cfg.Workers != nil && len(queues) > 0 {
		copy(out, b.cfg.Workers(ctx, queues))
	}
	return out
}

// workersOf combines what the nodes know about the workers of a queue with the polls seen here. It must be called on the shard's loop.
func (r *replica) workersOf(ns, queue string, workers task.QueueWorkers) explain.Workers {
	known := r.polls.Of(ns, queue, &r.claims)
	known.Workers = workers
	select {
	case <-r.b.draining:
		known.Draining = true
	default:
	}
	return known
}

// explainTime is how long an explanation waits for a leader. An election takes a second or two; if the shard still has no leader
// after that, that is the explanation.
const explainTime = 2 * time.Second

// Explained names the task to explain.
type Explained struct {
	Namespace string
	ID        task.ID
}

// TargetShard implements verb.Sharded.
func (o *Explained) TargetShard() uint32 { return o.ID.Shard() }

// ExplainTask explains why a task is not running.
var ExplainTask = onReplica(verb.Rule{Name: "explain", Idempotent: true, Patience: explainTime}, func(ctx context.Context, r *replica,
	q *Explained) (out Explains[*Explanation], err error) {
	ns, id := q.Namespace, q.ID
	var queue string
	queue, out.At, err = read(ctx, r, func(from store.Reader) (string, error) { return explain.WaitsIn(from, ns, id), nil })
	if err != nil {
		return out, err
	}
	var workers task.QueueWorkers
	if queue != "" {
		workers = r.b.workers(ctx, []QueueName{{ns, queue}})[0]
	}
	out.Explanation, out.At, err = change(ctx, r, inScope(ctx, onTask(ns, id), func(round *engine.Round) (*Explanation, error) {
		return explain.Task(round, ns, id, func(queue string) explain.Workers { return r.workersOf(ns, queue, workers) }, r.sender.lanes.Of)
	}))
	return out, err
})

// ExplainQueue explains what the ready tasks of a queue in a shard are waiting for.
var ExplainQueue = onReplica(verb.Rule{Name: "explain-queue", Idempotent: true, Patience: explainTime}, func(ctx context.Context,
	r *replica, q *OnQueue) (out Explains[*QueueExplanation], err error) {
	ns, name := q.Namespace, q.Queue
	workers := r.b.workers(ctx, []QueueName{{ns, name}})[0]
	var g *explain.Memory
	g, out.At, err = change(ctx, r, func(round *engine.Round) (*explain.Memory, error) {
		return explain.MemoryOf(round, ns, name, func(queue string) explain.Workers { return r.workersOf(ns, queue, workers) })
	})
	if err != nil {
		return out, err
	}
	out.Explanation, out.At, err = read(ctx, r, func(from store.Reader) (*QueueExplanation, error) {
		return explain.Queue(from, ns, name, g)
	})
	return out, err
})

// ExplainView explains a task without the leader of its shard, as far as possible. The caller adds the reason for the leader's absence.
func ExplainView(v *View) *Explanation { return explain.View(v) }
