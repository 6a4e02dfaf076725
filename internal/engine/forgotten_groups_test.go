package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// A call repeated within ten minutes finds its group, even if it is limited to some queues. Later it does not, neither
// while the rows of a large group are being deleted nor afterwards.
func TestForgottenGroup(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	keep := time.Minute
	n := &workflow.Call{Namespace: "default", ID: w.NewID(), Group: task.Group{Retention: &keep, Within: []string{"default"}, Open: true}}
	for range workflow.ForgetChunk {
		n.Tasks = append(n.Tasks, task.Spec{Type: "part"})
		n.Tasks[len(n.Tasks)-1].Fill()
	}
	if _, err := engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) }); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(w, func(r *engine.Round) ([]workflow.Joined, error) {
		return workflow.Add(r, "default", n.ID, workflow.NewMembers(n.Tasks[:1]))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Run(w, func(r *engine.Round) (*workflow.View, error) {
		return workflow.Cancel(r, task.Author{}, "default", n.ID)
	}); err != nil {
		t.Fatal(err)
	}
	isNotFound := func(err error) bool {
		var e *task.Error
		return errors.As(err, &e) && e.Code == task.CodeNotFound
	}
	limited := task.Scope{Queues: []string{"default"}}
	repeat := func() (made workflow.Made, err, found, within error) {
		_, found = engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return workflow.Find(r, n) })
		w.Round(func(r *engine.Round) { within = workflow.Within(r, limited, "default", n.ID) })
		made, err = engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) })
		return made, err, found, within
	}
	w.Pass(task.RequestWindow - time.Microsecond)
	if _, err := workflow.Show(w.Store, "default", n.ID); err == nil {
		t.Error("the group is still shown after its retention")
	}
	if made, err, found, within := repeat(); err != nil || !made.Duplicate || found != nil || within != nil {
		t.Errorf("just before ten minutes: duplicate %t, %v, found: %v, within the caller's queues: %v", made.Duplicate, err, found, within)
	}
	w.Now++
	w.Round(engine.Tick)
	if _, err, found, _ := repeat(); !errors.Is(err, workflow.ErrBeingDeleted) || !isNotFound(found) {
		t.Errorf("while the rows are deleted: %v, found: %v", err, found)
	}
	w.Pass(0)
	if _, _, found, within := repeat(); !isNotFound(found) || !isNotFound(within) {
		t.Errorf("after the deletion, the group is found: %v, %v", found, within)
	}
	if made, err, _, _ := repeat(); err != nil || !made.Duplicate || len(made.Tasks) != workflow.ForgetChunk ||
		made.Group.Counts.Pending != workflow.ForgetChunk {
		t.Errorf("creating the new group: %v, %+v", err, made.Group)
	}
	if found := engine.CheckAll(w.Store, "default"); len(found) > 0 {
		t.Errorf("Check found %q", found[0])
	}
}

// The follow-ups of a group stay when tasks created before and after it are forgotten together with their follow-ups.
func TestGroupAmongForgottenTasks(t *testing.T) {
	w := engine.NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	spec := func() *task.Spec {
		keep := time.Second
		s := &task.Spec{Type: "job", Queue: "default", Retention: &keep, Then: []task.Spec{{Type: "next", Queue: "default",
			Delay: time.Hour}}}
		s.Fill()
		return s
	}
	enqueue := func() {
		if _, err := w.Enqueue(*spec()); err != nil {
			t.Fatal(err)
		}
		w.Pass(time.Millisecond)
	}
	enqueue()
	n := &workflow.Call{Namespace: "default", ID: w.NewID(), Group: task.Group{OnComplete: spec(), Open: true}}
	must(t, w, func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) })
	w.Pass(time.Millisecond)
	enqueue()
	for _, c := range w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: 2}) {
		must(t, w, func(r *engine.Round) (engine.Settled, error) {
			return engine.Ack(r, engine.Hold{Namespace: "default", ID: c.ID, Token: c.Token}, schema.Result{})
		})
	}
	w.Pass(time.Minute)
	if left := w.Forgotten(); left != 2 {
		t.Fatalf("got %d forgotten tasks, want 2", left)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	must(t, w, func(r *engine.Round) (*workflow.View, error) { return workflow.Close(r, "default", n.ID) })
	if got := w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Max: 2}); len(got) != 1 {
		t.Errorf("claimed %d follow-ups of the group, want one", len(got))
	}
}

func must[T any](t *testing.T, w *engine.World, call func(r *engine.Round) (T, error)) {
	t.Helper()
	if _, err := engine.Run(w, call); err != nil {
		t.Fatal(err)
	}
}
