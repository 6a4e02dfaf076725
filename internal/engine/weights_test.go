package engine_test

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// crews are workers that claim in turns, each for some types. They share what others leave, by the weights, among what they may take.
type crews struct {
	*engine.World
	got map[string]int // by the types that claims were for, and where they found a task
}

func (w *crews) claim(c engine.ClaimRequest, found func(engine.Claimed) string) {
	for _, t := range w.Claim(c) {
		w.got[fmt.Sprint(c.Types, " ", found(t))]++
		w.Round(func(r *engine.Round) {
			if _, err := engine.Ack(r, engine.Hold{Namespace: "default", ID: t.ID, Token: t.Token}, schema.Result{}); err != nil {
				w.T.Error(err)
			}
		})
	}
}

func (w *crews) wants(want map[string]int) {
	w.T.Helper()
	for name, n := range want {
		if w.got[name] < n-1 || w.got[name] > n+1 {
			w.T.Errorf("claims for %s got %d tasks, want %d: %v", name, w.got[name], n, w.got)
		}
	}
}

func (w *crews) add(specs ...task.Spec) {
	for range 200 {
		for _, s := range specs {
			if _, err := w.Enqueue(s); err != nil {
				w.T.Fatal(err)
			}
		}
	}
}

// Priorities share claims by their weights, whatever types workers take.
func TestPriorityWeightsAgainstTypes(t *testing.T) {
	setting := func(t *testing.T, weights [3]int) *crews {
		w := &crews{engine.NewWorld(t), map[string]int{}}
		s := task.DefaultSettings()
		s.Weights = weights
		w.PutQueue("default", s, false)
		return w
	}
	priority := func(c engine.Claimed) string { return fmt.Sprint(c.Exec.Priority) }
	all := []engine.Share{{Queue: "default"}}
	t.Run("apart", func(t *testing.T) {
		w := setting(t, [3]int{70, 20, 10})
		w.add(task.Spec{Type: "b", Priority: task.High}, task.Spec{Type: "b", Priority: task.Normal},
			task.Spec{Type: "a", Priority: task.Low})
		for range 90 {
			w.claim(engine.ClaimRequest{Queues: all, Types: []string{"b"}}, priority)
			w.claim(engine.ClaimRequest{Queues: all, Types: []string{"a"}}, priority)
		}
		w.wants(map[string]int{"[b] high": 70, "[b] normal": 20, "[a] low": 90})
	})
	// with one credit for all, the workers for x would only get high tasks, and the others only normal ones
	t.Run("in turns", func(t *testing.T) {
		w := setting(t, [3]int{10, 10, 1})
		w.add(task.Spec{Type: "x", Priority: task.High}, task.Spec{Type: "x", Priority: task.Normal})
		for range 100 {
			w.claim(engine.ClaimRequest{Queues: all, Types: []string{"x"}}, priority)
			w.claim(engine.ClaimRequest{Queues: all}, priority)
		}
		w.wants(map[string]int{"[x] high": 50, "[x] normal": 50, "[] high": 50, "[] normal": 50})
	})
}

// So do the weighted queues of a claim. A claim that finds nothing in any costs none of them its turn.
func TestQueueWeightsAgainstTypes(t *testing.T) {
	w := &crews{engine.NewWorld(t), map[string]int{}}
	for _, q := range []string{"q1", "q2", "q3"} {
		w.PutQueue(q, task.DefaultSettings(), false)
	}
	w.add(task.Spec{Type: "b", Queue: "q1"}, task.Spec{Type: "b", Queue: "q2"}, task.Spec{Type: "a", Queue: "q3"})
	shares := []engine.Share{{Queue: "q1", Weight: 3}, {Queue: "q2", Weight: 1}, {Queue: "q3", Weight: 1}}
	queue := func(c engine.Claimed) string { return c.Queue }
	for range 100 {
		w.claim(engine.ClaimRequest{Weighted: true, Queues: shares, Types: []string{"b"}}, queue)
		w.claim(engine.ClaimRequest{Weighted: true, Queues: shares, Types: []string{"a"}}, queue)
		w.Round(func(r *engine.Round) {
			engine.PutShare(r, task.SpaceName{Namespace: "default"}, task.Share{Version: w.Index,
				Amounts: task.Amounts{Backlog: task.NoLimit,
					Bytes: task.NoLimit}})
		})
		w.claim(engine.ClaimRequest{Weighted: true, Queues: shares, Types: []string{"b"}}, queue) // the namespace is at its limit
		w.Round(func(r *engine.Round) {
			engine.PutShare(r, task.SpaceName{Namespace: "default"}, task.Share{Version: w.Index, Amounts: task.Unlimited})
		})
	}
	w.wants(map[string]int{"[b] q1": 75, "[b] q2": 25, "[a] q3": 100})
}
