package broker

import (
	"context"
	"math/rand/v2"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The engine's words for groups of tasks.
type (
	GroupView   = workflow.View
	GroupCounts = workflow.Counts
	GroupMember = workflow.Member
	GroupMade   = workflow.Made
	Joined      = workflow.Joined
	Notice      = engine.Notice
)

// GroupPage is a page of a list of groups.
type GroupPage struct {
	Groups []*GroupView
	More   bool
}

// MemberPage is a page of the members of a group.
type MemberPage struct {
	Members []GroupMember
	More    bool
}

// GroupCalls are the calls on the groups whose home a shard is.
type GroupCalls interface {
	// MakeGroup makes a group and its members. The shard has, or gets, copies of the queues.
	MakeGroup(ctx context.Context, shard uint32, ns string, g task.Group, queues []string) (GroupMade, Stamp, error)
	// FindGroup is the group that a request has made, or not_found.
	FindGroup(ctx context.Context, shard uint32, ns string, g task.Group) (GroupMade, Stamp, error)
	AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec, queues []string) ([]Joined, Stamp, error)
	CloseGroup(ctx context.Context, ns string, id task.ID) (*GroupView, Stamp, error)
	CancelGroup(ctx context.Context, by task.Author, ns string, id task.ID) (*GroupView, Stamp, error)
	Group(ctx context.Context, ns string, id task.ID) (*GroupView, Stamp, error)
	Groups(ctx context.Context, shard uint32, ns string, before task.ID, limit int) (GroupPage, Stamp, error)
	GroupMembers(ctx context.Context, ns string, id, behind task.ID, limit int) (MemberPage, Stamp, error)
	// Hear takes in what members in other shards tell of themselves.
	Hear(ctx context.Context, shard uint32, ns string, notices []*Notice) (Stamp, error)
}

// MakeGroup makes a group and its members. The group is filled and checked.
func (b *Broker) MakeGroup(ctx context.Context, shardID uint32, ns string, g task.Group, queues []string) (GroupMade, Stamp, error) {
	r, err := b.replicaWithRoom(shardID)
	if err != nil {
		return GroupMade{}, Stamp{}, err
	}
	n := &workflow.Call{Group: g, Namespace: ns, ID: r.groupID(ns, g.RequestID)}
	return withQueues(ctx, r, ns, queues, func(round *engine.Round) (GroupMade, error) {
		made, err := workflow.Make(round, n)
		if err == nil && made.Duplicate { // its maker may have seen more
			err = workflow.Within(round, task.ScopeOf(ctx), ns, n.ID)
		}
		return made, err
	})
}

// groupID is the id of a new group: that of its request, so that a repeated one names the same group, or a new one.
func (r *replica) groupID(ns string, request task.ID) task.ID {
	if request != (task.ID{}) {
		return task.NewID(r.id, request.UnixMilli(), requestBits(ns, request))
	}
	now, _ := r.shard.Now()
	return task.NewID(r.id, int64(now)/1000, rand.Uint64())
}

// FindGroup is the group that a request has made.
func (b *Broker) FindGroup(ctx context.Context, shardID uint32, ns string, g task.Group) (GroupMade, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return GroupMade{}, Stamp{}, err
	}
	n := &workflow.Call{Group: g, Namespace: ns, ID: r.groupID(ns, g.RequestID)}
	return change(ctx, r, inScope(ctx, onGroup(ns, n.ID), func(round *engine.Round) (GroupMade, error) { return workflow.Find(round, n) }))
}

// AddToGroup makes new members, each answered by itself.
func (b *Broker) AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec, queues []string) ([]Joined, Stamp, error) {
	r, err := b.replicaWithRoom(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	return withQueues(ctx, r, ns, queues, inScope(ctx, onGroup(ns, id), func(round *engine.Round) ([]Joined, error) {
		return workflow.Add(round, ns, id, tasks)
	}))
}

// CloseGroup lets an open group be complete when its members have ended.
func (b *Broker) CloseGroup(ctx context.Context, ns string, id task.ID) (*GroupView, Stamp, error) {
	return b.onGroup(ctx, ns, id, func(round *engine.Round) (*GroupView, error) { return workflow.Close(round, ns, id) })
}

// CancelGroup cancels a group with its members.
func (b *Broker) CancelGroup(ctx context.Context, by task.Author, ns string, id task.ID) (*GroupView, Stamp, error) {
	return b.onGroup(ctx, ns, id, func(round *engine.Round) (*GroupView, error) { return workflow.Cancel(round, by, ns, id) })
}

func (b *Broker) onGroup(ctx context.Context, ns string, id task.ID, fn func(*engine.Round) (*GroupView, error)) (*GroupView, Stamp, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	return change(ctx, r, inScope(ctx, onGroup(ns, id), fn))
}

// Group reads a group.
func (b *Broker) Group(ctx context.Context, ns string, id task.ID) (*GroupView, Stamp, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (*GroupView, error) { return groupSeen(ctx, from, ns, id) })
}

// Groups reads up to limit groups of a shard before one, newest first.
func (b *Broker) Groups(ctx context.Context, shardID uint32, ns string, before task.ID, limit int) (GroupPage, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return GroupPage{}, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (p GroupPage, err error) {
		p.Groups, p.More = workflow.List(from, ns, task.ScopeOf(ctx), before, limit)
		return p, nil
	})
}

// GroupMembers reads up to limit members of a group behind one.
func (b *Broker) GroupMembers(ctx context.Context, ns string, id, behind task.ID, limit int) (MemberPage, Stamp, error) {
	r, err := b.replica(id.Shard())
	if err != nil {
		return MemberPage{}, Stamp{}, err
	}
	return read(ctx, r, func(from store.Reader) (p MemberPage, err error) {
		if _, err := groupSeen(ctx, from, ns, id); err != nil {
			return p, err
		}
		p.Members, p.More, err = workflow.Members(from, ns, id, behind, limit)
		return p, err
	})
}

// Hear takes in what members in other shards tell of themselves.
func (b *Broker) Hear(ctx context.Context, shardID uint32, ns string, notices []*Notice) (Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return Stamp{}, err
	}
	_, at, err := change(ctx, r, func(round *engine.Round) (struct{}, error) {
		for _, n := range notices {
			workflow.Told(round, ns, n)
		}
		return struct{}{}, nil
	})
	return at, err
}

// groupSeen reads a group, if it is there for the call.
func groupSeen(ctx context.Context, from store.Reader, ns string, id task.ID) (*GroupView, error) {
	v, err := workflow.Show(from, ns, id)
	if err == nil && !task.ScopeOf(ctx).Covers(task.Scope{Queues: v.Within}) {
		return nil, task.NotFound("group", id.String())
	}
	return v, err
}
