package pawl

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// GroupSpec is a group of tasks that is to be made: docs/workflows.md has the rules.
type GroupSpec struct {
	Name  string // for people: need not be unique
	Tasks []Item // the members: at most 1,000, and 8 MiB; more can be added

	// OnComplete is enqueued when all members have ended, however; OnSuccess when all have succeeded; OnDeath at the first that is a dead
	// letter or poisoned. Each at most once. Their handlers read the counts with ParentResult[GroupCounts].
	OnComplete, OnSuccess, OnDeath *Item

	Open      bool          // the group is not complete before CloseGroup, so that members can be added at leisure
	Retention time.Duration // how long it is kept once it has ended; 0: 24 h, or 14 days if members are dead or poisoned
	RequestID string        // a UUID: a repeat gives the first group again; "": one that the client makes
}

// GroupMade is a group that was made.
type GroupMade struct {
	*GroupInfo
	Tasks     []Enqueued // in the order of the spec; one with neither Ref nor Err is on its way to its queue
	Duplicate bool       // the request had made the group before
}

// GroupInfo is everything the broker knows of a group.
type GroupInfo struct {
	ID         string
	Name       string
	State      GroupState
	Open       bool
	Counts     GroupCounts
	CreatedAt  time.Time
	EndedAt    time.Time // when it was complete, or all members of a cancelled one had ended
	KeptUntil  time.Time // when it is forgotten
	OnComplete *Follower // nil: it has none
	OnSuccess  *Follower
	OnDeath    *Follower
}

// GroupState says where a group is.
type GroupState string

// The states of a group.
const (
	GroupRunning   GroupState = "running"   // members may be added
	GroupComplete  GroupState = "complete"  // all members had ended
	GroupCancelled GroupState = "cancelled" // its members are cancelled, or will be in a moment
)

// GroupCounts are the members of a group by where they are. As the parent's result of a task that a group enqueues it also says which
// group it is.
type GroupCounts struct {
	GroupID   string `json:"group_id,omitempty"`
	Name      string `json:"name,omitempty"`
	Members   int64  `json:"members"`
	Pending   int64  `json:"pending"` // have not ended
	Succeeded int64  `json:"succeeded"`
	Dead      int64  `json:"dead"`
	Poisoned  int64  `json:"poisoned"`
	Discarded int64  `json:"discarded"`
	Cancelled int64  `json:"cancelled"`
	Refused   int64  `json:"refused"`           // their queues would not take them
	TaskID    string `json:"task_id,omitempty"` // of OnDeath: the member that died
}

// GroupMember is a member of a group, as the group knows it.
type GroupMember struct {
	TaskID            string // "" while it is on its way to its queue, or if it was refused
	Type              string
	Queue             string
	State             State  // its end; "" while it has not ended
	Refused           string // why its queue would not take it: a code, or duplicate
	Result            []byte // up to 16 KiB
	ResultContentType string
	ResultOmitted     bool // it is larger, or the group keeps 64 MiB already: Client.Task has it
}

// DecodeResult decodes the member's result from JSON into v, which stays as it is if there is none.
func (m *GroupMember) DecodeResult(v any) error { return decode(m.TaskID, "result", m.Result, v) }

// InGroup makes the task a member of a group that is not complete yet: of that of a handler's task, say, with InGroup(t.GroupID).
func InGroup(id string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.GroupId = id })
}

// EnqueueGroup makes a group and its members, all or nothing. When it returns without an error, they are on stable storage.
func (c *Client) EnqueueGroup(ctx context.Context, g GroupSpec) (*GroupMade, error) {
	what := "enqueue group"
	if g.Name != "" {
		what += fmt.Sprintf(" %q", g.Name)
	}
	req, err := g.request()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	ctx, sent := c.observe.sendMany(ctx, len(req.Tasks), func(i int) *pawlv1.TaskSpec { return req.Tasks[i] })
	for _, spec := range []*pawlv1.TaskSpec{req.OnComplete, req.OnSuccess, req.OnDeath} {
		if spec != nil {
			c.observe.inject(ctx, spec)
		}
	}
	resp, err := call(ctx, c, true, c.group.CreateGroup, req)
	tasks := c.enqueued(resp.GetTasks())
	sent.doneWith(tasks, len(req.Tasks), err)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &GroupMade{GroupInfo: groupOf(resp.GetGroup()), Tasks: tasks, Duplicate: resp.GetDuplicate()}, nil
}

func (g *GroupSpec) request() (*pawlv1.CreateGroupRequest, error) {
	req := &pawlv1.CreateGroupRequest{Name: g.Name, Open: g.Open, Retention: durationOrNil(g.Retention), RequestId: g.RequestID}
	if err := errors.Join(checkText("name", g.Name), checkText("request_id", g.RequestID)); err != nil {
		return nil, err
	}
	if req.RequestId == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("request id: %w", err)
		}
		req.RequestId = id.String()
	}
	for i, item := range g.Tasks {
		spec, err := describe(item.Args, item.Options)
		if err != nil {
			return nil, fieldIn(fmt.Sprintf("tasks[%d]", i), err)
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
		spec, err := describe(point.item.Args, point.item.Options)
		if err != nil {
			return nil, fieldIn(point.field, err)
		}
		*point.to = spec
	}
	return req, nil
}

