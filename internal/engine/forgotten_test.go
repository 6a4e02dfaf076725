package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A task leaves a row only if its request may still be repeated when it is forgotten.
func TestForgetLeavesARow(t *testing.T) {
	for keep, want := range map[time.Duration]int{0: 1, DedupWindow - time.Microsecond: 1, DedupWindow: 0, 24 * time.Hour: 0} {
		w := NewWorld(t)
		a, err := w.Enqueue(task.Spec{Type: "job", Retention: &keep})
		if err != nil {
			t.Fatal(err)
		}
		w.Round(func(r *Round) { err = Cancel(r, "default", a.ID) })
		if err != nil {
			t.Fatal(err)
		}
		w.Now = w.Now.Add(keep)
		w.Round(Tick)
		if _, err := schema.ReadExec(w.Store, "default", a.ID); err == nil {
			t.Errorf("kept for %s: the task is still there", keep)
		}
		if n := w.Forgotten(); n != want {
			t.Errorf("kept for %s: the task left %d rows, want %d", keep, n, want)
		}
	}
}

// The rows of forgotten tasks end a bounded number a round, and one whose time is over stands for nothing while it waits for that.
func TestForgottenRowsEnd(t *testing.T) {
	const over = 500 // the limit of one round
	w := NewWorld(t)
	none := time.Duration(0)
	specs := map[task.ID]task.Spec{}
	for i := range tickLimit + over {
		s := task.Spec{Type: "job", Retention: &none, RequestID: task.NewID(1, int64(w.Now)/1000, uint64(i))}
		a, err := w.Enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		specs[a.ID] = s
		w.Round(func(r *Round) { err = Cancel(r, "default", a.ID) })
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Pass(0)
	if n := w.Forgotten(); n != len(specs) {
		t.Fatalf("%d tasks are forgotten, %d left a row", len(specs), n)
	}
	w.Now = w.Now.Add(DedupWindow)
	w.Round(Tick)
	if n := w.Forgotten(); n != over {
		t.Fatalf("%d rows are left after a round, want %d", n, over)
	}
	var late task.ID
	schema.EachForgotten(w.Store, "default", func(id task.ID, _ []byte) { late = id })
	for _, duplicate := range []bool{false, true} {
		if a, err := w.Enqueue(specs[late]); err != nil || a.ID != late || a.State != task.Ready || a.Duplicate != duplicate {
			t.Errorf("the late repeat of a request is answered %+v (%v), want a duplicate: %t", a, err, duplicate)
		}
		w.Round(Tick)
	}
	if n := w.Forgotten(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if found := CheckAll(w.Store, "default"); len(found) > 0 {
		t.Errorf("found %q", found)
	}
}

// A repeat is answered with the task that the first call made: as it is now, or as it ended if it is forgotten.
func TestRepeatIsAnsweredLikeTheFirst(t *testing.T) {
	none := time.Duration(0)
	for name, s := range map[string]task.Spec{
		"UUIDv7":          {RequestID: task.NewID(1, int64(Dawn)/1000, 7)},
		"UUIDv4":          {RequestID: task.ID{15: 7}},
		"idempotency key": {IdempotencyKey: "k"},
	} {
		w := NewWorld(t)
		s.Type, s.Retention = "job", &none
		first, err := w.Enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []task.State{task.Ready, task.Cancelled} {
			if state == task.Cancelled {
				w.Round(func(r *Round) { err = Cancel(r, "default", first.ID) })
			}
			w.Pass(time.Minute)
			want := Accepted{ID: first.ID, State: state, CreatedAt: first.CreatedAt, Duplicate: true}
			if again, err2 := w.Enqueue(s); err != nil || err2 != nil || again != want {
				t.Errorf("%s: a repeat is answered %+v (%v, %v), want %+v", name, again, err, err2, want)
			}
		}
	}
}
