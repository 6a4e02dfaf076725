package gateway

import (
	"context"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
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
	*Gateway
}

// CreateGroup creates a group with its members.
func (g groupService) CreateGroup(ctx context.Context, r *pawlv1.CreateGroupRequest) (answer *pawlv1.CreateGroupResponse, err error) {
	spans := g.traceEnqueue(ctx, r.GetTasks()...)
	defer func() { spans.end(answer.GetTasks(), err) }()
	joinCall(ctx, r.GetOnComplete(), r.GetOnSuccess(), r.GetOnDeath())
	group, err := groupOf(r, g.limits)
	if err != nil {
		return nil, err
	}
	if err := mayGroup(ctx, group.Tasks, &group); err != nil {
		return nil, err
	}
	if err := g.takeGroup(ctx, group.Tasks); err != nil {
		return nil, err
	}
	group.Within = task.ScopeOf(ctx).Queues
	made, at, err := g.cfg.Groups.MakeGroup(ctx, namespaceOf(ctx), group)
	noteStamp(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.CreateGroupResponse{Group: groupProto(made.Group), Tasks: newResults(len(made.Tasks)), Duplicate: made.Duplicate}
	for i := range made.Tasks {
		switch j := &made.Tasks[i]; {
		case j.Err != nil:
			out.Tasks[i].Error = g.itemError(j.Err)
		case j.Message == nil:
			out.Tasks[i].Task = &pawlv1.Enqueued{CreatedAt: timeProto(j.CreatedAt)}
			enqueuedProto(out.Tasks[i].Task, &j.Accepted)
		}
	}
	return out, nil
}

// mayGroup refuses members and callbacks of a group in queues that the caller's token does not cover.
func mayGroup(ctx context.Context, members []task.Spec, g *task.Group) error {
	for i := range members {
		if err := mayEnqueue(ctx, &members[i]); err != nil {
			return contract.FieldOf(contract.Item("tasks", i), err)
		}
	}
	for field, s := range g.Callbacks() {
		if s == nil {
			continue
		}
		if err := mayEnqueue(ctx, s); err != nil {
			return contract.FieldOf(field, err)
		}
	}
	return nil
}

// groupOf decodes and validates the spec of a group, and fills in defaults.
func groupOf(r *pawlv1.CreateGroupRequest, l task.Limits) (g task.Group, err error) {
	g = task.Group{Name: r.GetName(), Open: r.GetOpen()}
	if g.RequestID, err = optionalID("request_id", r.GetRequestId()); err != nil {
		return g, err
	}
	if r.GetRetention() != nil {
		keep, err := spanOf("retention", r.GetRetention())
		if err != nil {
			return g, err
		}
		g.Retention = &keep
	}
	if g.Tasks, err = membersOf(r.GetTasks(), l); err != nil {
		return g, err
	}
	for _, point := range []struct {
		field string
		said  *pawlv1.TaskSpec
		to    **task.Spec
	}{{"on_complete", r.GetOnComplete(), &g.OnComplete}, {"on_success", r.GetOnSuccess(), &g.OnSuccess}, {"on_death", r.GetOnDeath(), &g.OnDeath}} {
		if point.said == nil {
			continue
		}
		spec, err := specOf(point.said, l)
		if err != nil {
			return g, contract.FieldOf(point.field, err)
		}
		*point.to = &spec
	}
	return g, g.Check(l)
}

// membersOf decodes tasks that will be members of a group.
func membersOf(said []*pawlv1.TaskSpec, l task.Limits) ([]task.Spec, error) {
	if len(said) > l.Batch {
		return nil, task.Invalid("tasks", "%d tasks, at most %d are allowed in one call", len(said), l.Batch)
	}
	tasks := make([]task.Spec, len(said))
	for i, p := range said {
		var err error
		if tasks[i], err = specOf(p, l); err != nil {
			return nil, contract.FieldOf(contract.Item("tasks", i), err)
		}
	}
	return tasks, nil
}

// AddGroupTasks adds members to a group.
func (g groupService) AddGroupTasks(ctx context.Context, r *pawlv1.AddGroupTasksRequest) (answer *pawlv1.AddGroupTasksResponse, err error) {
	spans := g.traceEnqueue(ctx, r.GetTasks()...)
	defer func() { spans.end(answer.GetResults(), err) }()
	id, err := idOf("group_id", r.GetGroupId())
	if err != nil {
		return nil, err
	}
	if len(r.GetTasks()) == 0 {
		return nil, task.Invalid("tasks", "is required, with 1 to %d tasks", g.limits.Batch)
	}
	tasks, err := membersOf(r.GetTasks(), g.limits)
	if err == nil {
		err = task.CheckMembers(tasks, g.limits)
	}
	if err == nil {
		err = mayGroup(ctx, tasks, &task.Group{})
	}
	if err == nil {
		err = g.takeGroup(ctx, tasks)
	}
	if err != nil {
		return nil, err
	}
	got, at, err := g.cfg.Groups.AddToGroup(ctx, namespaceOf(ctx), id, tasks)
	noteStamp(ctx, at)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.AddGroupTasksResponse{Results: newResults(len(got))}
	for i := range got {
		if got[i].Err != nil {
			out.Results[i].Error = g.itemError(got[i].Err)
			continue
		}
		out.Results[i].Task = &pawlv1.Enqueued{CreatedAt: timeProto(got[i].CreatedAt)}
		enqueuedProto(out.Results[i].Task, &got[i].Accepted)
	}
	return out, nil
}

// GetGroup returns a group.
func (g groupService) GetGroup(ctx context.Context, r *pawlv1.GetGroupRequest) (*pawlv1.GetGroupResponse, error) {
	p, err := g.grouped(ctx, r.GetGroupId(), broker.ShowGroup)
	return &pawlv1.GetGroupResponse{Group: p}, err
}

// grouped runs a call on a group that returns its state.
func (g *Gateway) grouped(ctx context.Context, groupID string, v *verb.Verb[broker.OnGroup, broker.Shown[*broker.GroupView]]) (*pawlv1.Group, error) {
	id, err := idOf("group_id", groupID)
	if err != nil {
		return nil, err
	}
	out, err := v.Call(ctx, g.verbs, broker.OnGroup{Namespace: namespaceOf(ctx), ID: id})
	if err != nil {
		return nil, err
	}
	return groupProto(out.View), nil
}

// CloseGroup closes an open group, which is then complete once its members have ended.
func (g groupService) CloseGroup(ctx context.Context, r *pawlv1.CloseGroupRequest) (*pawlv1.CloseGroupResponse, error) {
	p, err := g.grouped(ctx, r.GetGroupId(), broker.CloseGroup)
	return &pawlv1.CloseGroupResponse{Group: p}, err
}

// CancelGroup cancels a group with its members.
func (g groupService) CancelGroup(ctx context.Context, r *pawlv1.CancelGroupRequest) (*pawlv1.CancelGroupResponse, error) {
	by, err := authorOf(ctx, r.GetReason())
	if err != nil {
		return nil, err
	}
	id, err := idOf("group_id", r.GetGroupId())
	if err != nil {
		return nil, err
	}
	out, err := broker.CancelGroup.Call(ctx, g.verbs, broker.GroupCommand{OnGroup: broker.OnGroup{Namespace: namespaceOf(ctx), ID: id}, Authored: broker.Authored{By: by}})
	if err != nil {
		return nil, err
	}
	p := groupProto(out.View)
	g.log.Info("group cancelled", "group_id", r.GetGroupId(), "name", p.GetName(), "members", p.GetCounts().GetMembers(), "by", by)
	return &pawlv1.CancelGroupResponse{Group: p}, nil
}

// ListGroups returns a page of groups, newest first.
func (g groupService) ListGroups(ctx context.Context, r *pawlv1.ListGroupsRequest) (*pawlv1.ListGroupsResponse, error) {
	n, before, err := pageByID(r, groupCursor)
	if err != nil {
		return nil, err
	}
	list, err := broker.ListGroups.Call(ctx, g.verbs, broker.GroupList{OnShard: onShard(ctx, 0), Behind: before, Limit: n})
	if err != nil {
		return nil, err
	}
	page := list.Page
	out := &pawlv1.ListGroupsResponse{}
	for _, v := range page.Groups {
		out.Items = append(out.Items, groupProto(v))
	}
	if n := len(page.Groups); page.More && n > 0 {
		out.NextCursor = encodeCursor(groupCursor, page.Groups[n-1].ID[:])
	}
	return out, nil
}

// ListGroupMembers returns a page of the members of a group.
func (g groupService) ListGroupMembers(ctx context.Context, r *pawlv1.ListGroupMembersRequest) (*pawlv1.ListGroupMembersResponse, error) {
	id, err := idOf("group_id", r.GetGroupId())
	if err != nil {
		return nil, err
	}
	n, behind, err := pageByID(r, memberCursor)
	if err != nil {
		return nil, err
	}
	list, err := broker.GroupMembers.Call(ctx, g.verbs, broker.MemberList{OnGroup: broker.OnGroup{Namespace: namespaceOf(ctx), ID: id}, Behind: behind, Limit: n})
	if err != nil {
		return nil, err
	}
	page := list.Members
	out, size := &pawlv1.ListGroupMembersResponse{}, 0
	for i := range page.Members {
		p := memberProto(&page.Members[i])
		if size += proto.Size(p); size > maxPageBytes && i > 0 {
			page.Members, page.More = page.Members[:i], true
			break
		}
		out.Items = append(out.Items, p)
	}
	if n := len(page.Members); page.More && n > 0 {
		out.NextCursor = encodeCursor(memberCursor, page.Members[n-1].Ref[:])
	}
	return out, nil
}

func groupProto(v *broker.GroupView) *pawlv1.Group {
	c := &v.Counts
	p := &pawlv1.Group{GroupId: v.ID.String(), Name: v.Name, State: pawlv1.GroupState(v.State) + 1, Open: v.Open,
		Counts: &pawlv1.GroupCounts{Members: c.Members, Pending: c.Pending, Succeeded: c.Succeeded, Dead: c.Dead, Poisoned: c.Poisoned,
			Discarded: c.Discarded, Cancelled: c.Cancelled, Refused: c.Refused},
		CreatedAt: timeProto(v.CreatedAt), EndedAt: timeProto(v.EndedAt), KeptUntil: timeProto(v.KeptUntil)}
	for i := range v.Points {
		f := followerProto(&v.Points[i])
		switch v.Points[i].On {
		case "on_complete":
			p.OnComplete = f
		case "on_success":
			p.OnSuccess = f
		case "on_death":
			p.OnDeath = f
		}
	}
	return p
}

func memberProto(m *broker.GroupMember) *pawlv1.GroupMember {
	p := &pawlv1.GroupMember{Type: m.Type, Queue: m.Queue, State: stateProto(m.State), Refused: m.Refused, Result: m.Result.Data,
		ResultContentType: m.Result.ContentType, ResultOmitted: m.Omitted}
	if m.ID != (task.ID{}) {
		p.TaskId = m.ID.String()
	}
	return p
}
