package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// makeGroup creates a group with tasks in these queues.
func makeGroup(w *engine.World, g task.Group, queues ...string) (*workflow.Call, workflow.Made, error) {
	n := &workflow.Call{Namespace: "default", ID: w.NewID(), Group: g}
	for _, queue := range queues {
		n.Tasks = append(n.Tasks, task.Spec{Type: "part", Queue: queue})
	}
	n.Fill()
	made, err := engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) })
	return n, made, err
}

// Cancelling a group sends a cancel message to the shards of the members that have not ended, even of those that join later.
func TestCancelReachesOtherShards(t *testing.T) {
	w := engine.NewWorld(t)
	n, made, err := makeGroup(w, task.Group{}, "far", "far", "far", "far")
	if err != nil {
		t.Fatal(err)
	}
	member := func(i int) task.ID { return task.NewID(2, 1, uint64(i)) }
	tell := func(i int, turn uint64, s task.State) {
		w.Round(func(r *engine.Round) {
			workflow.Receive(r, "default", &schema.Notice{Group: n.ID, Ref: made.Tasks[i].Message.Spec.Member.Ref, ID: member(i),
				Revision: turn, State: s})
			engine.Delivered(r, "default", made.Tasks[i].Message.Request, engine.Accepted{ID: member(i)}, nil)
		})
	}
	orders := func() (all []task.ID) {
		for _, m := range w.Messages(100) {
			if m.Cancel != (task.ID{}) {
				all = append(all, m.Cancel)
			}
		}
		slices.SortFunc(all, func(a, b task.ID) int { return bytes.Compare(a[:], b[:]) })
		return all
	}
	tell(0, 1, task.Succeeded)
	tell(1, 0, 0)
	if _, err := engine.Run(w, func(r *engine.Round) (*workflow.View, error) {
		return workflow.Cancel(r, task.Author{}, "default", n.ID)
	}); err != nil {
		t.Fatal(err)
	}
	w.Pass(0)
	if got := orders(); !slices.Equal(got, []task.ID{member(1)}) {
		t.Errorf("cancel messages are for %v, want the second member", got)
	}
	tell(2, 0, 0)
	tell(3, 1, task.Succeeded)
	if got := orders(); !slices.Equal(got, []task.ID{member(1), member(2)}) {
		t.Errorf("cancel messages are for %v, want the second and third members", got)
	}
}

// A cancel message that arrives again does not cancel a task that was retried meanwhile, whether it was the message
// that had ended the task or not.
func TestCancelArrivesAgain(t *testing.T) {
	for what, end := range map[string]func(r *engine.Round, id task.ID) error{
		"the message": func(*engine.Round, task.ID) error { return nil },
		"a caller":    func(r *engine.Round, id task.ID) error { return engine.Discard(r, "default", id, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			w := engine.NewWorld(t)
			w.PutQueue("default", task.DefaultSettings(), false)
			a, err := w.Enqueue(task.Spec{Type: "a", Queue: "default", Priority: task.Normal})
			if err != nil {
				t.Fatal(err)
			}
			do := func(fn func(r *engine.Round) error) task.State {
				t.Helper()
				x, err := engine.Run(w, func(r *engine.Round) (*schema.Exec, error) {
					if err := fn(r); err != nil {
						return nil, err
					}
					return r.Exec("default", a.ID)
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Check(); err != nil {
					t.Fatal(err)
				}
				return x.State
			}
			cancel := func(message byte) task.State {
				return do(func(r *engine.Round) error { return engine.CancelOnce(r, "default", a.ID, task.ID{15: message}) })
			}
			retry := func(r *engine.Round) error { return engine.Retry(r, "default", a.ID) }
			do(func(r *engine.Round) error { return end(r, a.ID) })
			if got := cancel(1); !got.Ended() {
				t.Fatalf("after the message the task is %s", got)
			}
			do(retry)
			w.BecomeLeader()
			w.Pass(task.MessageWindow - time.Second)
			if got := cancel(1); got != task.Ready {
				t.Errorf("after the message arrived again the task is %s, want ready", got)
			}
			if got := cancel(2); got != task.Cancelled {
				t.Errorf("after another message the task is %s, want cancelled", got)
			}
			do(retry)
			w.Pass(task.MessageWindow)
			if got := cancel(1); got != task.Cancelled {
				t.Errorf("after a message of long ago the task is %s, want cancelled: it is not remembered for ever", got)
			}
		})
	}
}

// A group that is limited to some queues has no members and no follow-ups of members elsewhere, and is visible to
// callers who may see all of them.
func TestGroupWithinQueues(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("mail", task.DefaultSettings(), false)
	n, _, err := makeGroup(w, task.Group{Within: []string{"mail*"}, Open: true}, "mail")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spec task.Spec
		ok   bool
	}{
		{task.Spec{Type: "a", Queue: "mail"}, true},
		{task.Spec{Type: "a", Queue: "shop"}, false},
		{task.Spec{Type: "a", Queue: "mail", Then: []task.Spec{{Type: "b", Queue: "mail"}}}, true},
		{task.Spec{Type: "a", Queue: "mail", Then: []task.Spec{{Type: "b", Queue: "mail"}, {Type: "c", Queue: "shop"}}}, false},
	} {
		c.spec.Fill()
		joined, err := engine.Run(w, func(r *engine.Round) ([]workflow.Joined, error) {
			return workflow.Add(r, "default", n.ID, workflow.NewMembers([]task.Spec{c.spec}))
		})
		if err != nil {
			t.Fatal(err)
		}
		if (joined[0].Err == nil) != c.ok {
			t.Errorf("adding %+v: %v", c.spec, joined[0].Err)
		}
	}
	for pattern, want := range map[string]int{"mail*": 1, "mail": 0, "shop": 0} {
		scope := task.Scope{Queues: []string{pattern}}
		if groups, _ := workflow.List(w.Store, "default", scope, task.ID{}, 10); len(groups) != want {
			t.Errorf("a caller that may see %q lists %d groups, want %d", pattern, len(groups), want)
		}
		w.Round(func(r *engine.Round) {
			if err := workflow.Within(r, scope, "default", n.ID); (err == nil) != (want == 1) {
				t.Errorf("Within for a caller that may see %q: %v", pattern, err)
			}
		})
	}
}

// Members and groups are listed in pages.
func TestPagesOfGroups(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	n, _, err := makeGroup(w, task.Group{}, slices.Repeat([]string{"default"}, 250)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit, want int
		more        bool
	}{{1, 1, true}, {99, 99, true}, {249, 249, true}, {250, 250, true}, {251, 250, false}, {1000, 250, false}} {
		if list, more, err := workflow.Members(w.Store, "default", n.ID, task.ID{}, c.limit); len(list) != c.want ||
			more != c.more || err != nil {
			t.Errorf("Members listed %d of 250, more: %t, %v, want %d, %t", len(list), more, err, c.want, c.more)
		}
	}
	if list, more, err := workflow.Members(w.Store, "default", task.ID{9}, task.ID{}, 10); list != nil || more ||
		!errors.Is(err, task.ErrNotFound) {
		t.Errorf("Members of an unknown group listed %d, more: %t, %v, want ErrNotFound", len(list), more, err)
	}
}

// A group with tasks that can't be enqueued is refused before anything is created.
func TestGroupOfWrongTimes(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	n := &workflow.Call{Namespace: "default", ID: w.NewID()}
	n.Tasks = []task.Spec{{Type: "a"}, {Type: "a", Then: []task.Spec{{Type: "b", RunAt: w.Now.Time().Add(100 * 365 * 24 * time.Hour)}}}}
	n.Fill()
	if _, err := engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) }); !errors.Is(err,
		task.ErrInvalidArgument) {
		t.Errorf("a group with a follow-up in a hundred years: %v, want invalid_argument", err)
	}
	if _, err := workflow.Show(w.Store, "default", n.ID); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("Show of the refused group: %v, want ErrNotFound", err)
	}
}

