package gateway

import (
	"context"
	"sync"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// fakeGroups stores groups whose members never end.
type fakeGroups struct {
	*fake
	mu  sync.Mutex
	all []*broker.GroupView
}

func (f *fakeGroups) MakeGroup(_ context.Context, _ string, g task.Group) (made broker.GroupMade, at broker.Stamp, err error) {
	if err := f.faults.ask(); err != nil {
		return made, at, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.all) + 1
	made.Group = &broker.GroupView{ID: task.NewID(1, 7, uint64(n)), Name: g.Name, Open: g.Open, Within: g.Within, CreatedAt: 1,
		Counts: broker.GroupCounts{Members: int64(len(g.Tasks)), Pending: int64(len(g.Tasks))}}
	for field, s := range g.Callbacks() {
		if s != nil {
			made.Group.Points = append(made.Group.Points, broker.Follower{On: field, Type: s.Type, Queue: s.Queue})
		}
	}
	for i := range g.Tasks {
		switch j := (broker.Joined{Accepted: broker.Accepted{ID: task.NewID(1, 8, uint64(i)), State: task.Ready, CreatedAt: 1}}); i % 3 {
		case 1:
			made.Tasks = append(made.Tasks, broker.Joined{Message: &broker.OutboxMessage{}})
		case 2:
			made.Tasks = append(made.Tasks, broker.Joined{Err: &task.Error{Code: task.CodeConflict, Message: "the key is another's"}})
		default:
			made.Tasks = append(made.Tasks, j)
		}
	}
	f.all = append(f.all, made.Group)
	return made, broker.Stamp{Shard: 1, Index: 1, Time: 1}, nil
}

func (f *fakeGroups) AddToGroup(_ context.Context, _ string, id task.ID, tasks []task.Spec) ([]broker.Enqueued, broker.Stamp, error) {
	g, at, err := f.find(id)
	if err != nil {
		return nil, at, err
	}
	if err := f.faults.ask(); err != nil {
		return nil, at, err
	}
	out := make([]broker.Enqueued, len(tasks))
	for i := range out {
		if i%3 == 2 {
			out[i].Err = &task.Error{Code: task.CodeConflict, Message: "the key is another's"}
			continue
		}
		g.Counts.Members++
		out[i].Accepted = broker.Accepted{ID: task.NewID(1, 9, uint64(g.Counts.Members)), State: task.Ready, CreatedAt: 1}
	}
	return out, at, nil
}

func (f *fakeGroups) find(id task.ID) (*broker.GroupView, broker.Stamp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := broker.Stamp{Shard: 1, Index: 1, Time: 1}
	for _, g := range f.all {
		if g.ID == id {
			return g, at, nil
		}
	}
	return nil, at, task.NotFound("group", id.String())
}

func newFakeGroups(f *fake) *fakeGroups {
	g := &fakeGroups{fake: f}
	to := f.table()
	verbtest.On(to, broker.CloseGroup, g.closeGroup)
	verbtest.On(to, broker.CancelGroup, g.cancelGroup)
	verbtest.On(to, broker.ShowGroup, g.show)
	verbtest.On(to, broker.ListGroups, g.list)
	verbtest.On(to, broker.GroupMembers, g.members)
	return g
}

func (f *fakeGroups) closeGroup(_ context.Context, q broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
	g, at, err := f.find(q.ID)
	if err == nil {
		g.Open = false
	}
	return broker.Shown[*broker.GroupView]{View: g, Stamped: broker.Stamped{At: at}}, err
}

func (f *fakeGroups) cancelGroup(_ context.Context, q broker.GroupCommand) (broker.Shown[*broker.GroupView], error) {
	g, at, err := f.find(q.ID)
	if err == nil {
		g.State = workflow.Cancelled
	}
	return broker.Shown[*broker.GroupView]{View: g, Stamped: broker.Stamped{At: at}}, err
}

func (f *fakeGroups) show(_ context.Context, q broker.OnGroup) (broker.Shown[*broker.GroupView], error) {
	g, at, err := f.find(q.ID)
	return broker.Shown[*broker.GroupView]{View: g, Stamped: broker.Stamped{At: at}}, err
}

func (f *fakeGroups) list(_ context.Context, q broker.GroupList) (out broker.Paged[broker.GroupPage], err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := len(f.all) - 1; i >= 0; i-- {
		if g := f.all[i]; q.After == (task.ID{}) || g.ID[15] < q.After[15] {
			if len(out.Page.Groups) == q.Limit {
				out.Page.More = true
				break
			}
			out.Page.Groups = append(out.Page.Groups, g)
		}
	}
	out.At = broker.Stamp{Shard: 1, Index: 1, Time: 1}
	return out, nil
}

func (f *fakeGroups) members(_ context.Context, q broker.MemberList) (out broker.MembersListed, err error) {
	g, at, err := f.find(q.ID)
	out.At = at
	if err != nil {
		return out, err
	}
	for n := q.After[15] + 1; int64(n) <= g.Counts.Members; n++ {
		if len(out.Members.Members) == q.Limit {
			out.Members.More = true
			break
		}
		m := broker.GroupMember{Ref: task.ID{15: n}, Type: "a", Queue: "q", ID: task.NewID(1, 8, uint64(n)), State: task.Succeeded,
			Result: broker.Result{Data: []byte("7")}}
		if n == 2 {
			m = broker.GroupMember{Ref: task.ID{15: n}, Type: "a", Queue: "q", Refused: "conflict"}
		}
		out.Members.Members = append(out.Members.Members, m)
	}
	return out, nil
}