// enqueued are the answers for tasks, in their order.
func (c *Client) enqueued(results []*pawlv1.EnqueueResult) []Enqueued {
	out := make([]Enqueued, len(results))
	for i, r := range results {
		if e := r.GetError(); e != nil {
			out[i].Err = errorOf(e)
		} else if t := r.GetTask(); t != nil {
			out[i].Ref = &Ref{ID: t.GetTaskId(), State: stateOf(t.GetState()), CreatedAt: timeOf(t.GetCreatedAt()), Duplicate: t.GetDuplicate(), client: c}
		}
	}
	return out
}

// AddToGroup makes further members of a group that is not complete, at most 1,000, each answered by itself.
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
	ctx, sent := c.observe.sendMany(ctx, len(req.Tasks), func(i int) *pawlv1.TaskSpec { return req.Tasks[i] })
	resp, err := call(ctx, c, true, c.group.AddGroupTasks, req)
	answers := c.enqueued(resp.GetResults())
	sent.doneWith(answers, len(req.Tasks), err)
	if err != nil {
		return nil, fmt.Errorf("add to group %q: %w", id, err)
	}
	if n := len(answers); n != len(at) {
		return nil, fmt.Errorf("add to group %q: %d tasks got %d answers", id, len(at), n)
	}
	for n, e := range answers {
		out[at[n]] = e
	}
	return out, nil
}

// Group gives what the broker knows of a group, or ErrNotFound.
func (c *Client) Group(ctx context.Context, id string) (*GroupInfo, error) {
	resp, err := call(ctx, c, true, c.group.GetGroup, &pawlv1.GetGroupRequest{GroupId: id})
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", id, err)
	}
	return groupOf(resp.GetGroup()), nil
}

// CloseGroup lets an open group be complete when all its members have ended. It may be repeated.
func (c *Client) CloseGroup(ctx context.Context, id string) (*GroupInfo, error) {
	resp, err := call(ctx, c, true, c.group.CloseGroup, &pawlv1.CloseGroupRequest{GroupId: id})
	if err != nil {
		return nil, fmt.Errorf("close group %q: %w", id, err)
	}
	return groupOf(resp.GetGroup()), nil
}

// CancelGroup cancels a group with all its members, and drops what it would have enqueued. It may be repeated. One that is complete is
// ErrWrongState.
func (c *Client) CancelGroup(ctx context.Context, id, reason string) (*GroupInfo, error) {
	resp, err := operate(ctx, c.Admin(), true, c.group.CancelGroup, &pawlv1.CancelGroupRequest{GroupId: id, Reason: reason})
	if err != nil {
		return nil, fmt.Errorf("cancel group %q: %w", id, err)
	}
	return groupOf(resp.GetGroup()), nil
}

// Groups goes over the groups, newest first.
func (c *Client) Groups(ctx context.Context) iter.Seq2[*GroupInfo, error] {
	return pages(func(cursor string) (Page[*GroupInfo], error) { return c.GroupsPage(ctx, PageRequest{Cursor: cursor}) })
}

// GroupsPage gives one page of the groups, newest first.
func (c *Client) GroupsPage(ctx context.Context, page PageRequest) (Page[*GroupInfo], error) {
	resp, err := call(ctx, c, true, c.group.ListGroups, &pawlv1.ListGroupsRequest{Limit: clampInt32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return Page[*GroupInfo]{}, fmt.Errorf("list groups: %w", err)
	}
	return pageOf(resp, groupOf), nil
}

// GroupMembers goes over the members of a group with their results: in the order in which they were added with the group, and behind
// them those that were added later and what follows members.
func (c *Client) GroupMembers(ctx context.Context, id string) iter.Seq2[*GroupMember, error] {
	return pages(func(cursor string) (Page[*GroupMember], error) {
		return c.GroupMembersPage(ctx, id, PageRequest{Cursor: cursor})
	})
}

// GroupMembersPage gives one page of the members of a group.
func (c *Client) GroupMembersPage(ctx context.Context, id string, page PageRequest) (Page[*GroupMember], error) {
	resp, err := call(ctx, c, true, c.group.ListGroupMembers, &pawlv1.ListGroupMembersRequest{GroupId: id, Limit: clampInt32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return Page[*GroupMember]{}, fmt.Errorf("members of group %q: %w", id, err)
	}
	return pageOf(resp, memberOf), nil
}

func memberOf(p *pawlv1.GroupMember) *GroupMember {
	return &GroupMember{TaskID: p.GetTaskId(), Type: p.GetType(), Queue: p.GetQueue(), State: stateOf(p.GetState()),
		Refused: p.GetRefused(), Result: p.GetResult(), ResultContentType: p.GetResultContentType(), ResultOmitted: p.GetResultOmitted()}
}

// Read only.
var groupStateWords = words[GroupState](pawlv1.GroupState_name, "GROUP_STATE_")

func groupOf(p *pawlv1.Group) *GroupInfo {
	c := p.GetCounts()
	return &GroupInfo{ID: p.GetGroupId(), Name: p.GetName(), State: groupStateWords[int32(p.GetState())], Open: p.GetOpen(),
		Counts: GroupCounts{Members: c.GetMembers(), Pending: c.GetPending(), Succeeded: c.GetSucceeded(), Dead: c.GetDead(), Poisoned: c.GetPoisoned(),
			Discarded: c.GetDiscarded(), Cancelled: c.GetCancelled(), Refused: c.GetRefused()},
		CreatedAt: timeOf(p.GetCreatedAt()), EndedAt: timeOf(p.GetEndedAt()), KeptUntil: timeOf(p.GetKeptUntil()),
		OnComplete: followerOf(p.GetOnComplete()), OnSuccess: followerOf(p.GetOnSuccess()), OnDeath: followerOf(p.GetOnDeath())}
}
