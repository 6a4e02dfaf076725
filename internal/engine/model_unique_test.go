package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// TestModelOfUniqueKeys is TestModel in a short queue without limits, where tasks of a key meet all the time.
func TestModelOfUniqueKeys(t *testing.T) {
	runModel(t, []string{"c"}, func(d *duel) []func() string {
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

// meet says what must have become of a new task with a unique key.
func (d *duel) meet(t *modelTask, a Accepted, err error) string {
	holder, next := d.m.keyOf(t)
	if holder == nil {
		t.holds = true
		return d.made(t, nil, a, err)
	}
	waits := next
	if holder.state.Waiting() {
		waits = holder
	}
	switch mode := t.unique.OnConflict; {
	case mode == task.Reject:
		d.refused(err, task.ErrConflict, holder)
		return "rejected by its unique key"
	case mode == task.Keep, mode == task.Replace && waits == nil, holder.state.Ended():
		if err != nil || !a.Duplicate || a.ID != holder.id || a.State != holder.state {
			d.t.Fatalf("enqueue answered %+v (%v), the model keeps %+v", a, err, holder)
		}
		return "duplicate of a unique key: " + mode.String()
	}
	t.holds, t.next = waits == holder, waits != holder
	return d.made(t, waits, a, err)
}

// made adds a new task that another makes room for, which gives it its place in line.
func (d *duel) made(t, old *modelTask, a Accepted, err error) string {
	if err != nil || a.Duplicate {
		d.t.Fatalf("enqueue answered %+v (%v), the model makes %+v", a, err, t)
	}
	what := "unique enqueue"
	if old != nil {
		if old.state == task.Ready && t.state == task.Ready {
			t.place = old.place
		}
		old.state, old.holds, old.next = task.Discarded, false, false
		what = "unique enqueue that replaces"
	}
	if t.next {
		what += ", next"
	}
	d.m.tasks = append(d.m.tasks, t)
	return what
}

// refused wants a refusal that names a task.
func (d *duel) refused(err, want error, names *modelTask) {
	if !errors.Is(err, want) || !strings.Contains(err.Error(), names.id.String()) {
		d.t.Fatalf("refused with %v, want %v that names %s", err, want, names.id)
	}
}
