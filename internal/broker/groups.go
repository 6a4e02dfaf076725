package broker

import (
	"context"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Types of the engine for groups of tasks.
type (
	GroupView   = workflow.View
	GroupCounts = workflow.Counts
	GroupMember = workflow.Member
	GroupMade   = workflow.Made
	Joined      = workflow.Joined
	Notice      = schema.Notice
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

// MakeGroup creates a group and its members. The group must be complete and checked.
func (b *Broker) MakeGroup(ctx context.Context, shardID uint32, ns string, g task.Group, queues []string) (GroupMade, Stamp, error) {
	r, err := b.replicaWithRoom(shardID)
	if err != nil {
		return GroupMade{}, Stamp{}, err
	}
	n := (&workflow.Call{Group: g, Namespace: ns, ID: r.groupID(ns, g.RequestID)}).Hash()
	return withQueues(ctx, r, ns, queues, func(round *engine.Round) (GroupMade, error) {
		made, err := workflow.Make(round, n)
		if err == nil && made.Duplicate { // its creator may have been allowed to see more
			err = workflow.Within(round, task.ScopeOf(ctx), ns, n.ID)
		}
		return made, err
	})
}

// groupID returns the id of a new group. It is derived from the request id if there is one, so that a repeated request
// names the same group.
func (r *replica) groupID(ns string, request task.ID) task.ID {
	if request != (task.ID{}) {
		return task.NewID(r.id, request.UnixMilli(), requestBits("group", ns, request))
	}
	return r.newID()
}

// FindGroup returns the group that a request has created.
func (b *Broker) FindGroup(ctx context.Context, shardID uint32, ns string, g task.Group) (GroupMade, Stamp, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return GroupMade{}, Stamp{}, err
	}
	n := (&workflow.Call{Group: g, Namespace: ns, ID: r.groupID(ns, g.RequestID)}).Hash()
	return withQueues(ctx, r, ns, []string{g.Home.Queue}, inScope(ctx, onGroup(ns, n.ID), func(round *engine.Round) (GroupMade, error) {
		return workflow.Find(round, n)
	}))
}

// AddToGroup adds new members, each with its own result.
func (b *Broker) AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec, queues []string) ([]Joined, Stamp, error) {
	r, err := b.replicaWithRoom(id.Shard())
	if err != nil {
		return nil, Stamp{}, err
	}
	members := workflow.NewMembers(tasks)
	return withQueues(ctx, r, ns, queues, inScope(ctx, onGroup(ns, id), func(round *engine.Round) ([]Joined, error) {
		return workflow.Add(round, ns, id, members)
	}))
}

// OnGroup is a request about a group.
type OnGroup struct {
	Namespace string
	ID        task.ID
}

// TargetShard implements verb.Sharded.
func (o *OnGroup) TargetShard() uint32 { return o.ID.Shard() }

// ObjectID implements verb.ByID.
func (o *OnGroup) ObjectID() (kind, id string) { return "group", o.ID.String() }

func (o *OnGroup) within(round *engine.Round, s task.Scope) error {
	return workflow.Within(round, s, o.Namespace, o.ID)
}

// CloseGroup closes an open group, so that it is complete once its members have ended.
var CloseGroup = changes(verb.Rule{Name: "close-group", Idempotent: true}, func(round *engine.Round, q *OnGroup) (out Shown[*GroupView],
	err error) {
	out.View, err = workflow.Close(round, q.Namespace, q.ID)
	return out, err
})

// GroupCommand is an operator's call on a group.
type GroupCommand struct {
	OnGroup
	Authored
}

// CancelGroup cancels a group and its members.
var CancelGroup = changes(verb.Rule{Name: "cancel-group", Idempotent: true}, func(round *engine.Round,
	q *GroupCommand) (out Shown[*GroupView], err error) {
	out.View, err = workflow.Cancel(round, q.By, q.Namespace, q.ID)
	return out, err
})

// ShowGroup reads a group.
var ShowGroup = reads(verb.Rule{Name: "group"}, func(from store.Reader, scope task.Scope, q *OnGroup) (out Shown[*GroupView], err error) {
	out.View, err = groupSeen(from, scope, q.Namespace, q.ID)
	return out, err
})

// GroupList asks for a page of groups, newest first, starting after a group; the zero id starts at the newest.
type GroupList struct {
	OnShard
	After task.ID
	Limit int
}

// ListGroups reads a page of the groups of all shards.
var ListGroups = reads(verb.Rule{Name: "groups"}, func(from store.Reader, scope task.Scope, q *GroupList) (out Paged[GroupPage],
	err error) {
	out.Page.Groups, out.Page.More = workflow.List(from, q.Namespace, scope, q.After, q.Limit)
	return out, nil
}).Merged(func(q *GroupList, parts []Paged[GroupPage]) (out Paged[GroupPage], err error) {
	out.Page.Groups, out.Page.More = verb.MergePages(parts, q.Limit, func(p Paged[GroupPage]) ([]*GroupView, bool) {
		return p.Page.Groups, p.Page.More
	},
		func(a, b *GroupView) int { return b.ID.Compare(a.ID) })
	return out, nil
})

// MemberList asks for a page of a group's members, starting after a member; the zero id starts at the first.
type MemberList struct {
	OnGroup
	After task.ID
	Limit int
}

// MembersListed is a page of a group's members.
type MembersListed struct {
	Members MemberPage
	Stamped
}

// GroupMembers reads members of a group.
var GroupMembers = reads(verb.Rule{Name: "group-members"}, func(from store.Reader, scope task.Scope, q *MemberList) (out MembersListed,
	err error) {
	if _, err := groupSeen(from, scope, q.Namespace, q.ID); err != nil {
		return out, err
	}
	out.Members.Members, out.Members.More, err = workflow.Members(from, q.Namespace, q.ID, q.After, q.Limit)
	return out, err
})

// GroupNotices reports how members in other shards have ended.
type GroupNotices struct {
	OnShard
	Notices []*Notice
}

// RecordNotices records the notices in the group's shard.
var RecordNotices = receives(verb.Rule{Name: "hear", Idempotent: true}, func(round *engine.Round, q *GroupNotices) (verb.Nothing, error) {
	for _, n := range q.Notices {
		workflow.Receive(round, q.Namespace, n)
	}
	return verb.Nothing{}, nil
})

// groupSeen reads a group, if it is visible to the call.
func groupSeen(from store.Reader, scope task.Scope, ns string, id task.ID) (*GroupView, error) {
	v, err := workflow.Show(from, ns, id)
	if err == nil && !scope.Covers(task.Scope{Queues: v.Within}) {
		return nil, task.NotFound("group", id.String())
	}
	return v, err
}
