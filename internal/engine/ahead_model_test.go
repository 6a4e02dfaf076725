package engine_test

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/task"
)

// The model agrees when nearly all tasks are read ahead, and taken some rounds later or by another leader. Memory is
// compared with the rows after each round.
func TestModelReadAhead(t *testing.T) {
	engine.KeepHeads(t, 1)
	duels := map[*duel]bool{}
	runModel(t, duelQueues, modelSteps/3, func(d *duel) []func() string {
		duels[d] = true
		return append(d.verbs(), d.longStep, d.longStep, d.claimStep, d.claimStep, d.claimStep, d.claimStep)
	})
	took := 0
	for d := range duels {
		took += d.Took
	}
	if took < 20 {
		t.Errorf("tasks were read ahead only %d times, want at least 20", took)
	}
}

// longStep makes a lane long.
func (d *duel) longStep() string {
	queue := d.pick(d.queues...)
	for range 12 {
		s := task.Spec{Type: "x", Queue: queue, MaxAttempts: 3, Retry: &task.Retry{Initial: 7 * time.Second, Factor: 3, Max: time.Minute}}
		s.Fill()
		d.enter(s)
	}
	return "a long lane"
}
