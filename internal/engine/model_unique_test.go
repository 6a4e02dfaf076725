package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// TestModelOfUniqueKeys is TestModel in a short queue without limits, where unique keys collide all the time.
func TestModelOfUniqueKeys(t *testing.T) {
	runModel(t, []string{"c"}, modelSteps, func(d *duel) []func() string {
		return []func() string{d.enqueueStep, d.enqueueStep, d.enqueueStep, d.claimStep, d.claimStep, d.settleStep,
			d.passStep, d.cancelStep, d.retryStep, d.leaderStep}
	})
}

// keyOf returns the holder of a task's unique key, and the next one.
func (m *model) keyOf(of *modelTask) (holder, next *modelTask) {
	for _, t := range m.tasks {
		if t.unique == nil || t.queue != of.queue || t.unique.Key != of.unique.Key {
			continue
		}
		if t.holds {
			holder = t
		}
		if t.next {
			next = t
		}
	}
	return holder, next
}

// passKey is the rule of unique keys for a task that has moved: one that would wait again is discarded if another is
// next, and one that has left its states, or has ended while another is next, releases its key.
func (m *model) passKey(t *modelTask) {
	if t.next && t.state.Ended() {
		t.next = false
	}
	if !t.holds {
		return
	}
	_, next := m.keyOf(t)
	if next != nil && t.state.Waiting() {
		t.state = task.Discarded
	}
	if !t.unique.States.Has(t.state) || next != nil && t.state.Ended() {
		t.holds = false
		if next != nil {
			next.holds, next.next = true, false
		}
	}
}

// unique returns a random unique key for a new task.
func (d *duel) unique() *task.Unique {
	u := &task.Unique{Key: d.pick("u", "v"), States: task.Unfinished, OnConflict: task.OnConflicts[d.rng.IntN(4)]}
	if d.rng.IntN(4) == 0 && (u.OnConflict == task.Keep || u.OnConflict == task.Reject) {
		u.States |= task.StatesOf(task.States[int(task.Succeeded)-1+d.rng.IntN(5)])
	}
	return u
}

// enter is the rule for a new task: it is created and replaces another, if any; or the holder of its unique key is kept
// (duplicate); or it is refused.
func (m *model) enter(t *modelTask) (outcome schema.FollowerState, other *modelTask) {
	if t.unique == nil {
		m.tasks = append(m.tasks, t)
		return schema.FollowerCreated, nil
	}
	holder, next := m.keyOf(t)
	if holder == nil {
		t.holds = true
		m.tasks = append(m.tasks, t)
		return schema.FollowerCreated, nil
	}
	old := next
	if holder.state.Waiting() {
		old = holder
	}
	switch mode := t.unique.OnConflict; {
	case mode == task.Reject:
		return schema.FollowerRefused, holder
	case mode == task.Keep, mode == task.Replace && old == nil, holder.state.Ended():
		return schema.FollowerDuplicate, holder
	}
	t.holds, t.next = old == holder, old != holder
	m.tasks = append(m.tasks, t)
	if old != nil {
		if old.state == task.Ready && t.state == task.Ready {
			t.place = old.place
		}
		old.state, old.holds, old.next = task.Discarded, false, false
		m.updateGroup(old)
	}
	return schema.FollowerCreated, old
}

// entered compares the answer to an enqueue with the expected outcome.
func (d *duel) entered(t *modelTask, outcome schema.FollowerState, other *modelTask, a engine.Accepted, err error) string {
	switch outcome {
	case schema.FollowerRefused:
		d.refused(err, task.ErrConflict, other)
		return "rejected by its unique key"
	case schema.FollowerDuplicate:
		if err != nil || !a.Duplicate || other.known() && a.ID != other.id || a.State != other.state {
			d.T.Fatalf("Enqueue = %+v (%v), the model keeps %+v", a, err, other)
		}
		return "duplicate of a unique key: " + t.unique.OnConflict.String()
	}
	if err != nil || a.Duplicate {
		d.T.Fatalf("Enqueue = %+v (%v), the model creates %+v", a, err, t)
	}
	t.id = a.ID
	delete(d.tokens, t.id) // of a task that the same request created before
	what := "enqueue"
	if t.unique != nil {
		what = "unique enqueue"
	}
	if other != nil {
		what += " that replaces"
	}
	if t.next {
		what += ", next"
	}
	return what
}

// known reports whether the task's id is known. That of a task created at a group's point is learnt after the step.
func (t *modelTask) known() bool { return t.id != (task.ID{}) }

// refused expects a refusal that names a task.
func (d *duel) refused(err, want error, names *modelTask) {
	if !errors.Is(err, want) || names.known() && !strings.Contains(err.Error(), names.id.String()) {
		d.T.Fatalf("got %v, want %v that names task %s", err, want, names.id)
	}
}
