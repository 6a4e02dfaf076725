package query

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// TaskBroker reads tasks of the shards that this node leads or, with Peek, of which it has a replica.
type TaskBroker interface {
	Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error)
	Peek(ctx context.Context, ns string, id task.ID) (v *broker.View, at broker.Stamp, age time.Duration, err error)
}

// Tasks reads tasks, wherever their shards are led.
type Tasks struct {
	forward *forward.Forwarder
	show    forward.Caller[showArgs, showAnswer]
	peek    forward.Caller[peekArgs, peekAnswer]
}

type showArgs struct {
	Namespace string
	ID        task.ID
	Wait      time.Duration
}

type showAnswer struct {
	View *broker.View
	At   broker.Stamp
}

type peekArgs struct {
	Namespace string
	ID        task.ID
}

type peekAnswer struct {
	View *broker.View
	At   broker.Stamp
	Age  time.Duration
}

// NewTasks returns a reader of tasks.
func NewTasks(f *forward.Forwarder, b TaskBroker) *Tasks {
	return &Tasks{forward: f,
		show: forward.Register(f, &forward.Method[showArgs, showAnswer]{Rule: verb.Rule{Name: "task", Idempotent: true}, Run: func(ctx context.Context, a showArgs) (out showAnswer, err error) {
			out.View, out.At, err = b.Task(ctx, a.Namespace, a.ID, a.Wait)
			return out, err
		}, Wait: func(a *showArgs) *time.Duration { return &a.Wait }}),
		peek: forward.RegisterIdempotent(f, "peek", func(ctx context.Context, a peekArgs) (out peekAnswer, err error) {
			out.View, out.At, out.Age, err = b.Peek(ctx, a.Namespace, a.ID)
			return out, err
		}),
	}
}

// Task returns a task, waiting up to wait for its end, whichever nodes lead its shard meanwhile.
func (t *Tasks) Task(ctx context.Context, ns string, id task.ID, wait time.Duration) (*broker.View, broker.Stamp, error) {
	if err := t.forward.CheckTask(ctx, id); err != nil {
		return nil, broker.Stamp{}, err
	}
	if wait <= 0 {
		out, err := t.show.Call(ctx, id.Shard(), showArgs{ns, id, 0})
		return out.View, out.At, err
	}
	show := func(ctx context.Context, wait time.Duration) (showAnswer, error) {
		return t.show.Call(ctx, id.Shard(), showArgs{ns, id, wait})
	}
	out, err := forward.Wait(ctx, t.forward, wait, show, func(out showAnswer) bool { return out.View.Exec.State.Ended() })
	return out.View, out.At, err
}

// Peek reads a task from any replica of its shard: this node's if it has one, otherwise the first that answers.
func (t *Tasks) Peek(ctx context.Context, ns string, id task.ID) (v *broker.View, at broker.Stamp, age time.Duration, err error) {
	if id.Shard() == forward.SystemShard || len(t.forward.Replicas(id.Shard())) == 0 {
		return nil, at, 0, task.NotFound("task", id.String())
	}
	out, err := t.peek.OnReplica(ctx, id.Shard(), peekArgs{ns, id})
	return out.View, out.At, out.Age, err
}
