package gateway

import (
	"context"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// Do runs verbs.
func (f *fake) Do(ctx context.Context, c verb.Call) error {
	if err := f.faults.ask(); err != nil {
		return err
	}
	return f.table().Do(ctx, c)
}

// table returns the fake's answers to verbs: it has some tokens, markers and webhooks, unless a test replaces them.
func (f *fake) table() verbtest.Answers {
	f.once.Do(func() {
		f.answers = verbtest.Answers{}
		f.answerQueues()
		f.admin.answer(f.answers)
		(&fakeTokens{names: []string{"default"}}).answer(f.answers)
		(&fakeMarkers{}).answer(f.answers)
		(&fakeWebhooks{}).answer(f.answers)
	})
	return f.answers
}

// answerQueues registers answers about the shards' queues and tasks.
func (f *fake) answerQueues() {
	verbtest.On(f.answers, broker.DescribeQueue, func(ctx context.Context, q broker.OnQueue) (out broker.QueueDescribed, err error) {
		out.Info, out.At, err = f.Queue(ctx, q.Shard, q.Namespace, q.Queue)
		return out, err
	})
	verbtest.On(f.answers, broker.PurgeQueue, func(ctx context.Context, q broker.QueueCommand) (out broker.Purged, err error) {
		out.Done, out.At, err = f.Purge(ctx, q.By, q.Shard, q.Namespace, q.Queue)
		return out, err
	})
	verbtest.On(f.answers, broker.CloseBreakers, func(ctx context.Context, q broker.BreakersOf) (out broker.BreakersClosed, err error) {
		out.Closed, out.At, err = f.CloseBreakers(ctx, q.By, q.Shard, q.Namespace, q.Queue, q.Type)
		return out, err
	})
	verbtest.On(f.answers, broker.ListTasks, func(ctx context.Context, q broker.TaskList) (out broker.Paged[broker.Page], err error) {
		out.Page, out.At, err = f.Tasks(ctx, q.Shard, q.Namespace, q.Filter, q.Cursor, q.Limit)
		return out, err
	})
	verbtest.On(f.answers, broker.GroupDead, f.groupDead)
	verbtest.On(f.answers, broker.OperateTask, func(_ context.Context, q broker.TaskCommand) (out broker.Shown[*broker.View], err error) {
		out.View, out.At, err = f.command(q)
		return out, err
	})
	// all shards are the same
	verbtest.On(f.answers, broker.Spaces, func(_ context.Context, q broker.OnSpaces) (spaces []task.Space, err error) {
		for i, name := range q.Names {
			spaces = append(spaces, task.Space{Namespace: name.Namespace, Use: task.Amounts{Backlog: int64(10 * (i + 1)), Bytes: 4096,
				Running: int64(i)}})
		}
		return spaces, nil
	})
}

// states maps orders to the states they apply to, and the one they lead to.
var states = map[broker.TaskVerb]struct {
	to   task.State
	from []task.State
}{
	broker.Cancel:  {task.Cancelled, []task.State{task.Scheduled, task.Ready, task.Claimed, task.Retrying}},
	broker.Retry:   {task.Ready, []task.State{task.Retrying, task.Dead, task.Poisoned, task.Discarded, task.Cancelled}},
	broker.RunNow:  {task.Ready, []task.State{task.Scheduled, task.Retrying, task.Ready}},
	broker.Discard: {task.Discarded, []task.State{task.Scheduled, task.Ready, task.Retrying, task.Dead, task.Poisoned}},
	broker.Update:  {task.Ready, []task.State{task.Ready, task.Scheduled}},
}

func (f *fake) command(q broker.TaskCommand) (*broker.View, broker.Stamp, error) {
	v, at, err := f.verb(q.ID, string(q.Verb), states[q.Verb].to, states[q.Verb].from...)
	if err != nil || q.Verb != broker.Update {
		return v, at, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	x := *v.Exec
	if q.Edit.Priority != 0 {
		x.Priority = q.Edit.Priority
	}
	if q.Edit.Payload != nil {
		v.Envelope.Payload = *q.Edit.Payload
	}
	v.Exec = &x
	return v, at, nil
}

func (f *fake) groupDead(_ context.Context, q broker.DeadOf) (out broker.DeadGrouped, err error) {
	if err := f.begin(q.Shard); err != nil {
		return out, err
	}
	defer f.mu.Unlock()
	out.At = f.stamp(q.Shard)
	out.Groups = []broker.Group{{Fingerprint: 42, Type: "mail", Message: "no route to *", Count: 3, First: f.now(), Last: f.now(),
		Sample: task.NewID(1, 1, 1), Queues: map[string]int64{"mail": 3}}}
	return out, nil
}
