package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// within returns the context of a call with a token for one queue.
func within(queue string) context.Context {
	return task.WithScope(context.Background(), task.Scope{Queues: []string{queue}})
}

// A group is notified of its members in all shards, is found by its request, and is invisible to callers that may not see its queues.
func TestGroupWithMembersInOtherShards(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		stop := w.addShard(two)
		defer stop()
		w.pass(5 * time.Second)
		g := task.Group{Name: "g", Tasks: []task.Spec{{Queue: "a", Type: "job"}, {Queue: "far", Type: "job"}},
			OnComplete: &task.Spec{Queue: "a", Type: "last"}, Open: true, Within: []string{"a"}, RequestID: task.NewID(one,
				time.Now().UnixMilli(), 1)}
		g.Fill()
		made, at, err := w.MakeGroup(ctx, one, ns, g, []string{"a"})
		w.must(err)
		if made.Duplicate || len(made.Tasks) != 2 || made.Tasks[0].Message != nil || made.Tasks[1].Message == nil || at.Index == 0 {
			t.Errorf("MakeGroup = %+v at %+v, want a local and a remote member", made, at)
		}
		id := made.Group.ID
		if again, _, err := w.MakeGroup(within("a"), one, ns, g, []string{"a"}); err != nil || !again.Duplicate || again.Group.ID != id {
			t.Errorf("repeated MakeGroup = %+v, %v, want a duplicate of the first", again, err)
		}
		if found, _, err := w.FindGroup(within("a"), one, ns, g); err != nil || found.Group.ID != id {
			t.Errorf("FindGroup = %+v, %v, want the existing group", found, err)
		}
		joined, _, err := w.AddToGroup(within("a"), ns, id, []task.Spec{{Queue: "a", Type: "job", Priority: task.Normal}}, []string{"a"})
		if err != nil || len(joined) != 1 || joined[0].Err != nil {
			t.Errorf("AddToGroup = %+v, %v", joined, err)
		}
		fresh := g
		fresh.RequestID = task.NewID(one, time.Now().UnixMilli(), 2)
		if made, _, err := w.MakeGroup(within("b"), one, ns, fresh, []string{"a"}); err != nil || made.Duplicate {
			t.Errorf("MakeGroup of a new group by a caller that may not see its queue = %+v, %v, want it to be allowed here", made, err)
		}
		for what, call := range map[string]func(context.Context) error{
			"MakeGroup":  func(ctx context.Context) error { _, _, err := w.MakeGroup(ctx, one, ns, g, []string{"a"}); return err },
			"FindGroup":  func(ctx context.Context) error { _, _, err := w.FindGroup(ctx, one, ns, g); return err },
			"AddToGroup": func(ctx context.Context) error { _, _, err := w.AddToGroup(ctx, ns, id, nil, nil); return err },
			"ShowGroup":  func(ctx context.Context) error { _, err := ShowGroup.Call(ctx, w, OnGroup{ns, id}); return err },
			"GroupMembers": func(ctx context.Context) error {
				_, err := GroupMembers.Call(ctx, w, MemberList{OnGroup: OnGroup{ns, id}, Limit: 1})
				return err
			},
			"CloseGroup": func(ctx context.Context) error { _, err := CloseGroup.Call(ctx, w, OnGroup{ns, id}); return err },
		} {
			if err := call(within("b")); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("%s with a token for another queue: %v, want ErrNotFound", what, err)
			}
		}
		list, err := ListGroups.Call(within("b"), w, GroupList{OnShard: OnShard{one, ns}, Limit: 1})
		if err != nil || len(list.Page.Groups) != 0 {
			t.Errorf("ListGroups with a token for another queue = %+v, %v, want none", list, err)
		}
		if _, err := ShowGroup.Call(ctx, w, OnGroup{ns, task.NewID(one, 1, 1)}); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("ShowGroup of an unknown group: %v, want ErrNotFound", err)
		}
		shown, err := CloseGroup.Call(within("a"), w, OnGroup{ns, id})
		if err != nil || shown.View.Open || shown.At.Index == 0 {
			t.Errorf("CloseGroup = %+v, %v, want a closed group", shown, err)
		}

		for range 3 { // one of them belongs to the other group
			got := <-w.claim(ctx, call("a"), 0)
			w.settle(Settle{Verb: Ack, Hold: hold(got[0])})
		}
		far := call("far")
		far.Max = 2
		got, _, err := w.Claim(ctx, two, far, time.Minute)
		if err != nil || len(got) != 2 {
			t.Fatalf("claimed members in the other shard: %v, %v, want 2", got, err)
		}
		last := w.claim(ctx, call("a"), time.Minute)
		_, _, err = w.Settle(ctx, two, []Settle{{Verb: Ack, Hold: hold(got[0])}, {Verb: Ack, Hold: hold(got[1])}})
		w.must(err)
		if got := receive(t, "the task behind the group", last); len(got) != 1 || got[0].Type != "last" {
			t.Errorf("claimed %v when the group completed, want its completion task", got)
		}
		end, err := ShowGroup.Call(within("a"), w, OnGroup{ns, id})
		if err != nil || end.View.EndedAt == 0 || end.View.Counts.Succeeded != 3 {
			t.Errorf("after completion, ShowGroup = %+v, %v, want 3 succeeded", end.View, err)
		}
		members, err := GroupMembers.Call(ctx, w, MemberList{OnGroup: OnGroup{ns, id}, Limit: 2})
		if err != nil || len(members.Members.Members) != 2 || !members.Members.More {
			t.Errorf("GroupMembers = %+v, %v, want 2 and more to come", members, err)
		}
	})
}

