package router

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// A group is in one shard, whose number is in its id.

// groupArgs are the arguments of calls on a shard's groups.
type groupArgs struct {
	Shard     uint32
	Namespace string
	ID        task.ID
	Group     task.Group
	Tasks     []task.Spec
	Queues    []string
}

type groupAnswer struct {
	Made   broker.GroupMade
	Joined []broker.Joined
	At     broker.Stamp
	Faults []*fault
}

func (a *groupAnswer) item(i int) *error {
	if n := len(a.Made.Tasks); i >= n {
		return &a.Joined[i-n].Err
	}
	return &a.Made.Tasks[i].Err
}

func (a *groupAnswer) items() int { return len(a.Made.Tasks) + len(a.Joined) }
func (a *groupAnswer) Pack()      { a.Faults = faultsOf(a.items(), a.item) }
func (a *groupAnswer) Unpack()    { errorsOf(a.Faults, a.items(), a.item) }

// Calls that create something are not repeated if their outcome is unknown: only a caller's request_id could tell.
var (
	makeGroup = onBroker("make-group", false, func(ctx context.Context, b Broker, a *groupArgs, out *groupAnswer) (err error) {
		out.Made, out.At, err = b.MakeGroup(ctx, a.Shard, a.Namespace, a.Group, a.Queues)
		return err
	})
	findGroup = onBroker("find-group", true, func(ctx context.Context, b Broker, a *groupArgs, out *groupAnswer) (err error) {
		out.Made, out.At, err = b.FindGroup(ctx, a.Shard, a.Namespace, a.Group)
		return err
	})
	addToGroup = onBroker("add-to-group", false, func(ctx context.Context, b Broker, a *groupArgs, out *groupAnswer) (err error) {
		out.Joined, out.At, err = b.AddToGroup(ctx, a.Namespace, a.ID, a.Tasks, a.Queues)
		return err
	})
)

// MakeGroup creates a group in the shard of its first task, and returns when its members have been created or are in transit. The group
// must have its defaults filled in and be checked.
func (r *Router) MakeGroup(ctx context.Context, ns string, g task.Group) (broker.GroupMade, broker.Stamp, error) {
	if err := r.requireLevel("group"); err != nil {
		return broker.GroupMade{}, broker.Stamp{}, err
	}
	first := task.Spec{Queue: task.DefaultQueue}
	switch {
	case len(g.Tasks) > 0:
		first = g.Tasks[0]
	case g.OnComplete != nil:
		first = *g.OnComplete
	}
	first.RequestID = g.RequestID
	q, err := r.Directory().Place(ctx, ns, first.Queue)
	if err != nil {
		return broker.GroupMade{}, broker.Stamp{}, err
	}
	home := q.Home(&first)
	if slot, ok := first.Slot(); ok && q.Spread() && g.RequestID != (task.ID{}) { // others may know it from before the slot moved
		for _, shard := range q.Route(slot, false) {
			if shard == home {
				continue
			}
			out, err := call(ctx, r, findGroup, shard, groupArgs{Shard: shard, Namespace: ns, Group: g})
			if err == nil || !errors.Is(err, task.ErrNotFound) {
				return out.Made, out.At, err
			}
		}
	}
	out, err := call(ctx, r, makeGroup, home, groupArgs{Shard: home, Namespace: ns, Group: g, Queues: r.queuesIn(ctx, home, ns, g.Tasks)})
	if err == nil {
		r.deliverJoined(ctx, ns, out.Made.Tasks)
	}
	return out.Made, out.At, err
}

// queuesIn returns the queues of some tasks that a shard has a part of, as far as is known: the shard needs copies of them.
func (r *Router) queuesIn(ctx context.Context, shard uint32, ns string, tasks []task.Spec) (queues []string) {
	seen := map[string]bool{}
	for i := range tasks {
		name := tasks[i].Queue
		if seen[name] {
			continue
		}
		seen[name] = true
		if q, err := r.Directory().Place(ctx, ns, name); err == nil && q.In(shard) {
			queues = append(queues, name)
		}
	}
	return queues
}

