package engine_test

import (
	"errors"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// An id that belongs to a task is refused for a group, and the other way round, whether the leader knows both or only the rows.
func TestForeignIDs(t *testing.T) {
	const later = 4e12 // than all other ids, so that no row is looked up unless the leader knows of this one
	request, id := task.NewID(0, later, 7), task.NewID(1, later, 99)
	enqueue := func(w *engine.World) error {
		s := task.Spec{Type: "parent", RequestID: request, Then: []task.Spec{{Type: "child"}}}
		s.Fill()
		_, err := engine.Run(w, func(r *engine.Round) (engine.Accepted, error) {
			return engine.Enqueue(r, &engine.NewTask{Spec: s, Namespace: "default", ID: id})
		})
		return err
	}
	group := func(w *engine.World) error {
		g := task.Group{Tasks: []task.Spec{{Type: "member"}}, OnComplete: &task.Spec{Type: "done"}, RequestID: request}
		g.Fill()
		_, err := engine.Run(w, func(r *engine.Round) (workflow.Made, error) {
			return workflow.Make(r, &workflow.Call{Group: g, Namespace: "default", ID: id})
		})
		return err
	}
	for name, order := range map[string][2]func(*engine.World) error{"a task, then a group": {enqueue, group},
		"a group, then a task": {group, enqueue}} {
		for _, elected := range []bool{false, true} {
			w := engine.NewWorld(t)
			w.PutQueue("default", task.DefaultSettings(), false)
			if err := order[0](w); err != nil {
				t.Fatal(err)
			}
			if elected {
				w.BecomeLeader()
			}
			if err := order[1](w); !errors.Is(err, task.ErrConflict) {
				t.Errorf("%s of one id, another leader: %t: %v, want a conflict", name, elected, err)
			}
			if err := order[0](w); err != nil {
				t.Errorf("%s of one id, another leader: %t: the first call repeated: %v", name, elected, err)
			}
			if err := w.Check(); err != nil {
				t.Errorf("%s of one id: %v", name, err)
			}
		}
	}
}

// An ack creates the follow-up tasks that wait. Those that were created before, and so have no task to create any more, stay as they are.
func TestFollowersThatDoNotWait(t *testing.T) {
	w := engine.NewWorld(t)
	a, err := w.Enqueue(task.Spec{Type: "parent", Then: []task.Spec{{Type: "first"}, {Type: "second"}}})
	if err != nil {
		t.Fatal(err)
	}
	got := w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}})
	w.Round(func(r *engine.Round) {
		rows := schema.ReadFollowers(r.Tx(), "default", a.ID)
		rows[0].State, rows[0].Spec, rows[0].ID = schema.FollowerCreated, nil, task.ID{1}
		r.Tx().Set(schema.IDKey("default", schema.TableFollow, a.ID), schema.EncodeFollowers(rows))
	})
	if _, err := engine.Run(w, func(r *engine.Round) (engine.Settled, error) {
		return engine.Ack(r, engine.Hold{Namespace: "default", ID: a.ID, Token: got[0].Token}, schema.Result{})
	}); err != nil {
		t.Fatal(err)
	}
	rows := schema.ReadFollowers(w.Store, "default", a.ID)
	if rows[0].ID != (task.ID{1}) || rows[1].State != schema.FollowerCreated || rows[1].ID == (task.ID{}) {
		t.Errorf("the follow-ups are %+v, want the first as it was, and the second created", rows)
	}
}
