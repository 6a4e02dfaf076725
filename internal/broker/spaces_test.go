package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// A late erasure leaves the operations of a namespace that was added again, although it has no queues in the shard.
func TestErasureLeavesLaterOperations(t *testing.T) {
	for removed, want := range map[uint64]error{9: nil, 10: task.ErrNotFound} {
		inWorld(t, func(w *world) {
			ctx, at := context.Background(), OnShard{one, "team"}
			out, err := StartOperation.Call(ctx, w, NewOperation{at, 10, OperationSpec{Action: task.Cancel, Filter: ready("a"),
				Request: task.NewID(one, 1, 1)}})
			w.must(err)
			if _, err := EraseNamespace.Call(ctx, w, Removal{at, removed}); errors.Is(err, task.ErrWrongState) != (want == nil) {
				t.Errorf("a removal in version %d: %v", removed, err)
			}
			if _, err := ShowOperation.Call(ctx, w, OperationWait{OnOperation{"team", out.View.ID}, 0}); !errors.Is(err, want) {
				t.Errorf("after a removal in version %d, the operation: %v, want %v", removed, err, want)
			}
		})
	}
}

// A copy that reached a shard after its queue was deleted does not keep the namespace from being removed: no row says that there is a copy
// to drop. A copy with tasks does, and so do those of a namespace that is newer than the removal.
func TestErasureDropsLateCopies(t *testing.T) {
	for what, c := range map[string]struct {
		busy    string // a queue with a task
		removed uint64
		left    string
	}{
		"empty":           {"", 20, "[other/a]"},
		"just removed":    {"", 10, "[other/a]"},
		"one with a task": {"b", 20, "[other/a team/b team/c]"},
		"newer":           {"", 9, "[other/a team/a team/b team/c]"},
	} {
		inWorld(t, func(w *world) {
			ctx := context.Background()
			configs := map[string]task.QueueConfig{"a": {Version: 1, Settings: task.DefaultSettings()}}
			_, err := CopyQueues.Call(ctx, w, QueueCopies{OnShard{one, "other"}, 1, configs})
			w.must(err)
			configs["b"], configs["c"] = configs["a"], configs["a"]
			_, err = CopyQueues.Call(ctx, w, QueueCopies{OnShard{one, "team"}, 10, configs})
			w.must(err)
			if c.busy != "" {
				s := task.Spec{Type: "job", Queue: c.busy}
				s.Fill()
				_, _, err := w.Enqueue(ctx, one, "team", []task.Spec{s})
				w.must(err)
			}
			_, err = EraseNamespace.Call(ctx, w, Removal{OnShard{one, "team"}, c.removed})
			if erased := c.left == "[other/a]"; errors.Is(err, task.ErrWrongState) == erased || (err == nil) != erased {
				t.Errorf("%s: %v", what, err)
			}
			r, err := w.replica(one)
			w.must(err)
			copies, _, err := read(ctx, r, engine.CopiedQueues)
			w.must(err)
			var left []string
			for _, q := range copies {
				left = append(left, q.Namespace+"/"+q.Name)
			}
			if fmt.Sprint(left) != c.left {
				t.Errorf("%s: there are copies of %v, want %s", what, left, c.left)
			}
		})
	}
}