// deliverJoined delivers members to their shards, as does the sender of their group's home: whichever comes first creates them. Those whose
// shard can't be reached, or has no room, remain in transit.
func (r *Router) deliverJoined(ctx context.Context, ns string, joined []broker.Joined) {
	var specs []task.Spec
	var index []int
	for i := range joined {
		if p := joined[i].Message; p != nil {
			specs, index = append(specs, p.Spec), append(index, i)
		}
	}
	if len(specs) == 0 {
		return
	}
	for n, got := range r.Deliver(ctx, ns, specs) {
		j := &joined[index[n]]
		if e, ok := task.AsError(got.Err); got.Err != nil && (!ok || e.Code == task.CodeUnavailable || e.Code == task.CodeQueueFull) {
			continue
		}
		j.Accepted, j.Err, j.Message = got.Accepted, got.Err, nil
	}
}

// AddToGroup creates new members of a group, each with its own result.
func (r *Router) AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if err := r.checkShard(ctx, id.Shard(), "group", id.String()); err != nil {
		return nil, broker.Stamp{}, err
	}
	home := id.Shard()
	queues, at, err := r.queuesOfMembers(ctx, ns, id, tasks)
	if err != nil {
		return nil, at, err
	}
	got, err := call(ctx, r, addToGroup, home, groupArgs{Shard: home, Namespace: ns, ID: id, Tasks: tasks, Queues: queues})
	if err != nil {
		return nil, got.At, err
	}
	r.deliverJoined(ctx, ns, got.Joined)
	out := make([]broker.Enqueued, len(tasks))
	for i := range got.Joined {
		j := &got.Joined[i]
		out[i] = broker.Enqueued{Accepted: j.Accepted, Err: j.Err}
		switch {
		case j.Message != nil:
			out[i].Err = task.Unavailable(noLeaderRetry, "group %s has the task, but it is still on its way to queue %q: repeat the call with its request_id to hear of it", id, tasks[i].Queue)
		case j.Err == nil && j.Duplicate && j.ID.Shard() != home: // the home knows only its id
			if v, _, err := r.Task(ctx, ns, j.ID, 0); err == nil {
				out[i].State, out[i].CreatedAt = v.Exec.State, v.Exec.CreatedAt
			}
		}
	}
	return out, got.At, nil
}

// queuesOfMembers is queuesIn for new members of a group. A queue is created at its first use, but a group that does not exist or has ended
// takes no members, so it must not create any.
func (r *Router) queuesOfMembers(ctx context.Context, ns string, id task.ID, tasks []task.Spec) ([]string, broker.Stamp, error) {
	isNew := func(s task.Spec) bool {
		_, known := r.Directory().Copied(ns, s.Queue)
		return !known
	}
	if slices.ContainsFunc(tasks, isNew) {
		switch g, err := broker.ShowGroup.Call(ctx, r, broker.OnGroup{Namespace: ns, ID: id}); {
		case err != nil:
			return nil, g.At, err
		case g.View.EndedAt != 0:
			return nil, g.At, nil
		}
	}
	return r.queuesIn(ctx, id.Shard(), ns, tasks), broker.Stamp{}, nil
}

// isNewMember reports whether a task is to become a member of a group that has not given it a reference yet.
func isNewMember(s task.Spec) bool { return s.Member != nil && s.Member.Ref == task.ID{} }