// An outdated deadline of a group changes nothing.
func TestOldDeadlineOfAGroup(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	n, _, err := makeGroup(w, task.Group{}, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []task.ID{n.ID, {9}} {
		w.Round(func(r *engine.Round) {
			workflow.Policy.Due[schema.OnGroup](r, schema.Deadline{At: w.Now, Kind: schema.OnGroup, Namespace: "default", Rest: id[:]})
		})
	}
	w.Pass(time.Hour)
	if v, err := workflow.Show(w.Store, "default", n.ID); err != nil || fmt.Sprint(v.Counts.Pending) != "1" {
		t.Errorf("after outdated deadlines the group is %+v, %v", v, err)
	}
}

// A result that is too large for a group stays with its task, and one that is too large for all follow-ups of its task is not passed on.
func TestResultsTooLarge(t *testing.T) {
	for _, c := range []struct {
		size             int
		omitted, without bool
	}{{task.MaxMemberResult, false, false}, {task.MaxMemberResult + 1, true, false}, {4 << 20, true, false}, {4<<20 + 1, true, true}} {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		n := &workflow.Call{Namespace: "default", ID: w.NewID()}
		n.Tasks = []task.Spec{{Type: "a", Then: []task.Spec{{Type: "b"}, {Type: "b"}}}}
		n.Fill()
		if _, err := engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) }); err != nil {
			t.Fatal(err)
		}
		a := w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}})[0]
		if _, err := engine.Run(w, func(r *engine.Round) (engine.Settled, error) {
			return engine.Ack(r, engine.Hold{Namespace: "default", ID: a.ID, Token: a.Token}, schema.Result{Data: make([]byte, c.size)})
		}); err != nil {
			t.Fatal(err)
		}
		members, _, err := workflow.Members(w.Store, "default", n.ID, task.ID{}, 1)
		if err != nil || members[0].Omitted != c.omitted || (len(members[0].Result.Data) == c.size) == c.omitted {
			t.Errorf("of a result of %d bytes the group keeps %d, too large: %t, %v", c.size, len(members[0].Result.Data),
				members[0].Omitted, err)
		}
		for _, b := range w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: 2}) {
			if p := schema.ReadEnvelope(w.Store, "default", b.ID).Parent; p.Omitted != c.without || (len(p.Result) == c.size) == c.without {
				t.Errorf("of a result of %d bytes %d reached a follow-up, too large: %t", c.size, len(p.Result), p.Omitted)
			}
		}
	}
}
