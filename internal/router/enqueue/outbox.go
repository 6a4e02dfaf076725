package enqueue

import (
	"context"
	"errors"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/webhooks"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// Outbox delivers the messages of this node's shards to other shards.
type Outbox struct {
	forward *forward.Forwarder
	tasks   *Enqueuer
}

// NewOutbox returns an outbox.
func NewOutbox(f *forward.Forwarder, t *Enqueuer) *Outbox { return &Outbox{f, t} }

// Send delivers messages of all kinds to their shards, each with its own result. It is for broker.Config.
func (o *Outbox) Send(ctx context.Context, ns string, messages []*broker.OutboxMessage) []broker.Enqueued {
	out := make([]broker.Enqueued, len(messages))
	var tasks, notifications []int
	notices, cancels := map[uint32][]int{}, map[uint32][]int{}
	for i, p := range messages {
		switch {
		case p.Notice != nil:
			home := p.Notice.Group.Shard()
			notices[home] = append(notices[home], i)
		case p.Cancel != (task.ID{}):
			home := p.Cancel.Shard()
			cancels[home] = append(cancels[home], i)
		case p.Notification != nil:
			notifications = append(notifications, i)
		default:
			tasks = append(tasks, i)
		}
	}
	var calls sync.WaitGroup
	calls.Go(func() { o.deliverTasks(ctx, ns, messages, tasks, out) })
	calls.Go(func() { o.deliverNotifications(ctx, ns, messages, notifications, out) })
	for home, some := range notices {
		calls.Go(func() { o.deliverNotices(ctx, ns, home, messages, some, out) })
	}
	for _, some := range cancels {
		calls.Go(func() { o.deliverCancels(ctx, ns, messages, some, out) })
	}
	calls.Wait()
	return out
}

// deliverCancels delivers orders to cancel tasks of a shard, until the shard does not answer.
func (o *Outbox) deliverCancels(ctx context.Context, ns string, messages []*broker.OutboxMessage, those []int, out []broker.Enqueued) {
	var away error
	for _, i := range those {
		if out[i].Err = away; away != nil {
			continue
		}
		// It has no author: the group's shard has recorded who cancelled the group.
		on := broker.OnTask{Namespace: ns, ID: messages[i].Cancel}
		_, err := broker.OperateTask.Call(ctx, o.forward, broker.TaskCommand{Verb: broker.Cancel, Message: messages[i].Request, OnTask: on})
		if out[i].Err = err; errors.Is(err, task.ErrUnavailable) || ctx.Err() != nil {
			away = err
		}
	}
}

// deliverTasks delivers the messages that are tasks, and stores the result of each. It does not ask whether a task's queue
// still exists: if an earlier answer was lost, the shard of the task remembers it, even if the queue was deleted since.
func (o *Outbox) deliverTasks(ctx context.Context, ns string, messages []*broker.OutboxMessage, those []int, out []broker.Enqueued) {
	if len(those) == 0 {
		return
	}
	specs := make([]task.Spec, len(those))
	for n, i := range those {
		specs[n] = messages[i].Spec
	}
	for n, got := range o.tasks.Deliver(ctx, ns, specs) {
		out[those[n]] = got
	}
}

// deliverNotifications delivers notifications for webhooks.
func (o *Outbox) deliverNotifications(ctx context.Context, ns string, messages []*broker.OutboxMessage, those []int,
	out []broker.Enqueued) {
	if len(those) == 0 {
		return
	}
	q := webhooks.Notifications{Namespace: ns}
	for _, i := range those {
		q.All = append(q.All, messages[i].Notification)
	}
	_, err := webhooks.TakeNotifications.Call(ctx, o.forward, q)
	for _, i := range those {
		out[i].Err = err
	}
}

// deliverNotices delivers notices about members to the groups of a shard.
func (o *Outbox) deliverNotices(ctx context.Context, ns string, home uint32, messages []*broker.OutboxMessage, those []int,
	out []broker.Enqueued) {
	q := broker.GroupNotices{OnShard: broker.OnShard{Shard: home, Namespace: ns}}
	for _, i := range those {
		q.Notices = append(q.Notices, messages[i].Notice)
	}
	_, err := broker.RecordNotices.Call(ctx, o.forward, q)
	for _, i := range those {
		out[i].Err = err
	}
}
