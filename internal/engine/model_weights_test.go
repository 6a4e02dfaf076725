package engine_test

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// TestModelWeights is TestModel with full queues, of which the priorities have weights.
func TestModelWeights(t *testing.T) {
	runModel(t, []string{"a"}, modelSteps/2, func(d *duel) []func() string {
		return []func() string{d.fillStep, d.fillStep, d.claimStep, d.claimStep, d.claimStep, d.claimStep, d.ackStep, d.ackStep,
			d.weighStep, d.passStep}
	})
}

// fillStep enqueues a task of some type and priority.
func (d *duel) fillStep() string {
	s := task.Spec{Type: d.pick("x", "y"), Queue: "a", Key: d.pick("", "k"), Priority: task.Priorities[d.rng.IntN(3)], MaxAttempts: 100}
	s.Fill()
	return d.enter(s)
}

// ackStep acks a claimed task.
func (d *duel) ackStep() string {
	t := d.any(func(t *modelTask) bool { return t.state == task.Claimed })
	if t == nil {
		return "nothing to ack"
	}
	return d.settle(t, t.fence, "ack")
}

// weighStep sets new weights now and then.
func (d *duel) weighStep() string {
	c := d.m.rules["a"]
	if c.Settings.Weighted() && d.rng.IntN(20) > 0 {
		return "no new weights"
	}
	c.Settings.Weights = [3]int{1 + d.rng.IntN(9), 1 + d.rng.IntN(9), 1 + d.rng.IntN(9)}
	d.rule("a", c)
	return "weights"
}

// noteTurn checks that no priority is owed more than two turns in claims for the same types, nor owes more.
func (d *duel) noteTurn(queue string, types []string, first map[modelLine]*modelTask, got *modelTask) {
	weights := d.m.rules[queue].Settings.Weights
	name := queue + fmt.Sprint(types)
	if !d.AllRead(queue) {
		delete(d.owed, name)
		return
	}
	owed := d.owed[name]
	var some [3]bool
	for of := range first {
		some[of.priority-task.High] = true
	}
	for i, w := range weights {
		if some[i] {
			owed[i] += w
			owed[got.priority-task.High] -= w
		}
	}
	for _, o := range owed {
		if most := 2 * (weights[0] + weights[1] + weights[2]); o > most || o < -most {
			d.T.Fatalf("claims of %s owe the priorities %v by the weights %v", name, owed, weights)
		}
	}
	if d.owed == nil {
		d.owed = map[string][3]int{}
	}
	d.owed[name] = owed
}