// enqueueMembers enqueues tasks of which some are to become members of groups: those go to their groups' homes.
func (r *Router) enqueueMembers(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	out := make([]broker.Enqueued, len(specs))
	var others []int
	groups := map[task.ID][]int{}
	for i := range specs {
		if isNewMember(specs[i]) {
			groups[specs[i].Member.Group] = append(groups[specs[i].Member.Group], i)
		} else {
			others = append(others, i)
		}
	}
	some := func(index []int, run func([]task.Spec) ([]broker.Enqueued, broker.Stamp, error)) (at broker.Stamp) {
		tasks := make([]task.Spec, len(index))
		for n, i := range index {
			tasks[n] = specs[i]
		}
		got, at, err := run(tasks)
		for n, i := range index {
			if err != nil {
				out[i].Err = err
			} else {
				out[i] = got[n]
			}
		}
		return at
	}
	var at broker.Stamp
	if len(others) > 0 {
		at = some(others, func(tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
			return r.Enqueue(ctx, shard, ns, tasks)
		})
	}
	for id, index := range groups {
		if got := some(index, func(tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
			return r.AddToGroup(ctx, ns, id, tasks)
		}); at.Index == 0 {
			at = got
		}
	}
	return out, at, nil
}

// SendOutbox delivers messages of all kinds to their shards, each with its own result. It is for broker.Config.
func (r *Router) SendOutbox(ctx context.Context, ns string, messages []*broker.OutboxMessage) []broker.Enqueued {
	out := make([]broker.Enqueued, len(messages))
	var tasks, orders, news []int
	notices := map[uint32][]int{}
	for i, p := range messages {
		switch {
		case p.Notice != nil:
			home := p.Notice.Group.Shard()
			notices[home] = append(notices[home], i)
		case p.Cancel != (task.ID{}):
			orders = append(orders, i)
		case p.Notification != nil:
			news = append(news, i)
		default:
			tasks = append(tasks, i)
		}
	}
	var calls sync.WaitGroup
	calls.Go(func() { r.deliverTasks(ctx, ns, messages, tasks, out) })
	calls.Go(func() { r.deliverNotifications(ctx, ns, messages, news, out) })
	for home, some := range notices {
		calls.Go(func() { r.deliverNotices(ctx, ns, home, messages, some, out) })
	}
	calls.Go(func() {
		for _, i := range orders {
			_, out[i].Err = broker.OperateTask.Call(ctx, r, broker.TaskCommand{Verb: broker.Cancel, OnTask: broker.OnTask{Namespace: ns, ID: messages[i].Cancel}}) // who cancelled the group is recorded there
		}
	})
	calls.Wait()
	return out
}

// deliverTasks delivers the messages that are tasks, and stores the result of each.
func (r *Router) deliverTasks(ctx context.Context, ns string, messages []*broker.OutboxMessage, those []int, out []broker.Enqueued) {
	if len(those) == 0 {
		return
	}
	specs := make([]task.Spec, len(those))
	for n, i := range those {
		specs[n] = messages[i].Spec
	}
	for n, got := range r.Deliver(ctx, ns, specs) {
		out[those[n]] = got
	}
}

// deliverNotifications delivers notifications for webhooks.
func (r *Router) deliverNotifications(ctx context.Context, ns string, messages []*broker.OutboxMessage, those []int, out []broker.Enqueued) {
	if len(those) == 0 {
		return
	}
	a := notificationArgs{Namespace: ns}
	for _, i := range those {
		a.News = append(a.News, messages[i].Notification)
	}
	_, err := call(ctx, r, takeNotifications, systemShard, a)
	for _, i := range those {
		out[i].Err = err
	}
}

// deliverNotices delivers notices about members to the groups of a shard.
func (r *Router) deliverNotices(ctx context.Context, ns string, home uint32, messages []*broker.OutboxMessage, those []int, out []broker.Enqueued) {
	q := broker.GroupNotices{OnShard: broker.OnShard{Shard: home, Namespace: ns}}
	for _, i := range those {
		q.Notices = append(q.Notices, messages[i].Notice)
	}
	_, err := broker.RecordNotices.Call(ctx, r, q)
	for _, i := range those {
		out[i].Err = err
	}
}