// A group without a request is new each time. Cancelling a group cancels its members, wherever they are.
func TestCancelOfGroupReachesAllShards(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		stop := w.addShard(two)
		defer stop()
		w.pass(5 * time.Second)
		g := task.Group{Tasks: []task.Spec{{Queue: "far", Type: "job"}}}
		g.Fill()
		made, _, err := w.MakeGroup(ctx, one, ns, g, nil)
		w.must(err)
		w.pass(time.Second)
		other, _, err := w.MakeGroup(ctx, one, ns, g, nil)
		w.must(err)
		if made.Group.ID == other.Group.ID {
			t.Error("two groups without a request got the same id")
		}
		w.pass(time.Second)
		_, err = CancelGroup.Call(ctx, w, GroupCommand{OnGroup: OnGroup{ns, made.Group.ID}})
		w.must(err)
		w.pass(time.Second)
		page, err := ListTasks.Call(ctx, w, TaskList{OnShard: OnShard{two, ns}, Filter: Filter{Queue: "far"}, Limit: 10})
		w.must(err)
		states := map[task.State]int{}
		for _, v := range page.Page.Tasks {
			states[v.Exec.State]++
		}
		if len(page.Page.Tasks) != 2 || states[task.Cancelled] != 1 || states[task.Ready] != 1 {
			t.Errorf("the members in the other shard are %v, want one cancelled and one ready", states)
		}
		list, err := ListGroups.Call(ctx, w, GroupList{OnShard: OnShard{one, ns}, Limit: 1})
		if err != nil || len(list.Page.Groups) != 1 || !list.Page.More || list.Page.Groups[0].ID != other.Group.ID {
			t.Errorf("ListGroups = %+v, %v, want the newest group and more to come", list, err)
		}
	})
}

// The object of a request is named as in the API.
func TestSubjectsOfRequests(t *testing.T) {
	id := task.NewID(one, 1, 1)
	for want, q := range map[string]interface {
		TargetShard() uint32
		ObjectID() (kind, id string)
	}{"group": &OnGroup{ns, id}, "task": &OnTask{ns, id}, "operation": &OnOperation{ns, id}} {
		if kind, name := q.ObjectID(); kind != want || name != id.String() || q.TargetShard() != one {
			t.Errorf("a request about a %s names %s %s in shard %d", want, kind, name, q.TargetShard())
		}
	}
}

// A once key is held by the claim of a task that the call may see, even if the shard does not have the queue yet.
func TestOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		w.enqueue(task.Spec{Queue: "a"})
		claimed := <-w.claim(ctx, call("a"), 0)
		c := OnceCall{Verb: OnceBegin, Hold: hold(claimed[0]), Key: "k"}
		for queue, want := range map[string]error{"b": task.ErrNotFound, "a": nil} {
			got, at, err := w.Once(within(queue), one, c)
			if !errors.Is(err, want) || want == nil && (got.State != OnceRun || at.Index == 0) {
				t.Errorf("Once with a token for queue %s = %+v, %v", queue, got, err)
			}
		}
		far := OnceCall{Verb: OnceBegin, Hold: Hold{Namespace: ns, ID: task.NewID(two, 1, 1)}, Key: "k", Queue: "new",
			By: &OnceHolder{ID: task.NewID(two, 1, 1), Fence: 1}}
		if got, _, err := w.Once(ctx, one, far); err != nil || got.State != OnceRun {
			t.Errorf("Once by a claim of another shard = %+v, %v, want OnceRun", got, err)
		}
	})
}
