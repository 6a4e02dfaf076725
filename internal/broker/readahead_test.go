package broker

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// Two workers drain a queue so long that its tasks are read ahead, while tasks are added. Each task is claimed once.
func TestDrainOfALongQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		given := map[task.ID]int{}
		drain := func() {
			c := call("default")
			c.Max = 20
			for {
				got, _, err := w.Claim(context.Background(), one, c, 0)
				if err != nil || len(got) == 0 {
					w.must(err)
					return
				}
				acks := make([]Settle, len(got))
				mu.Lock()
				for i, c := range got {
					given[c.ID]++
					acks[i] = Settle{Verb: Ack, Hold: hold(c)}
				}
				mu.Unlock()
				if _, _, err := w.Settle(context.Background(), one, acks); err != nil {
					t.Error(err)
				}
			}
		}
		ids := w.enqueue(make([]task.Spec, 2000)...)
		var clients sync.WaitGroup
		clients.Go(drain)
		clients.Go(drain)
		clients.Go(func() {
			for range 10 {
				ids = append(ids, w.enqueue(make([]task.Spec, 50)...)...)
			}
		})
		clients.Wait()
		drain() // the tasks added last
		if i := slices.IndexFunc(ids, func(id task.ID) bool { return given[id] != 1 }); i >= 0 || len(given) != len(ids) {
			t.Errorf("%d of %d tasks were claimed, index %d is the first that was not claimed exactly once", len(given), len(ids), i)
		}
	})
}
