package conformance

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// parent is what a task follows.
type parent struct {
	TaskID  string          `json:"task_id"`
	GroupID string          `json:"group_id"`
	Result  json.RawMessage `json:"result"`
}

// follower is a follow-up task of a task or a group.
type follower struct {
	Type   string `json:"type"`
	Queue  string `json:"queue"`
	State  string `json:"state"`
	TaskID string `json:"task_id"`
	Reason string `json:"reason"`
}

// groupSpec is a group to create.
type groupSpec struct {
	Name       string `json:"name,omitempty"`
	Tasks      []spec `json:"tasks,omitempty"`
	OnComplete *spec  `json:"on_complete,omitempty"`
	Open       bool   `json:"open,omitempty"`
	RequestID  string `json:"request_id,omitempty"`
}

type groupCounts struct {
	Members   int64 `json:"members"`
	Pending   int64 `json:"pending"`
	Succeeded int64 `json:"succeeded"`
	Dead      int64 `json:"dead"`
	Poisoned  int64 `json:"poisoned"`
	Discarded int64 `json:"discarded"`
	Cancelled int64 `json:"cancelled"`
	Refused   int64 `json:"refused"`
}

type groupInfo struct {
	ID         string      `json:"group_id"`
	Name       string      `json:"name"`
	State      string      `json:"state"`
	Open       bool        `json:"open"`
	Counts     groupCounts `json:"counts"`
	CreatedAt  time.Time   `json:"created_at"`
	EndedAt    time.Time   `json:"ended_at"`
	KeptUntil  time.Time   `json:"kept_until"`
	OnComplete *follower   `json:"on_complete"`
}

type groupMember struct {
	TaskID string          `json:"task_id"`
	Type   string          `json:"type"`
	Queue  string          `json:"queue"`
	State  string          `json:"state"`
	Result json.RawMessage `json:"result"`
}

type groupsAPI interface {
	MakeGroup(ctx context.Context, g groupSpec) (groupInfo, []accepted, error)
	AddToGroup(ctx context.Context, id string, tasks []spec) ([]accepted, error)
	Group(ctx context.Context, id string) (groupInfo, error)
	Groups(ctx context.Context, p part) (list []groupInfo, next string, err error)
	Members(ctx context.Context, id string, p part) (list []groupMember, next string, err error)
	CloseGroup(ctx context.Context, id string) (groupInfo, error)
	CancelGroup(ctx context.Context, id string) (groupInfo, error)
}

// REST

func groupPath(id, verb string) string { return "/groups/" + url.PathEscape(id) + verb }

// groupTasks are the answers for the tasks of a group.
type groupTasks []struct {
	enqueued
	Error *itemError `json:"error"`
}

func (list groupTasks) accepted() (out []accepted) {
	for _, t := range list {
		t.accepted.Err = t.Error.err()
		out = append(out, t.accepted)
	}
	return out
}

func (d *rest) MakeGroup(ctx context.Context, g groupSpec) (groupInfo, []accepted, error) {
	var a struct {
		groupInfo
		Tasks     groupTasks `json:"tasks"`
		Duplicate bool       `json:"duplicate"`
	}
	err := d.call(ctx, "POST", "/groups", g, &a)
	return a.groupInfo, a.Tasks.accepted(), err
}

func (d *rest) AddToGroup(ctx context.Context, id string, tasks []spec) ([]accepted, error) {
	var a struct {
		Results groupTasks `json:"results"`
	}
	err := d.call(ctx, "POST", groupPath(id, "/tasks"), fields{"tasks": tasks}, &a)
	return a.Results.accepted(), err
}

func (d *rest) Group(ctx context.Context, id string) (g groupInfo, err error) {
	return g, d.query(ctx, "GET", groupPath(id, ""), nil, &g)
}

func (d *rest) Groups(ctx context.Context, p part) ([]groupInfo, string, error) {
	var a struct {
		Items []groupInfo `json:"items"`
		Next  string      `json:"next_cursor"`
	}
	err := d.query(ctx, "GET", "/groups", filter{}.query(p), &a)
	return a.Items, a.Next, err
}

func (d *rest) Members(ctx context.Context, id string, p part) ([]groupMember, string, error) {
	var a struct {
		Items []groupMember `json:"items"`
		Next  string        `json:"next_cursor"`
	}
	err := d.query(ctx, "GET", groupPath(id, "/members"), filter{}.query(p), &a)
	return a.Items, a.Next, err
}

