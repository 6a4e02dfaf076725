package router

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// Below its level nobody is sent a task with a unique key; the other tasks of a batch are made.
func TestUniqueNeedsItsLevel(t *testing.T) {
	inFleet(t, 1, func(f *fleet) {
		m := f.nodes[1]
		specs := []task.Spec{{Type: "a", Queue: "q"}, {Type: "b", Queue: "q", Unique: &task.Unique{Key: "k"}}, {Type: "c", Queue: "q"}}
		for level, want := range map[int]error{0: task.ErrUnavailable, cluster.PoliciesLevel - 1: task.ErrWrongState, cluster.PoliciesLevel: nil} {
			m.level = level
			got, _, err := m.Enqueue(context.Background(), 1, "default", specs)
			if err != nil || got[0].Err != nil || !errors.Is(got[1].Err, want) || got[2].Err != nil || got[0].ID == got[2].ID {
				t.Errorf("at level %d: %+v, %v; want %v of the second", level, got, err, want)
			}
			if errors.Is(want, task.ErrWrongState) && !strings.Contains(got[1].Err.Error(), "feature level 3") {
				t.Errorf("the refusal does not name the level: %v", got[1].Err)
			}
			got, _, err = m.Enqueue(context.Background(), 1, "default", specs[1:2])
			if err != nil || !errors.Is(got[0].Err, want) {
				t.Errorf("at level %d, alone: %+v, %v; want %v", level, got, err, want)
			}
		}
	})
}
