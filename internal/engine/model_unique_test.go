package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// TestModelOfUniqueKeys is TestModel in a short queue without limits, where tasks of a key meet all the time.
func TestModelOfUniqueKeys(t *testing.T) {
	runModel(t, []string{"c"}, modelSteps, func(d *duel) []func() string {
		return []func() string{d.enqueueStep, d.enqueueStep, d.enqueueStep, d.claimStep, d.claimStep, d.settleStep, d.passStep, d.cancelStep,
			d.retryStep, d.leaderStep}
	})
}

// keyOf finds who holds the unique key of a task, and who is next.
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

// passKey is the rule of unique keys for a task that has moved: one that would wait again goes if another is next, and one that has
// left its states, or has ended while another is next, lets go of its key.
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

// unique is what a new task says of its key.
func (d *duel) unique() *task.Unique {
	u := &task.Unique{Key: d.pick("u", "v"), States: task.Unfinished, OnConflict: task.OnConflicts[d.rng.IntN(4)]}
	if d.rng.IntN(4) == 0 && (u.OnConflict == task.Keep || u.OnConflict == task.Reject) {
		u.States |= task.StatesOf(task.States[int(task.Succeeded)-1+d.rng.IntN(5)])
	}
	return u
}

// enter is the rule for a new task: it is there (born), in the place of another that it replaces, if any; or another that has its
// unique key is kept (duplicate), or makes it be refused.
func (m *model) enter(t *modelTask) (fate schema.FollowerState, other *modelTask) {
	if t.unique == nil {
		m.tasks = append(m.tasks, t)
		return schema.FollowerBorn, nil
	}
	holder, next := m.keyOf(t)
	if holder == nil {
		t.holds = true
		m.tasks = append(m.tasks, t)
		return schema.FollowerBorn, nil
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
		m.tell(old)
	}
	return schema.FollowerBorn, old
}

// entered holds the answer to an enqueue against what must have become of the task.
func (d *duel) entered(t *modelTask, fate schema.FollowerState, other *modelTask, a engine.Accepted, err error) string {
	switch fate {
	case schema.FollowerRefused:
		d.refused(err, task.ErrConflict, other)
		return "rejected by its unique key"
	case schema.FollowerDuplicate:
		if err != nil || !a.Duplicate || other.known() && a.ID != other.id || a.State != other.state {
			d.T.Fatalf("enqueue answered %+v (%v), the model keeps %+v", a, err, other)
		}
		return "duplicate of a unique key: " + t.unique.OnConflict.String()
	}
	if err != nil || a.Duplicate {
		d.T.Fatalf("enqueue answered %+v (%v), the model makes %+v", a, err, t)
	}
	t.id = a.ID
	delete(d.tokens, t.id) // of a task that the same request made before
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

// known says whether the task's id is known. That of a task born at a group's point is learnt when the step is over.
func (t *modelTask) known() bool { return t.id != (task.ID{}) }

// refused wants a refusal that names a task.
func (d *duel) refused(err, want error, names *modelTask) {
	if !errors.Is(err, want) || names.known() && !strings.Contains(err.Error(), names.id.String()) {
		d.T.Fatalf("refused with %v, want %v that names %s", err, want, names.id)
	}
}
