package pawl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// GroupSpec describes a group of tasks to create: docs/workflows.md has the rules.
type GroupSpec struct {
	Name  string // for people: need not be unique
	Tasks []Item // the members: at most 1,000, and 8 MiB; more can be added later

	// OnComplete is enqueued when all members have ended, in whatever state; OnSuccess when all have succeeded; OnDeath
	// when the first one is dead-lettered or poisoned. Each is enqueued at most once. Their handlers read the counts, a
	// GroupCounts, with ParentResult.
	OnComplete, OnSuccess, OnDeath *Item

	Open      bool          // the group does not complete before CloseGroup, so that you can add members until then
	Retention time.Duration // how long it is kept once it has ended; 0: 24 h, or 14 days if members are dead or poisoned
	RequestID string        // a UUID: a repeat returns the first group; "": the client makes one
}

// CreatedGroup is a group that EnqueueGroup created.
type CreatedGroup struct {
	*pawltype.Group
	Tasks     []Enqueued // in the order of the spec; one with neither Ref nor Err is on its way to its queue
	Duplicate bool       // an earlier request with this id created the group
}

// InGroup makes the task a member of a group that is not complete yet. InGroup(t.GroupID) adds it to the group of a handler's own task.
func InGroup(id string) Option {
	return textOption("group_id", id, func(s *pawlv1.TaskSpec, id *string) { s.GroupId = id })
}

// EnqueueGroup creates a group and its members, all or nothing. When it returns without an error, they are on stable storage.
func (c *Client) EnqueueGroup(ctx context.Context, g GroupSpec) (*CreatedGroup, error) {
	what := "enqueue group"
	if g.Name != "" {
		what += fmt.Sprintf(" %q", g.Name)
	}
	req, err := g.request()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	ctx, sent := c.core.Telemetry.SendMany(ctx, len(req.Tasks), func(i int) *pawlv1.TaskSpec { return req.Tasks[i] })
	for _, spec := range []*pawlv1.TaskSpec{req.OnComplete, req.OnSuccess, req.OnDeath} {
		if spec != nil {
			c.core.Telemetry.Inject(ctx, spec)
		}
	}
	resp, err := rpc.Call(ctx, c.core.Caller, true, c.group.CreateGroup, req)
	sent.DoneWith(resp.GetTasks(), len(req.Tasks), err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &CreatedGroup{Group: convert.Group(resp.GetGroup()), Tasks: c.enqueued(resp.GetTasks()), Duplicate: resp.GetDuplicate()}, nil
}

func (g *GroupSpec) request() (*pawlv1.CreateGroupRequest, error) {
	req := &pawlv1.CreateGroupRequest{Name: g.Name, Open: g.Open, Retention: convert.Duration(g.Retention),
		RequestId: convert.Text(g.RequestID)}
	if err := errors.Join(convert.CheckText("name", g.Name), convert.CheckText("request_id", g.RequestID)); err != nil {
		return nil, err
	}
	if req.RequestId == nil {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("request id: %w", err)
		}
		req.RequestId = new(id.String())
	}
	for i, item := range g.Tasks {
		spec, err := spec.Of(item.Args, item.Options)
		if err != nil {
			return nil, convert.FieldIn(fmt.Sprintf("tasks[%d]", i), err)
		}
		req.Tasks = append(req.Tasks, spec)
	}
	for _, point := range []struct {
		field string
		item  *Item
		to    **pawlv1.TaskSpec
	}{{"on_complete", g.OnComplete, &req.OnComplete}, {"on_success", g.OnSuccess, &req.OnSuccess}, {"on_death", g.OnDeath, &req.OnDeath}} {
		if point.item == nil {
			continue
		}
		spec, err := spec.Of(point.item.Args, point.item.Options)
		if err != nil {
			return nil, convert.FieldIn(point.field, err)
		}
		*point.to = spec
	}
	return req, nil
}

// enqueued converts the results for tasks, in order.
func (c *Client) enqueued(results []*pawlv1.EnqueueResult) []Enqueued {
	out := make([]Enqueued, len(results))
	for i, r := range results {
		if e := r.GetError(); e != nil {
			out[i].Err = convert.Error(e)
		} else if t := r.GetTask(); t != nil {
			out[i].Ref = &Ref{ID: t.GetTaskId(), State: convert.State(t.GetState()), CreatedAt: convert.Time(t.GetCreatedAt()),
				Duplicate: t.GetDuplicate(), client: c}
		}
	}
	return out
}