func (d *rest) CloseGroup(ctx context.Context, id string) (g groupInfo, err error) {
	return g, d.call(ctx, "POST", groupPath(id, "/close"), fields{}, &g)
}

func (d *rest) CancelGroup(ctx context.Context, id string) (g groupInfo, err error) {
	return g, d.call(ctx, "POST", groupPath(id, "/cancel"), fields{"reason": "a story"}, &g)
}

// gRPC

func specsProto(list []spec) (out []*pawlv1.TaskSpec) {
	for _, s := range list {
		out = append(out, s.proto())
	}
	return out
}

func acceptedProtos(results []*pawlv1.EnqueueResult) (out []accepted) {
	for _, r := range results {
		t := r.GetTask()
		a := accepted{ID: t.GetTaskId(), State: word(t.GetState(), "STATE_"), CreatedAt: timeOf(t.GetCreatedAt()),
			Duplicate: t.GetDuplicate()}
		if r.GetError() != nil {
			a = accepted{Err: errors.New(r.GetError().GetMessage())}
		}
		out = append(out, a)
	}
	return out
}

func followerOfProto(p *pawlv1.Follower) *follower {
	if p == nil {
		return nil
	}
	return &follower{p.GetType(), p.GetQueue(), word(p.GetState(), "FOLLOWER_STATE_"), p.GetTaskId(), p.GetReason()}
}

func followersOfProto(list []*pawlv1.Follower) (out []follower) {
	for _, p := range list {
		out = append(out, *followerOfProto(p))
	}
	return out
}

func parentOfProto(p *pawlv1.Parent) *parent {
	if p == nil {
		return nil
	}
	return &parent{p.GetTaskId(), p.GetGroupId(), p.GetResult()}
}

func groupOfProto(p *pawlv1.Group) groupInfo {
	if p == nil {
		return groupInfo{}
	}
	c := p.GetCounts()
	return groupInfo{p.GetGroupId(), p.GetName(), word(p.GetState(), "GROUP_STATE_"), p.GetOpen(), groupCounts{c.GetMembers(),
		c.GetPending(), c.GetSucceeded(), c.GetDead(), c.GetPoisoned(), c.GetDiscarded(), c.GetCancelled(), c.GetRefused()},
		timeOf(p.GetCreatedAt()), timeOf(p.GetEndedAt()), timeOf(p.GetKeptUntil()), followerOfProto(p.GetOnComplete())}
}

func (d *rpc) MakeGroup(ctx context.Context, g groupSpec) (groupInfo, []accepted, error) {
	q := &pawlv1.CreateGroupRequest{Name: g.Name, Tasks: specsProto(g.Tasks), Open: g.Open, RequestId: text(g.RequestID)}
	if g.OnComplete != nil {
		q.OnComplete = g.OnComplete.proto()
	}
	a, err := ask(ctx, d.group.CreateGroup, q)
	return groupOfProto(a.GetGroup()), acceptedProtos(a.GetTasks()), err
}

func (d *rpc) AddToGroup(ctx context.Context, id string, tasks []spec) ([]accepted, error) {
	a, err := ask(ctx, d.group.AddGroupTasks, &pawlv1.AddGroupTasksRequest{GroupId: id, Tasks: specsProto(tasks)})
	return acceptedProtos(a.GetResults()), err
}

func (d *rpc) Group(ctx context.Context, id string) (groupInfo, error) {
	a, err := ask(ctx, d.group.GetGroup, &pawlv1.GetGroupRequest{GroupId: id})
	return groupOfProto(a.GetGroup()), err
}

func (d *rpc) Groups(ctx context.Context, p part) (list []groupInfo, next string, err error) {
	a, err := ask(ctx, d.group.ListGroups, &pawlv1.ListGroupsRequest{Limit: int32(p.Limit), Cursor: p.Cursor})
	for _, g := range a.GetItems() {
		list = append(list, groupOfProto(g))
	}
	return list, a.GetNextCursor(), err
}

func (d *rpc) Members(ctx context.Context, id string, p part) (list []groupMember, next string, err error) {
	a, err := ask(ctx, d.group.ListGroupMembers, &pawlv1.ListGroupMembersRequest{GroupId: id, Limit: int32(p.Limit), Cursor: p.Cursor})
	for _, m := range a.GetItems() {
		state := ""
		if m.GetState() != 0 {
			state = word(m.GetState(), "STATE_")
		}
		list = append(list, groupMember{m.GetTaskId(), m.GetType(), m.GetQueue(), state, m.GetResult()})
	}
	return list, a.GetNextCursor(), err
}

