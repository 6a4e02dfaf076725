package gateway

import (
	"context"
	"log/slog"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/gateway/access"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Groups is what the gateway needs of groups of tasks, wherever they live.
type Groups interface {
	MakeGroup(ctx context.Context, ns string, g task.Group) (broker.GroupMade, broker.Stamp, error)
	AddToGroup(ctx context.Context, ns string, id task.ID, tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error)
}

// groupService implements GroupService.
type groupService struct {
	pawlv1.UnimplementedGroupServiceServer
	spans tasktrace.Spans
	callinfo.Errors
	groups Groups
	access *access.Guard
	verbs  verb.Runner
	limits task.Limits
	log    *slog.Logger
}

// CreateGroup creates a group with its members.
func (g *groupService) CreateGroup(ctx context.Context, r *pawlv1.CreateGroupRequest) (answer *pawlv1.CreateGroupResponse, err error) {
	spans := g.spans.Enqueue(ctx, r.GetTasks()...)
	defer func() { spans.End(answer.GetTasks(), err) }()
	tasktrace.JoinCall(ctx, r.GetOnComplete(), r.GetOnSuccess(), r.GetOnDeath())
	group, err := apiproto.GroupOf(r, g.limits)
	if err != nil {
		return nil, err
	}
	if err := mayGroup(ctx, group.Tasks, &group); err != nil {
		return nil, err
	}
	if err := g.access.TakeGroup(ctx, group.Tasks); err != nil {
		return nil, err
	}
	group.Within = task.ScopeOf(ctx).Queues
	made, at, err := g.groups.MakeGroup(ctx, callinfo.Namespace(ctx), group)
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.CreateGroupResponse{Group: apiproto.GroupProto(made.Group), Tasks: newResults(len(made.Tasks)),
		Duplicate: made.Duplicate}
	for i := range made.Tasks {
		switch j := &made.Tasks[i]; {
		case j.Err != nil:
			out.Tasks[i].Error = g.Item(j.Err)
		case j.Message == nil:
			out.Tasks[i].Task = &pawlv1.Enqueued{CreatedAt: apiproto.TimeProto(j.CreatedAt)}
			apiproto.EnqueuedProto(out.Tasks[i].Task, &j.Accepted)
		}
	}
	return out, nil
}

// mayGroup refuses members and callbacks of a group in queues that the caller's token does not cover.
func mayGroup(ctx context.Context, members []task.Spec, g *task.Group) error {
	for i := range members {
		if err := callinfo.MayEnqueue(ctx, &members[i]); err != nil {
			return contract.FieldOf(contract.Item("tasks", i), err)
		}
	}
	for field, s := range g.Callbacks() {
		if s == nil {
			continue
		}
		if err := callinfo.MayEnqueue(ctx, s); err != nil {
			return contract.FieldOf(field, err)
		}
	}
	return nil
}

// AddGroupTasks adds members to a group.
func (g *groupService) AddGroupTasks(ctx context.Context, r *pawlv1.AddGroupTasksRequest) (answer *pawlv1.AddGroupTasksResponse,
	err error) {
	spans := g.spans.Enqueue(ctx, r.GetTasks()...)
	defer func() { spans.End(answer.GetResults(), err) }()
	id, err := apiproto.IDOf("group_id", r.GetGroupId())
	if err != nil {
		return nil, err
	}
	if len(r.GetTasks()) == 0 {
		return nil, task.Invalid("tasks", "is required, with 1 to %d tasks", g.limits.Batch)
	}
	tasks, err := apiproto.MembersOf(r.GetTasks(), g.limits)
	if err == nil {
		err = task.CheckMembers(tasks, g.limits)
	}
	if err == nil {
		err = mayGroup(ctx, tasks, &task.Group{})
	}
	if err == nil {
		err = g.access.TakeGroup(ctx, tasks)
	}
	if err != nil {
		return nil, err
	}
	got, at, err := g.groups.AddToGroup(ctx, callinfo.Namespace(ctx), id, tasks)
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.AddGroupTasksResponse{Results: newResults(len(got))}
	for i := range got {
		if got[i].Err != nil {
			out.Results[i].Error = g.Item(got[i].Err)
			continue
		}
		out.Results[i].Task = &pawlv1.Enqueued{CreatedAt: apiproto.TimeProto(got[i].CreatedAt)}
		apiproto.EnqueuedProto(out.Results[i].Task, &got[i].Accepted)
	}
	return out, nil
}

// GetGroup returns a group.
func (g *groupService) GetGroup(ctx context.Context, r *pawlv1.GetGroupRequest) (*pawlv1.GetGroupResponse, error) {
	p, err := g.grouped(ctx, r.GetGroupId(), broker.ShowGroup)
	return &pawlv1.GetGroupResponse{Group: p}, err
}

// grouped runs a call on a group that returns its state.
func (g *groupService) grouped(ctx context.Context, groupID string, v *verb.Verb[broker.OnGroup, broker.Shown[*broker.GroupView]]) (
	*pawlv1.Group, error) {
	id, err := apiproto.IDOf("group_id", groupID)
	if err != nil {
		return nil, err
	}
	out, err := v.Call(ctx, g.verbs, broker.OnGroup{Namespace: callinfo.Namespace(ctx), ID: id})
	if err != nil {
		return nil, err
	}
	return apiproto.GroupProto(out.View), nil
}

// CloseGroup closes an open group, which is then complete once its members have ended.
func (g *groupService) CloseGroup(ctx context.Context, r *pawlv1.CloseGroupRequest) (*pawlv1.CloseGroupResponse, error) {
	p, err := g.grouped(ctx, r.GetGroupId(), broker.CloseGroup)
	return &pawlv1.CloseGroupResponse{Group: p}, err
}

// CancelGroup cancels a group with its members.
func (g *groupService) CancelGroup(ctx context.Context, r *pawlv1.CancelGroupRequest) (*pawlv1.CancelGroupResponse, error) {
	by, err := callinfo.Author(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	id, err := apiproto.IDOf("group_id", r.GetGroupId())
	if err != nil {
		return nil, err
	}
	group := broker.OnGroup{Namespace: callinfo.Namespace(ctx), ID: id}
	out, err := broker.CancelGroup.Call(ctx, g.verbs, broker.GroupCommand{OnGroup: group, Authored: broker.Authored{By: by}})
	if err != nil {
		return nil, err
	}
	p := apiproto.GroupProto(out.View)
	g.log.Info("group cancelled", "group_id", r.GetGroupId(), "name", p.GetName(), "members", p.GetCounts().GetMembers(), "by", by)
	return &pawlv1.CancelGroupResponse{Group: p}, nil
}

// ListGroups returns a page of groups, newest first.
func (g *groupService) ListGroups(ctx context.Context, r *pawlv1.ListGroupsRequest) (*pawlv1.ListGroupsResponse, error) {
	n, before, err := apiproto.PageByID(r, apiproto.GroupCursor)
	if err != nil {
		return nil, err
	}
	list, err := broker.ListGroups.Call(ctx, g.verbs, broker.GroupList{OnShard: callinfo.OnShard(ctx, 0), After: before, Limit: n})
	if err != nil {
		return nil, err
	}
	page := list.Page
	out := &pawlv1.ListGroupsResponse{Missing: apiproto.MissingProto(list.Missing)}
	for _, v := range page.Groups {
		out.Items = append(out.Items, apiproto.GroupProto(v))
	}
	if n := len(page.Groups); page.More && n > 0 {
		out.NextCursor = apiproto.EncodeCursor(apiproto.GroupCursor, page.Groups[n-1].ID[:])
	}
	return out, nil
}

// ListGroupMembers returns a page of the members of a group.
func (g *groupService) ListGroupMembers(ctx context.Context, r *pawlv1.ListGroupMembersRequest) (*pawlv1.ListGroupMembersResponse, error) {
	id, err := apiproto.IDOf("group_id", r.GetGroupId())
	if err != nil {
		return nil, err
	}
	n, after, err := apiproto.PageByID(r, apiproto.MemberCursor)
	if err != nil {
		return nil, err
	}
	group := broker.OnGroup{Namespace: callinfo.Namespace(ctx), ID: id}
	list, err := broker.GroupMembers.Call(ctx, g.verbs, broker.MemberList{OnGroup: group, After: after, Limit: n})
	if err != nil {
		return nil, err
	}
	page := list.Members
	out, size := &pawlv1.ListGroupMembersResponse{}, 0
	for i := range page.Members {
		p := apiproto.MemberProto(&page.Members[i])
		if size += proto.Size(p); size > apiproto.MaxPageBytes && i > 0 {
			page.Members, page.More = page.Members[:i], true
			break
		}
		out.Items = append(out.Items, p)
	}
	if n := len(page.Members); page.More && n > 0 {
		out.NextCursor = apiproto.EncodeCursor(apiproto.MemberCursor, page.Members[n-1].Ref[:])
	}
	return out, nil
}
