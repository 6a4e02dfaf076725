package enqueue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
)

// A group is in one shard, whose number is in its id.

// Groups creates groups and their members, wherever their shards are led.
type Groups struct {
	forward *forward.Forwarder
	tasks   *Enqueuer
}

// MakeGroup creates a group in the shard of its first task, and returns when its members have been created or are in transit. The group
// must have its defaults filled in and be checked.
func (g *Groups) MakeGroup(ctx context.Context, ns string, group task.Group) (broker.GroupMade, broker.Stamp, error) {
	first := &task.Spec{Queue: task.DefaultQueue}
	switch {
	case len(group.Tasks) > 0:
		first = &group.Tasks[0]
	case group.OnComplete != nil:
		first = group.OnComplete
	}
	group.Home = task.Spec{Queue: first.Queue, Key: first.Key, Unique: first.Unique, IdempotencyKey: first.IdempotencyKey,
		RequestID: group.RequestID}
	for retries := g.forward.NewRetries(); ; retries.Pause(ctx) {
		made, at, err := g.makeOnce(ctx, ns, group)
		if !errors.Is(err, broker.ErrSlotMoved) && !g.forward.LearnMoved(err) || !retries.More(ctx) || g.tasks.queues.Refresh(ctx, ns,
			first.Queue) != nil {
			return made, at, err
		}
	}
}

// makeOnce creates a group in the shard that takes its home's slot by this node's map.
func (g *Groups) makeOnce(ctx context.Context, ns string, group task.Group) (broker.GroupMade, broker.Stamp, error) {
	q, err := g.tasks.queues.Place(ctx, ns, group.Home.Queue)
	if err != nil {
		return broker.GroupMade{}, broker.Stamp{}, err
	}
	home := q.Home(&group.Home)
	group.Home.Routed = q.Config.Version
	if slot, ok := group.Home.Slot(); ok && q.Spread() && group.RequestID != (task.ID{}) { // others may know it from before the slot moved
		group.Home.Left = true
		for _, shard := range q.Route(slot, false) {
			if shard == home {
				continue
			}
			out, err := forward.Call(ctx, g.forward, FindGroup, shard, NewGroup{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
				Group: group})
			if err == nil || !errors.Is(err, task.ErrNotFound) {
				return out.Made, out.At, err
			}
		}
		group.Home.Left = false
	}
	out, err := forward.Call(ctx, g.forward, CreateGroup, home,
		NewGroup{OnShard: broker.OnShard{Shard: home, Namespace: ns}, Group: group, Queues: g.queuesIn(ctx, home, ns, group.Tasks)})
	if err == nil {
		g.deliverJoined(ctx, ns, out.Made.Tasks)
	}
	return out.Made, out.At, err
}

// queuesIn returns the queues of the tasks of which a shard has a part, as far as is known in time: the shard needs
// copies of their settings.
func (g *Groups) queuesIn(ctx context.Context, shard uint32, ns string, tasks []task.Spec) (queues []string) {
	names := slices.Sorted(maps.Keys(groupBy(all(tasks), func(i int) string { return tasks[i].Queue })))
	in := make([]bool, len(names))
	_ = parallel.EachUntilLate(ctx, len(names), func(ctx context.Context, i int) error {
		q, err := g.tasks.queues.Place(ctx, ns, names[i])
		in[i] = err == nil && q.In(shard)
		return err
	})
	for i, name := range names {
		if in[i] {
			queues = append(queues, name)
		}
	}
	return queues
}

// deliverJoined delivers members to their shards. The outbox of the group's shard delivers them too, and whichever is first creates them.
// Members whose shard can't be reached, or has no room, remain in transit.
func (g *Groups) deliverJoined(ctx context.Context, ns string, joined []broker.Joined) {
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
	for n, got := range g.tasks.Deliver(ctx, ns, specs) {
		j := &joined[index[n]]
		if e, ok := task.AsError(got.Err); got.Err != nil && (!ok || e.Code == task.CodeUnavailable || e.Code == task.CodeQueueFull) {
			continue
		}
		j.Accepted, j.Err, j.Message = got.Accepted, got.Err, nil
	}
}