func (d *rpc) CloseGroup(ctx context.Context, id string) (groupInfo, error) {
	a, err := ask(ctx, d.group.CloseGroup, &pawlv1.CloseGroupRequest{GroupId: id})
	return groupOfProto(a.GetGroup()), err
}

func (d *rpc) CancelGroup(ctx context.Context, id string) (groupInfo, error) {
	a, err := ask(ctx, d.group.CancelGroup, &pawlv1.CancelGroupRequest{GroupId: id, Reason: "a story"})
	return groupOfProto(a.GetGroup()), err
}

// SDK

func itemsOf(list []spec) (out []pawl.Item) {
	for _, s := range list {
		out = append(out, s.item())
	}
	return out
}

func acceptedSDK(list []pawl.Enqueued) (out []accepted) {
	for _, e := range list {
		a := accepted{Err: e.Err}
		if e.Ref != nil {
			a = acceptedRef(e.Ref)
		}
		out = append(out, a)
	}
	return out
}

func followerOfSDK(f *pawltype.Follower) *follower {
	if f == nil {
		return nil
	}
	return &follower{f.Type, f.Queue, string(f.State), f.TaskID, f.Reason}
}

func followersOfSDK(list []pawltype.Follower) (out []follower) {
	for i := range list {
		out = append(out, *followerOfSDK(&list[i]))
	}
	return out
}

func parentOfSDK(p *pawltype.Parent) *parent {
	if p == nil {
		return nil
	}
	return &parent{p.TaskID, p.GroupID, p.Result}
}

func groupBySDK(g *pawltype.Group, err error) (groupInfo, error) {
	if err != nil {
		return groupInfo{}, refusedBySDK(err)
	}
	c := g.Counts
	return groupInfo{g.ID, g.Name, string(g.State), g.Open, groupCounts{c.Members, c.Pending, c.Succeeded, c.Dead, c.Poisoned, c.Discarded,
		c.Cancelled, c.Refused},
		g.CreatedAt, g.EndedAt, g.KeptUntil, followerOfSDK(g.OnComplete)}, nil
}

func (d *sdk) MakeGroup(ctx context.Context, g groupSpec) (groupInfo, []accepted, error) {
	s := pawl.GroupSpec{Name: g.Name, Tasks: itemsOf(g.Tasks), Open: g.Open, RequestID: g.RequestID}
	if g.OnComplete != nil {
		s.OnComplete = new(g.OnComplete.item())
	}
	made, err := d.client.EnqueueGroup(ctx, s)
	if err != nil {
		return groupInfo{}, nil, refusedBySDK(err)
	}
	out, _ := groupBySDK(made.Group, nil)
	return out, acceptedSDK(made.Tasks), nil
}

func (d *sdk) AddToGroup(ctx context.Context, id string, tasks []spec) ([]accepted, error) {
	got, err := d.client.AddToGroup(ctx, id, itemsOf(tasks))
	return acceptedSDK(got), refusedBySDK(err)
}

func (d *sdk) Group(ctx context.Context, id string) (groupInfo, error) {
	return groupBySDK(d.client.Group(ctx, id))
}

func (d *sdk) Groups(ctx context.Context, p part) (list []groupInfo, next string, err error) {
	page, err := d.admin().Groups().ListPage(ctx, p.sdk())
	for _, g := range page.Items {
		info, _ := groupBySDK(g, nil)
		list = append(list, info)
	}
	return list, page.NextCursor, refusedBySDK(err)
}

func (d *sdk) Members(ctx context.Context, id string, p part) (list []groupMember, next string, err error) {
	page, err := d.client.GroupMembersPage(ctx, id, p.sdk())
	for _, m := range page.Items {
		list = append(list, groupMember{m.TaskID, m.Type, m.Queue, string(m.State), m.Result})
	}
	return list, page.NextCursor, refusedBySDK(err)
}

func (d *sdk) CloseGroup(ctx context.Context, id string) (groupInfo, error) {
	return groupBySDK(d.client.CloseGroup(ctx, id))
}

