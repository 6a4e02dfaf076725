package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// The stories are the same when every key with waiting tasks only is cold.
func TestStoriesCold(t *testing.T) {
	engine.KeepWarm(t, 0, 0)
	tellStories(t)
}

// The model agrees when keys are cold, and leaders begin with one lane of each priority.
func TestModelCold(t *testing.T) {
	for _, c := range []struct{ warm, lanes int }{{0, 1}, {0, 0}, {2, 2}} {
		t.Run(fmt.Sprintf("%d warm, %d read at once", c.warm, c.lanes), func(t *testing.T) {
			engine.KeepWarm(t, c.warm, c.lanes)
			runModel(t, duelQueues, modelSteps/2, func(d *duel) []func() string { return append(d.verbs(), d.leaderStep, d.manyStep) })
		})
	}
}

// manyStep adds tasks of keys that occur only once, so that lanes of many keys wait.
func (d *duel) manyStep() string {
	for range 5 {
		s := task.Spec{Type: d.pick("x", "y"), Queue: d.pick(d.queues...), Key: fmt.Sprint("one-", d.rng.IntN(40)), MaxAttempts: 3,
			Priority: task.Priorities[d.rng.IntN(3)], Retry: &task.Retry{Initial: 7 * time.Second, Factor: 3, Max: time.Minute}}
		s.Fill()
		t := d.m.taskOf(&s)
		outcome, other := d.m.enter(t)
		a, err := d.Enqueue(s)
		d.entered(t, outcome, other, a, err)
	}
	return "many keys"
}
