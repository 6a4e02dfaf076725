package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// follow keeps what the transitions of all rounds tell of tasks, and proves that each begins where the one before it ended.
func (w *world) follow(ts []Transition) {
	for i := range ts {
		t := &ts[i]
		at, known := w.told[t.ID]
		switch left := t.From != nil && t.From.State == task.Claimed; {
		case t.From == nil && known, t.From != nil && at != t.From.State:
			w.t.Errorf("task %s: a transition from %+v, and it was %s", t.ID, t.From, at)
		case left != (t.Outcome != task.OutcomeNone):
			w.t.Errorf("task %s: from %s to %s its attempt ended with %q", t.ID, t.From.State, t.To.State, t.Outcome)
		}
		w.told[t.ID] = t.To.State
	}
}

// dropForgotten, before a round is applied, drops what was told of tasks that are gone and that the round makes again: an id is derived from
// its request.
func (w *world) dropForgotten(ts []Transition) {
	for i := range ts {
		if id := ts[i].ID; ts[i].From == nil && w.told[id].Ended() {
			if _, err := schema.ReadExec(w.store, "default", id); err != nil {
				delete(w.told, id)
			}
		}
	}
}

// checkTold proves that the rows are where the transitions led.
func (w *world) checkTold() (bad error) {
	lo, hi := schema.TableBounds("default", schema.TableExec)
	w.store.Scan(lo, hi, func(k, v []byte) bool {
		x, err := schema.DecodeExec(v)
		if err == nil && w.told[schema.IDAt(k)] != x.State {
			err = fmt.Errorf("task %s is %s, and the transitions say %s", schema.IDAt(k), x.State, w.told[schema.IDAt(k)])
		}
		bad = err
		return bad == nil
	})
	return bad
}

// lastOf is what the last round's transitions say of a task, one line each.
func (w *world) lastOf(id task.ID) (lines []string) {
	for i := range w.last.Transitions {
		if t := &w.last.Transitions[i]; t.ID == id {
			lines = append(lines, w.line(t))
		}
	}
	return lines
}

func (w *world) line(t *Transition) string {
	s := "new"
	if !t.Born() {
		s = t.From.State.String()
	}
	s += fmt.Sprintf(" -> %s, attempt %d", t.To.State, t.Attempt())
	if t.Claims() {
		s += fmt.Sprintf(", waited %v", t.Waited())
	}
	if t.Outcome != task.OutcomeNone {
		s += fmt.Sprintf(", %s after %v and %v", t.Outcome, t.Waited(), t.Ran(w.now))
	}
	if t.Failure.Type != "" {
		s += fmt.Sprintf(", %s", t.Failure.Type)
	}
	if t.Worker() != "" {
		s += " by " + t.Worker()
	}
	if t.Replays() {
		s += ", replayed"
	}
	return s
}

func TestTransitions(t *testing.T) {
	w := newWorld(t)
	a, err := w.enqueue(task.Spec{Type: "job", Queue: "q", MaxAttempts: 2, Retry: &task.Retry{Initial: 10 * time.Second, Factor: 2, Max: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := w.lastOf(a.ID); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	claim := func() Hold {
		got := w.claim(ClaimRequest{Queues: []Share{{Queue: "q"}}, Worker: "w1", Lease: 30 * time.Second})
		return Hold{Namespace: "default", ID: got[0].ID, Token: got[0].Token}
	}
	expect("enqueue", "new -> ready, attempt 1")
	w.now = w.now.Add(3 * time.Second)
	h := claim()
	expect("claim", "ready -> claimed, attempt 1, waited 3s by w1")
	_, _ = run(w, func(r *Round) (any, error) { return Extend(r, h, Extension{Lease: time.Minute}) })
	expect("extend")
	w.now = w.now.Add(2 * time.Second)
	_, _ = run(w, func(r *Round) (Settled, error) {
		return Fail(r, h, FailRequest{Failure: schema.Failure{Type: "io", Message: "disk"}})
	})
	expect("fail", "claimed -> retrying, attempt 1, failed after 3s and 2s, io by w1")
	w.pass(20 * time.Second)
	expect("due", "retrying -> ready, attempt 2")
	claim()
	w.pass(31 * time.Second)
	if len(w.lastOf(a.ID)) != 1 || w.last.Transitions[0].To.State != task.Dead {
		t.Errorf("a lost lease: got %q, want a dead letter", w.lastOf(a.ID))
	}
	_, _ = run(w, func(r *Round) (any, error) { return nil, Retry(r, "default", a.ID, 0) })
	expect("replay", "dead -> ready, attempt 3, replayed")
	h = claim()
	_, _ = run(w, func(r *Round) (Settled, error) { return Release(r, h, time.Minute) })
	expect("snooze", "claimed -> scheduled, attempt 3, snoozed after 0s and 0s by w1")
	if err := w.check(); err != nil {
		t.Error(err)
	}
}