func (d *sdk) CancelGroup(ctx context.Context, id string) (groupInfo, error) {
	return groupBySDK(d.admin().WithReason("a story").Groups().Cancel(ctx, id))
}

// The broker itself

func followersOf(list []broker.Follower) (out []follower) {
	for _, f := range list {
		o := follower{Type: f.Type, Queue: f.Queue, State: f.State.String(), Reason: f.Reason}
		if f.ID != (task.ID{}) {
			o.TaskID = f.ID.String()
		}
		out = append(out, o)
	}
	return out
}

func parentOf(p *task.Parent) *parent {
	if p == nil {
		return nil
	}
	out := &parent{Result: p.Result}
	if p.ID != (task.ID{}) {
		out.TaskID = p.ID.String()
	}
	if p.Group != (task.ID{}) {
		out.GroupID = p.Group.String()
	}
	return out
}

func tasksOf(list []spec) (out []task.Spec, err error) {
	for _, s := range list {
		t, err := s.task()
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func groupOf(v *broker.GroupView, err error) (groupInfo, error) {
	if err != nil {
		return groupInfo{}, refused(err)
	}
	c := v.Counts
	out := groupInfo{ID: v.ID.String(), Name: v.Name, State: v.State.String(), Open: v.Open, Counts: groupCounts(c),
		CreatedAt: when(v.CreatedAt), EndedAt: when(v.EndedAt), KeptUntil: when(v.KeptUntil)}
	if points := followersOf(v.Points); len(points) > 0 {
		out.OnComplete = &points[0]
	}
	return out, nil
}

func joinedOf(j broker.Accepted, err error) accepted {
	if err != nil {
		return accepted{Err: refused(err)}
	}
	return accepted{ID: j.ID.String(), State: j.State.String(), CreatedAt: when(j.CreatedAt), Duplicate: j.Duplicate}
}

func (d *direct) MakeGroup(ctx context.Context, s groupSpec) (groupInfo, []accepted, error) {
	g := task.Group{Name: s.Name, Open: s.Open}
	var err error
	if g.Tasks, err = tasksOf(s.Tasks); err != nil {
		return groupInfo{}, nil, refused(err)
	}
	if s.OnComplete != nil {
		t, err := s.OnComplete.task()
		if err != nil {
			return groupInfo{}, nil, refused(err)
		}
		g.OnComplete = &t
	}
	if s.RequestID != "" {
		if g.RequestID, err = task.ParseID(s.RequestID); err != nil {
			return groupInfo{}, nil, refused(task.Invalid("request_id", "%v", err))
		}
	}
	if err := g.Check(task.DefaultLimits()); err != nil {
		return groupInfo{}, nil, refused(err)
	}
	made, _, err := d.broker.Groups.MakeGroup(ctx, namespace, g)
	info, err := groupOf(made.Group, err)
	var tasks []accepted
	for _, j := range made.Tasks {
		tasks = append(tasks, joinedOf(j.Accepted, j.Err))
	}
	return info, tasks, err
}

func (d *direct) AddToGroup(ctx context.Context, id string, list []spec) (out []accepted, err error) {
	group, err := parseID(id)
	if err != nil {
		return nil, err
	}
	tasks, err := tasksOf(list)
	if err != nil {
		return nil, refused(err)
	}
	got, _, err := d.broker.Groups.AddToGroup(ctx, namespace, group, tasks)
	for _, e := range got {
		out = append(out, joinedOf(e.Accepted, e.Err))
	}
	return out, refused(err)
}

func (d *direct) onGroup(id string, run func(broker.OnGroup) (broker.Shown[*broker.GroupView], error)) (groupInfo, error) {
	group, err := task.ParseID(id)
	if err != nil {
		return groupInfo{}, refused(task.NotFound("group", id))
	}
	out, err := run(broker.OnGroup{Namespace: namespace, ID: group})
	return groupOf(out.View, err)
}

func (d *direct) Group(ctx context.Context, id string) (groupInfo, error) {
	return d.onGroup(id, func(of broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
		return broker.ShowGroup.Call(ctx, d.broker, of)
	})
}

func (d *direct) CloseGroup(ctx context.Context, id string) (groupInfo, error) {
	return d.onGroup(id, func(of broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
		return broker.CloseGroup.Call(ctx, d.broker, of)
	})
}

func (d *direct) CancelGroup(ctx context.Context, id string) (groupInfo, error) {
	return d.onGroup(id, func(of broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
		return broker.CancelGroup.Call(ctx, d.broker, broker.GroupCommand{OnGroup: of, Authored: broker.Authored{By: directly}})
	})
}

func (d *direct) Groups(ctx context.Context, p part) (list []groupInfo, next string, err error) {
	before := cursorID(p.Cursor)
	out, err := broker.ListGroups.Call(ctx, d.broker, broker.GroupList{OnShard: onShard(), After: before, Limit: p.Limit})
	page := out.Page
	for _, v := range page.Groups {
		g, _ := groupOf(v, nil)
		list = append(list, g)
	}
	if n := len(page.Groups); page.More && n > 0 {
		next = idCursor('g', page.Groups[n-1].ID)
	}
	return list, next, refused(err)
}

func (d *direct) Members(ctx context.Context, id string, p part) (list []groupMember, next string, err error) {
	group, err := parseID(id)
	if err != nil {
		return nil, "", err
	}
	after := cursorID(p.Cursor)
	out, err := broker.GroupMembers.Call(ctx, d.broker, broker.MemberList{OnGroup: broker.OnGroup{Namespace: namespace, ID: group},
		After: after, Limit: p.Limit})
	page := out.Members
	for _, m := range page.Members {
		o := groupMember{Type: m.Type, Queue: m.Queue, Result: m.Result.Data}
		if m.ID != (task.ID{}) {
			o.TaskID = m.ID.String()
		}
		if m.State != 0 {
			o.State = m.State.String()
		}
		list = append(list, o)
	}
	if n := len(page.Members); page.More && n > 0 {
		next = idCursor('m', page.Members[n-1].Ref)
	}
	return list, next, refused(err)
}

// idCursor returns the form that the other APIs use for cursors of lists sorted by id.
func idCursor(kind byte, id task.ID) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{1, kind}, id[:]...))
}