// AddToGroup adds members, at most 1,000, to a group that is not complete. If the broker finds a task invalid, the call fails and adds
// nothing. What depends on the moment, such as a full queue or a key that another task holds, is reported for each task, and so is a
// task that can't be encoded.
func (c *Client) AddToGroup(ctx context.Context, id string, items []Item) ([]Enqueued, error) {
	req := &pawlv1.AddGroupTasksRequest{GroupId: id}
	out, at := make([]Enqueued, len(items)), make([]int, 0, len(items)) // req.Tasks[n] is items[at[n]]
	for i, item := range items {
		spec, err := c.newSpec(item.Args, item.Options)
		if err != nil {
			out[i].Err = fmt.Errorf("add to group %q: item %d: %w", id, i, err)
			continue
		}
		req.Tasks, at = append(req.Tasks, spec), append(at, i)
	}
	if len(req.Tasks) == 0 && len(items) > 0 {
		return out, nil
	}
	ctx, sent := c.core.Telemetry.SendMany(ctx, len(req.Tasks), func(i int) *pawlv1.TaskSpec { return req.Tasks[i] })
	resp, err := rpc.Call(ctx, c.core.Caller, true, c.group.AddGroupTasks, req)
	sent.DoneWith(resp.GetResults(), len(req.Tasks), err)
	if err != nil {
		return nil, fmt.Errorf("add to group %q: %w", id, err)
	}
	answers := c.enqueued(resp.GetResults())
	if n := len(answers); n != len(at) {
		return nil, fmt.Errorf("add to group %q: %d tasks got %d answers", id, len(at), n)
	}
	for n, e := range answers {
		out[at[n]] = e
	}
	return out, nil
}

// Group returns a group, or ErrNotFound if there is none.
func (c *Client) Group(ctx context.Context, id string) (*pawltype.Group, error) {
	resp, err := rpc.Call(ctx, c.core.Caller, true, c.group.GetGroup, &pawlv1.GetGroupRequest{GroupId: id})
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", id, err)
	}
	return convert.Group(resp.GetGroup()), nil
}

var errGroupRuns = errors.New("it has not ended")

// WaitGroup waits until a group has ended: it is complete, or it was cancelled and all its members have ended. It asks
// the broker repeatedly.
func (c *Client) WaitGroup(ctx context.Context, id string) (*pawltype.Group, error) {
	for try := 0; ; try++ {
		g, err := c.Group(ctx, id)
		if err != nil || !g.EndedAt.IsZero() {
			return g, err
		}
		if err := c.core.Sleep(ctx, rpc.Backoff(try, 50*time.Millisecond, time.Second), errGroupRuns); err != nil {
			return nil, fmt.Errorf("group %q: %w", id, err)
		}
	}
}

// CloseGroup lets an open group complete once all its members have ended. It is idempotent.
func (c *Client) CloseGroup(ctx context.Context, id string) (*pawltype.Group, error) {
	resp, err := rpc.Call(ctx, c.core.Caller, true, c.group.CloseGroup, &pawlv1.CloseGroupRequest{GroupId: id})
	if err != nil {
		return nil, fmt.Errorf("close group %q: %w", id, err)
	}
	return convert.Group(resp.GetGroup()), nil
}

// GroupMembers iterates over the members of a group with their results: first those that it was created with, in order, then those
// added later and the follow-up tasks of members.
func (c *Client) GroupMembers(ctx context.Context, id string) iter.Seq2[*pawltype.GroupMember, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.GroupMember], error) {
		return c.GroupMembersPage(ctx, id, pawltype.PageRequest{Cursor: cursor})
	})
}

// GroupMembersPage returns one page of the members of a group, in the order of GroupMembers.
func (c *Client) GroupMembersPage(ctx context.Context, id string, page pawltype.PageRequest) (pawltype.Page[*pawltype.GroupMember], error) {
	resp, err := rpc.Call(ctx, c.core.Caller, true, c.group.ListGroupMembers, &pawlv1.ListGroupMembersRequest{GroupId: id,
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*pawltype.GroupMember]{}, fmt.Errorf("members of group %q: %w", id, err)
	}
	return convert.Page(resp, convert.GroupMember), nil
}
