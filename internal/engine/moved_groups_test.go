package engine_test

import (
	"errors"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// A group whose request may be repeated is created only by the shard that takes its slot, chosen by a map that knows of
// the last move. A shard that the slot has left says that it does not know the request only once its copy of the queue
// says so too: until then the group could be created there.
func TestGroupsOfMovedSlots(t *testing.T) {
	const before, moved, later = 1, 2, 3 // versions of the queue
	request := task.NewID(9, 9, 9)
	home := task.Spec{Queue: "default", RequestID: request}
	at, _ := home.Slot()
	slot := task.SlotSet(1) << at
	for _, c := range []struct {
		what      string
		closed    task.SlotSet // by the move; 0: there was none
		routed    uint64
		left      bool
		noRequest bool
		early     bool // it was made before the move
		make      error
		find      error
	}{
		{"nothing has moved", 0, before, false, false, false, nil, task.ErrNotFound},
		{"its slot has left, by an old map", slot, before, false, false, false, engine.ErrSlotMoved, task.ErrNotFound},
		{"its slot has left, by the map of the move", slot, moved, true, false, false, engine.ErrSlotMoved, task.ErrNotFound},
		{"its slot has left, by a newer map", slot, later, true, false, false, engine.ErrSlotMoved, engine.ErrUnknownQueue},
		{"it was made before, and its slot has left by a newer map", slot, later, true, false, true, nil, nil},
		{"other slots have left, by an old map", ^slot, before, false, false, false, engine.ErrSlotMoved, task.ErrNotFound},
		{"other slots have left, by the map of the move", ^slot, moved, false, false, false, nil, task.ErrNotFound},
		{"there is no request", slot, before, false, true, false, nil, task.ErrNotFound},
	} {
		run := func(fn func(r *engine.Round, n *workflow.Call) (workflow.Made, error)) (workflow.Made, error) {
			w := engine.NewWorld(t)
			w.PutQueue("default", task.DefaultSettings(), false)
			n := &workflow.Call{Namespace: "default", ID: task.NewID(1, 1, 1)}
			n.Tasks, n.RequestID, n.Home = []task.Spec{{Type: "job"}}, request, home
			if c.noRequest {
				n.RequestID, n.Home.RequestID, n.Home.Key = task.ID{}, task.ID{}, "k"
			}
			n.Home.Routed, n.Home.Left = c.routed, c.left
			n.Fill()
			if c.early {
				if _, err := engine.Run(w, func(r *engine.Round) (workflow.Made, error) {
					early := *n
					early.Home.Routed = before
					return workflow.Make(r, &early)
				}); err != nil {
					t.Fatal(err)
				}
			}
			if c.closed != 0 {
				w.CloseSlots("default", c.closed)
			}
			return engine.Run(w, func(r *engine.Round) (workflow.Made, error) { return fn(r, n) })
		}
		if made, err := run(workflow.Make); !errors.Is(err, c.make) || made.Duplicate != c.early {
			t.Errorf("%s: Make = %+v, %v, want %v", c.what, made, err, c.make)
		}
		if made, err := run(workflow.Find); !errors.Is(err, c.find) || made.Duplicate != c.early {
			t.Errorf("%s: Find = %+v, %v, want %v", c.what, made, err, c.find)
		}
	}
}