// AddToGroup creates new members of a group, each with its own result.
func (g *Groups) AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	if err := g.forward.CheckShard(ctx, id.Shard(), "group", id.String()); err != nil {
		return nil, broker.Stamp{}, err
	}
	home := id.Shard()
	queues, at, err := g.queuesOfMembers(ctx, ns, id, tasks)
	if err != nil {
		return nil, at, err
	}
	got, err := forward.Call(ctx, g.forward, AddToGroup, home, NewMembers{Namespace: ns, ID: id, Tasks: tasks, Queues: queues})
	if err != nil {
		return nil, got.At, err
	}
	g.deliverJoined(ctx, ns, got.Joined)
	out := make([]broker.Enqueued, len(tasks))
	for i := range got.Joined {
		j := &got.Joined[i]
		out[i] = broker.Enqueued{Accepted: j.Accepted, Err: j.Err}
		switch {
		case j.Message != nil:
			out[i].Err = task.Unavailable(forward.NoLeaderRetry,
				"group %s has the task, but it is still on its way to queue %q: repeat the call with the same request_id to "+
					"learn its outcome",
				id, tasks[i].Queue)
		case j.Err == nil && j.Duplicate && j.ID.Shard() != home: // the home knows only its id
			if shown, err := ShowTask.Call(ctx, g.forward, TaskWait{OnTask: broker.OnTask{Namespace: ns, ID: j.ID}}); err == nil {
				out[i].State, out[i].CreatedAt = shown.View.Exec.State, shown.View.Exec.CreatedAt
			}
		}
	}
	return out, got.At, nil
}

// queuesOfMembers is queuesIn for new members of a group. That creates queues that don't exist yet, so it comes after a
// check that the group exists and has not ended: otherwise a call that is refused would leave new queues behind.
func (g *Groups) queuesOfMembers(ctx context.Context, ns string, id task.ID, tasks []task.Spec) ([]string, broker.Stamp, error) {
	isNew := func(s task.Spec) bool {
		_, known := g.tasks.queues.Copied(ctx, ns, s.Queue)
		return !known
	}
	if slices.ContainsFunc(tasks, isNew) {
		switch shown, err := broker.ShowGroup.Call(ctx, g.forward, broker.OnGroup{Namespace: ns, ID: id}); {
		case err != nil:
			return nil, shown.At, err
		case shown.View.EndedAt != 0:
			return nil, shown.At, nil
		}
	}
	return g.queuesIn(ctx, id.Shard(), ns, tasks), broker.Stamp{}, nil
}

// IsNewMember reports whether a task is to become a member of a group that has not given it a reference yet.
func IsNewMember(s task.Spec) bool { return s.Member != nil && s.Member.Ref == task.ID{} }

// enqueueMembers enqueues tasks of which some are to become members of groups: those go to their groups' homes. It asks
// these in parallel, and leaves out those that are late.
func (g *Groups) enqueueMembers(ctx context.Context, shard uint32, ns string, specs []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	out := make([]broker.Enqueued, len(specs))
	groupOf := func(i int) (id task.ID) { // zero: the task goes where the caller says
		if IsNewMember(specs[i]) {
			id = specs[i].Member.Group
		}
		return id
	}
	var mu sync.Mutex
	var at broker.Stamp // of the tasks that are no new members, if there are any
	homes := groupBy(all(specs), func(i int) uint32 { return groupOf(i).Shard() })
	inParallel(ctx, homes, out, func(ctx context.Context, _ uint32, index []int) error {
		inParallel(ctx, groupBy(index, groupOf), out, func(ctx context.Context, id task.ID, index []int) error {
			send := g.AddToGroup
			if id == (task.ID{}) {
				send = func(ctx context.Context, ns string, _ task.ID, others []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
					return g.tasks.Enqueue(ctx, shard, ns, others)
				}
			}
			got, stamp, err := send(ctx, ns, id, pick(specs, index))
			mu.Lock()
			if at.Index == 0 || id == (task.ID{}) && stamp.Index > 0 {
				at = stamp
			}
			mu.Unlock()
			return put(out, index, got, err)
		})
		return nil
	})
	return out, at, nil
}
