package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// A copy that reached a shard after its queue was deleted does not keep the namespace from being removed: no row says that there is a copy to drop. A copy
// with tasks does, and so do those of a namespace that is newer than the removal.
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