func cursorID(cursor string) (id task.ID) {
	if b, err := base64.RawURLEncoding.DecodeString(cursor); err == nil && len(b) == 18 {
		copy(id[:], b[2:])
	}
	return id
}

// Stories

func (w *world) group(g groupSpec) (groupInfo, []accepted) {
	w.Helper()
	info, tasks, err := w.api.MakeGroup(w.ctx(), g)
	if err != nil {
		w.Fatalf("create group: %v", err)
	}
	return info, tasks
}

func (w *world) groupNow(id string) groupInfo {
	w.Helper()
	return ok[groupInfo](w)(w.api.Group(w.ctx(), id))
}

func (w *world) ackWith(c claim, data string) {
	w.Helper()
	if err := w.api.Ack(w.ctx(), c.hold(), result{Data: data}); err != nil {
		w.Fatalf("ack: %v", err)
	}
}

func TestChains(t *testing.T) {
	tellAll(t, []story{
		{name: "a follow-up task is created when its parent succeeds, with the result", tell: func(w *world) {
			id := w.id(spec{Type: "first", Then: []spec{{Type: "second", Delay: minute, Then: []spec{{Type: "third"}}},
				{Type: "beside", Queue: "other"}}})
			is(w, "what follows", w.get(id).Then, []follower{{Type: "second", Queue: "default", State: "waiting"},
				{Type: "beside", Queue: "other",
					State: "waiting"}})
			w.ackWith(w.claim(), `{"n":7}`)
			w.pass(second) // the other queue is new: the leader's sender delivers its tasks
			then := w.get(id).Then
			is(w, "the states of its follow-up tasks", []string{then[0].State, then[1].State}, []string{"created", "created"})
			w.nothing()
			w.pass(minute)
			c := w.claim()
			is(w, "the second", []string{c.ID, c.Type, c.Parent.TaskID, string(c.Parent.Result)}, []string{then[0].TaskID,
				"second", id, `{"n":7}`})
			is(w, "as it is shown", w.get(c.ID).Parent, c.Parent)
			is(w, "beside it", w.one(from("other")).Type, "beside")
			w.ack(c)
			third := w.claim()
			is(w, "the third", []string{third.Type, third.Parent.TaskID, string(third.Parent.Result)}, []string{"third", c.ID, ""})
		}},
		{name: "a dead task keeps its follow-up tasks for a replay, a cancelled one drops them", tell: func(w *world) {
			id := w.id(spec{MaxAttempts: 1, Then: []spec{{Type: "next"}}})
			w.fail(w.claim(), failing{Message: "boom"})
			is(w, "behind a dead one", w.get(id).Then[0].State, "waiting")
			ok[view](w)(w.api.Retry(w.ctx(), id))
			w.ack(w.claim())
			is(w, "behind the replay", w.claim().Type, "next")
			id = w.id(spec{Then: []spec{{Type: "next"}}})
			ok[view](w)(w.api.Cancel(w.ctx(), id))
			is(w, "behind a cancelled one", w.get(id).Then[0], follower{Type: "next", Queue: "default", State: "dropped",
				Reason: "cancelled"})
			w.nothing()
		}},
		{name: "an invalid follow-up task is refused by field", tell: func(w *world) {
			_, err := w.api.Enqueue(w.ctx(), spec{Type: "a", Then: slices.Repeat([]spec{{Type: "b"}}, 9)})
			w.refused("nine at once", err, refusal{Code: "invalid_argument", Field: "then"})
			_, err = w.api.Enqueue(w.ctx(), spec{Type: "a", Then: []spec{{Type: "b", Then: []spec{{Type: "c", Queue: "a/b"}}}}})
			w.refused("a bad queue", err, refusal{Code: "invalid_argument", Field: "then[0].then[0].queue"})
		}},
	})
}

