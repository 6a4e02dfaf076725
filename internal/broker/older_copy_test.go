package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// A shard that a slot has left by the caller's map says what it does not know only when its own copy says so too: with
// an older copy it could take the same task afterwards, from a caller whose map is as old.
func TestOlderCopyIsReplacedBeforeTheAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		enqueue := func(key string, routed uint64, left bool) (Enqueued, error) {
			specs := []task.Spec{{Type: "job", Queue: "q", IdempotencyKey: "other"}, {Type: "job", Queue: "q", IdempotencyKey: key}}
			for i := range specs {
				specs[i].Fill()
				specs[i].Routed, specs[i].Left = routed, left
			}
			specs[0].Left = false
			out, _, err := w.Enqueue(ctx, one, ns, specs)
			if err != nil {
				return Enqueued{}, err
			}
			return out[1], out[1].Err
		}
		known, err := enqueue("known", 1, false)
		w.must(err)
		claimed := <-w.claim(ctx, call("q"), 0)
		begin := func(routed uint64, by *OnceHolder) error {
			_, _, err := w.Once(ctx, one, OnceCall{Verb: OnceBegin, Key: "k", Hold: hold(claimed[0]), Queue: "q", Routed: routed,
				Left: true, By: by})
			return err
		}
		asked, version := 0, uint64(1)
		systemShard := func(err error, has uint64) {
			asked = 0
			ask := func(string) error {
				asked++
				w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"q": {Version: has, Moved: 2, Closed: task.AllSlots,
					Settings: task.DefaultSettings()}}))
				return err
			}
			w.onQueue.Store(&ask)
		}
		for name, do := range map[string]func(routed uint64) error{
			"enqueue":                      func(routed uint64) error { _, err := enqueue("new", routed, true); return err },
			"once":                         func(routed uint64) error { return begin(routed, nil) },
			"once by a claim from far off": func(routed uint64) error { return begin(routed, &OnceHolder{ID: claimed[0].ID, Fence: 1}) },
		} {
			version++
			away := task.Unavailable(time.Second, "the system shard has no leader")
			systemShard(away, version-1)
			if err := do(version); !errors.Is(err, away) || asked == 0 {
				t.Errorf("%s: no copy can be had: %v after %d calls", name, err, asked)
			}
			systemShard(nil, version-1)
			if err := do(version); !errors.Is(err, task.ErrUnavailable) || errors.Is(err, engine.ErrSlotMoved) || asked == 0 {
				t.Errorf("%s: the copy is still older: %v after %d calls", name, err, asked)
			}
			systemShard(nil, version)
			if err := do(version); !errors.Is(err, engine.ErrSlotMoved) || asked == 0 {
				t.Errorf("%s: the copy was fetched: %v after %d calls", name, err, asked)
			}
			if asked = 0; !errors.Is(do(version), engine.ErrSlotMoved) || asked > 0 {
				t.Errorf("%s: a copy that is as new as the map was asked for", name)
			}
		}
		if again, err := enqueue("known", version, true); err != nil || !again.Duplicate || again.ID != known.ID {
			t.Errorf("a known key: %+v, %v", again, err)
		}
		if _, err := enqueue("new", 1, false); !errors.Is(err, engine.ErrSlotMoved) {
			t.Errorf("a caller with an old map, afterwards: %v", err)
		}
	})
}
