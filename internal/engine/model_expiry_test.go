package engine_test

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// TestModelOfExpiry is TestModel with claims that come before the deadlines that have passed.
func TestModelOfExpiry(t *testing.T) {
	runModel(t, []string{"a", "c"}, modelSteps/2, func(d *duel) []func() string {
		return []func() string{d.enqueueStep, d.enqueueStep, d.enqueueStep, d.claimStep, d.lateClaimStep, d.lateClaimStep, d.settleStep,
			d.settleStep, d.passStep, d.cancelStep, d.retryStep, d.orderStep, d.runningStep}
	})
}

// runningStep limits how many tasks of a key run.
func (d *duel) runningStep() string {
	q := d.pick(d.queues...)
	c := d.m.rules[q]
	c.Settings.PerKey.MaxRunning = d.rng.IntN(3)
	d.rule(q, c)
	return "limit"
}

// lateClaimStep claims when time has passed, but what it brings about has not happened yet. Half of the time another
// leader takes over meanwhile.
func (d *duel) lateClaimStep() string {
	d.m.late = true
	defer func() { d.m.late = false }()
	d.Now = d.Now.Add(time.Duration(d.rng.IntN(3000)) * time.Millisecond)
	d.m.now = d.Now
	if d.rng.IntN(2) == 0 {
		d.leaderStep()
	}
	what := d.claimStep()
	d.Pass(0)
	d.m.pass(d.Now)
	return "late " + what
}

// claimDiscards follows the engine in what its last claim has discarded.
func (d *duel) claimDiscards() {
	for _, e := range d.Last.Ended {
		for _, t := range d.m.tasks {
			if t.id != e.ID {
				continue
			}
			if !t.expired(d.Now) || e.State != task.Discarded {
				d.T.Fatalf("a claim has made %+v %s", t, e.State)
			}
			t.state = task.Discarded
			d.m.moved(t)
			d.seen["discarded by a claim"]++
		}
	}
}

// expired reports whether the task should have been started by now.
func (t *modelTask) expired(now store.Time) bool {
	return t.awaitsStart() && t.expires <= now
}

func (t *modelTask) awaitsStart() bool {
	return t.expires != 0 && (t.fence == 0 || t.always) && t.state.Waiting()
}
