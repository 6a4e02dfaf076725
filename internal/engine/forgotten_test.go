package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// forgotten counts the rows that forgotten tasks have left.
func (w *world) forgotten() (n int) {
	eachForgotten(w.store, "default", func(task.ID, []byte) { n++ })
	return n
}

// A task leaves a row only if its request may still be repeated when it is forgotten.
func TestForgetLeavesARow(t *testing.T) {
	for keep, want := range map[time.Duration]int{0: 1, dedupWindow - time.Microsecond: 1, dedupWindow: 0, 24 * time.Hour: 0} {
		w := newWorld(t)
		a, err := w.enqueue(task.Spec{Type: "job", Retention: &keep})
		if err != nil {
			t.Fatal(err)
		}
		w.round(func(r *Round) { err = Cancel(r, "default", a.ID) })
		if err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(keep)
		w.round(Tick)
		if _, err := schema.ReadExec(w.store, "default", a.ID); err == nil {
			t.Errorf("kept for %s: the task is still there", keep)
		}
		if n := w.forgotten(); n != want {
			t.Errorf("kept for %s: the task left %d rows, want %d", keep, n, want)
		}
	}
}

// The rows of forgotten tasks end a bounded number a round, and one whose time is over stands for nothing while it waits for that.
func TestForgottenRowsEnd(t *testing.T) {
	const over = 500 // the limit of one round
	w := newWorld(t)
	none := time.Duration(0)
	specs := map[task.ID]task.Spec{}
	for i := range tickLimit + over {
		s := task.Spec{Type: "job", Retention: &none, RequestID: task.NewID(1, int64(w.now)/1000, uint64(i))}
		a, err := w.enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		specs[a.ID] = s
		w.round(func(r *Round) { err = Cancel(r, "default", a.ID) })
		if err != nil {
			t.Fatal(err)
		}
	}
	w.pass(0)
	if n := w.forgotten(); n != len(specs) {
		t.Fatalf("%d tasks are forgotten, %d left a row", len(specs), n)
	}
	w.now = w.now.Add(dedupWindow)
	w.round(Tick)
	if n := w.forgotten(); n != over {
		t.Fatalf("%d rows are left after a round, want %d", n, over)
	}
	var late task.ID
	eachForgotten(w.store, "default", func(id task.ID, _ []byte) { late = id })
	for _, duplicate := range []bool{false, true} {
		if a, err := w.enqueue(specs[late]); err != nil || a.ID != late || a.State != task.Ready || a.Duplicate != duplicate {
			t.Errorf("the late repeat of a request is answered %+v (%v), want a duplicate: %t", a, err, duplicate)
		}
		w.round(Tick)
	}
	if n := w.forgotten(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if found := Check(w.store, "default"); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

// A repeat is answered with the task that the first call made: as it is now, or as it ended if it is forgotten.
func TestRepeatIsAnsweredLikeTheFirst(t *testing.T) {
	none := time.Duration(0)
	for name, s := range map[string]task.Spec{
		"UUIDv7":          {RequestID: task.NewID(1, int64(dawn)/1000, 7)},
		"UUIDv4":          {RequestID: task.ID{15: 7}},
		"idempotency key": {IdempotencyKey: "k"},
	} {
		w := newWorld(t)
		s.Type, s.Retention = "job", &none
		first, err := w.enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []task.State{task.Ready, task.Cancelled} {
			if state == task.Cancelled {
				w.round(func(r *Round) { err = Cancel(r, "default", first.ID) })
			}
			w.pass(time.Minute)
			want := Accepted{ID: first.ID, State: state, CreatedAt: first.CreatedAt, Duplicate: true}
			if again, err2 := w.enqueue(s); err != nil || err2 != nil || again != want {
				t.Errorf("%s: a repeat is answered %+v (%v, %v), want %+v", name, again, err, err2, want)
			}
		}
	}
}

// A call that is repeated within ten minutes finds its group, also if it is limited to some queues, and later it doesn't: neither while the
// rows of a large group are deleted, nor afterwards.
func TestForgottenGroup(t *testing.T) {
	w := newWorld(t)
	w.putQueue("default", task.DefaultSettings(), false)
	keep := time.Minute
	n := &NewGroup{Namespace: "default", ID: w.newID(), Group: task.Group{Retention: &keep, Within: []string{"default"}, Open: true}}
	for range forgetChunk {
		n.Tasks = append(n.Tasks, task.Spec{Type: "part"})
		n.Tasks[len(n.Tasks)-1].Fill()
	}
	if _, err := run(w, func(r *Round) (GroupMade, error) { return MakeGroup(r, n) }); err != nil {
		t.Fatal(err)
	}
	if _, err := run(w, func(r *Round) ([]Joined, error) { return AddToGroup(r, "default", n.ID, n.Tasks[:1]) }); err != nil {
		t.Fatal(err)
	}
	if _, err := run(w, func(r *Round) (*GroupView, error) { return CancelGroup(r, task.Author{}, "default", n.ID) }); err != nil {
		t.Fatal(err)
	}
	isNotFound := func(err error) bool {
		var e *task.Error
		return errors.As(err, &e) && e.Code == task.CodeNotFound
	}
	limited := task.Scope{Queues: []string{"default"}}
	repeat := func() (made GroupMade, err, found, within error) {
		_, found = run(w, func(r *Round) (GroupMade, error) { return FindGroup(r, n) })
		w.round(func(r *Round) { within = GroupWithin(r, limited, "default", n.ID) })
		made, err = run(w, func(r *Round) (GroupMade, error) { return MakeGroup(r, n) })
		return made, err, found, within
	}
	w.pass(dedupWindow - time.Microsecond)
	if _, err := ShowGroup(w.store, "default", n.ID); err == nil {
		t.Error("the group is still shown after its retention")
	}
	if made, err, found, within := repeat(); err != nil || !made.Duplicate || found != nil || within != nil {
		t.Errorf("before ten minutes are over: duplicate %t, %v; found: %v; within the caller's queues: %v", made.Duplicate, err, found, within)
	}
	w.now++
	w.round(Tick)
	if _, err, found, _ := repeat(); !errors.Is(err, errGroupLeaves) || !isNotFound(found) {
		t.Errorf("while its rows are deleted: %v, found: %v", err, found)
	}
	w.pass(0)
	if _, _, found, within := repeat(); !isNotFound(found) || !isNotFound(within) {
		t.Errorf("afterwards it is found: %v, %v", found, within)
	}
	if made, err, _, _ := repeat(); err != nil || !made.Duplicate || len(made.Tasks) != forgetChunk || made.Group.Counts.Pending != forgetChunk {
		t.Errorf("the new group: %v, %+v", err, made.Group)
	}
	if found := Check(w.store, "default"); len(found) > 0 {
		t.Errorf("found %q", found[0])
	}
}