func TestGroups(t *testing.T) {
	tellAll(t, []story{
		{name: "a group is complete when all its members have ended, and enqueues a task once", tell: func(w *world) {
			g, tasks := w.group(groupSpec{Name: "import", Tasks: []spec{{Type: "a"}, {Type: "b"}, {Type: "c", MaxAttempts: 1}},
				OnComplete: &spec{Type: "done"}})
			is(w, "at first", g, groupInfo{ID: g.ID, Name: "import", State: "running", Counts: groupCounts{Members: 3, Pending: 3},
				CreatedAt: w.now(), OnComplete: &follower{Type: "done", Queue: "default", State: "waiting"}})
			is(w, "the group of a member", w.get(tasks[0].ID).GroupID, g.ID)
			claimed := w.claims(from("default").most(9))
			is(w, "the group of a claim", claimed[0].GroupID, g.ID)
			w.ackWith(claimed[0], "1")
			w.ackWith(claimed[1], "2")
			is(w, "in between", w.groupNow(g.ID).Counts, groupCounts{Members: 3, Pending: 1, Succeeded: 2})
			w.fail(claimed[2], failing{Message: "boom"})
			now := w.groupNow(g.ID)
			is(w, "at the end", []any{now.State, now.Counts, now.EndedAt, now.KeptUntil},
				[]any{"complete", groupCounts{Members: 3, Succeeded: 2,
					Dead: 1}, w.now(), w.at(14 * day)})
			done := w.claim()
			is(w, "what it enqueues", []string{done.ID, done.Type, done.Parent.GroupID}, []string{now.OnComplete.TaskID, "done", g.ID})
			var said struct {
				Succeeded, Dead int
			}
			if err := json.Unmarshal(done.Parent.Result, &said); err != nil || said.Succeeded != 2 || said.Dead != 1 {
				w.Errorf("the follow-up task got the result %s, want 2 succeeded and 1 dead", done.Parent.Result)
			}
			ok[view](w)(w.api.Retry(w.ctx(), tasks[2].ID))
			w.ack(w.claim())
			is(w, "behind a replay", w.groupNow(g.ID).Counts, groupCounts{Members: 3, Succeeded: 3})
			w.nothing()
			members, next, err := w.api.Members(w.ctx(), g.ID, part{Limit: 2})
			if err != nil || next == "" || len(members) != 2 {
				w.Fatalf("members %+v, %q, %v", members, next, err)
			}
			is(w, "the first member", members[0], groupMember{tasks[0].ID, "a", "default", "succeeded", json.RawMessage("1")})
			members, next, err = w.api.Members(w.ctx(), g.ID, part{Limit: 2, Cursor: next})
			if err != nil || next != "" || len(members) != 1 || members[0].TaskID != tasks[2].ID {
				w.Fatalf("members %+v, %q, %v", members, next, err)
			}
		}},
		{name: "members are added to an open group, and follow-up tasks of members are members", tell: func(w *world) {
			g, tasks := w.group(groupSpec{Open: true, Tasks: []spec{{Type: "a", Then: []spec{{Type: "b"}}}},
				OnComplete: &spec{Type: "done"}})
			added := ok[[]accepted](w)(w.api.AddToGroup(w.ctx(), g.ID, []spec{{Type: "c"}}))
			is(w, "the group of the one added", w.get(added[0].ID).GroupID, g.ID)
			for _, c := range w.claims(from("default").most(9)) {
				w.ack(c)
			}
			is(w, "the one that follows", w.get(w.get(tasks[0].ID).Then[0].TaskID).GroupID, g.ID)
			w.ack(w.claim())
			now := w.groupNow(g.ID)
			is(w, "while it is open", []any{now.State, now.Open, now.Counts}, []any{"running", true, groupCounts{Members: 3, Succeeded: 3}})
			is(w, "closed", ok[groupInfo](w)(w.api.CloseGroup(w.ctx(), g.ID)).State, "complete")
			is(w, "what it enqueues", w.claim().Type, "done")
			late, err := w.api.AddToGroup(w.ctx(), g.ID, []spec{{Type: "d"}})
			if err != nil || late[0].Err == nil || !strings.Contains(late[0].Err.Error(), "complete") {
				w.Errorf("adding a task to a complete group: %+v, %v, want a refusal", late, err)
			}
			late, err = w.api.AddToGroup(w.ctx(), g.ID, []spec{{Type: "d", Queue: "unheard"}})
			if err != nil || late[0].Err == nil || !strings.Contains(late[0].Err.Error(), "complete") {
				w.Errorf("adding a task for an unknown queue to a complete group: %+v, %v, want a refusal", late, err)
			}
			none := g.ID[:len(g.ID)-12] + "00000000ffff"
			_, err = w.api.AddToGroup(w.ctx(), none, []spec{{Type: "d", Queue: "unheard"}})
			w.refused("one of a group that there is not", err, refusal{Code: "not_found"})
			_, err = w.api.Queue(w.ctx(), "unheard")
			w.refused("the queue of members that there are not", err, refusal{Code: "not_found"})
		}},
		{name: "cancelling a group ends all members and enqueues nothing", tell: func(w *world) {
			g, tasks := w.group(groupSpec{Tasks: []spec{{Type: "a"}, {Type: "b", Queue: "new"}, {Type: "c", Delay: hour}},
				OnComplete: &spec{Type: "done"}})
			held := w.claim()
			ok[groupInfo](w)(w.api.CancelGroup(w.ctx(), g.ID))
			w.pass(second)
			is(w, "again", ok[groupInfo](w)(w.api.CancelGroup(w.ctx(), g.ID)).State, "cancelled")
			now := w.groupNow(g.ID)
			is(w, "the end", []any{now.Counts, now.OnComplete.State}, []any{groupCounts{Members: 3, Cancelled: 3}, "dropped"})
			is(w, "a member", w.get(tasks[2].ID).State, "cancelled")
			w.refused("the ack of one that ran", w.api.Ack(w.ctx(), held.hold(), result{}), refusal{Code: "stale_claim",
				Reason: "cancelled", State: "cancelled"})
			w.nothing()
		}},
		{name: "a group is created once, listed, and deleted after its retention", tell: func(w *world) {
			const request = "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"
			first, tasks := w.group(groupSpec{RequestID: request, Tasks: []spec{{Type: "a"}}})
			again, same := w.group(groupSpec{RequestID: request, Tasks: []spec{{Type: "a"}}})
			is(w, "the group of a repeated call", []string{again.ID, same[0].ID}, []string{first.ID, tasks[0].ID})
			other, _ := w.group(groupSpec{Name: "other", Tasks: []spec{{Type: "b"}}})
			list, next, err := w.api.Groups(w.ctx(), part{Limit: 1})
			if err != nil || next == "" || len(list) != 1 || list[0].ID == first.ID && other.ID > first.ID {
				w.Fatalf("groups %+v, %q, %v", list, next, err)
			}
			for _, c := range w.claims(from("default").most(9)) {
				w.ack(c)
			}
			w.pass(day)
			_, err = w.api.Group(w.ctx(), first.ID)
			w.refused("after a day", err, refusal{Code: "not_found"})
			_, _, err = w.api.MakeGroup(w.ctx(), groupSpec{})
			w.refused("a group of none", err, refusal{Code: "invalid_argument", Field: "tasks"})
		}},
	})
}
