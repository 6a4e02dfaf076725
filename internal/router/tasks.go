package router

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// Tasks reads tasks, wherever their shards are led.
type Tasks struct{ forward *forward.Forwarder }

// Task returns a task, waiting up to wait for its end, whichever nodes lead its shard meanwhile.
func (t *Tasks) Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error) {
	show := func(ctx context.Context, wait time.Duration) (broker.Shown[*broker.View], error) {
		return enqueue.ShowTask.Call(ctx, t.forward, enqueue.TaskWait{OnTask: broker.OnTask{Namespace: ns, ID: id}, Wait: wait})
	}
	if wait <= 0 {
		out, err := show(ctx, 0)
		return out.View, out.At, err
	}
	out, err := forward.Wait(ctx, t.forward, wait, show, func(out broker.Shown[*broker.View]) bool { return out.View.Exec.State.Ended() })
	return out.View, out.At, err
}

// Peek reads a task from any replica of its shard: this node's if it has one, otherwise the first that answers.
func (t *Tasks) Peek(ctx context.Context, ns string, id task.ID) (v *broker.View, at broker.Stamp, age time.Duration, err error) {
	if id.Shard() == forward.SystemShard || len(t.forward.Replicas(id.Shard())) == 0 {
		return nil, at, 0, task.NotFound("task", id.String())
	}
	out, err := PeekTask.Call(ctx, t.forward, broker.Explained{Namespace: ns, ID: id})
	return out.View, out.At, out.Age, err
}
