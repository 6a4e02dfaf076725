package engine

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Claims of a long queue find all tasks but the first in memory, even though read-ahead arrives up to 16 rounds later,
// and no task is read twice.
func TestDrainReadsAhead(t *testing.T) {
	const tasks = 5000
	w := NewWorld(t)
	w.PutQueue("q", task.DefaultSettings(), false)
	spec := task.Spec{Type: "t", Queue: "q"}
	spec.Fill()
	ids := make([]task.ID, tasks)
	w.Round(func(r *Round) {
		for i := range ids {
			ids[i] = w.NewID()
			if _, err := Enqueue(r, &NewTask{Spec: spec, Namespace: "default", ID: ids[i], Fresh: true}); err != nil {
				t.Fatal(err)
			}
		}
	})
	w.BecomeLeader() // which has nothing in memory
	for at := 0; at < tasks; {
		for i := at; i < min(at+50, tasks); i++ {
			if i >= 2*256 && !w.Leader.hot.Knows(ids[i]) {
				t.Fatalf("task %d was not read ahead", i)
			}
		}
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "q"}}, Max: 50})
		if len(got) != 50 || got[0].ID != ids[at] {
			t.Fatalf("claimed %d tasks at position %d, want 50 in order", len(got), at)
		}
		at += len(got)
		w.Round(func(r *Round) {
			for _, c := range got {
				if _, err := Ack(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, schema.Result{}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if w.Took != 5 {
		t.Errorf("%d tasks were read ahead in %d turns, want 5", tasks, w.Took)
	}
}
