package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// follow tracks tasks by the transitions of all rounds, and checks that each begins where the previous one ended.
func (w *World) follow(ts []Transition) {
	for i := range ts {
		t := &ts[i]
		at, known := w.Told[t.ID]
		switch left := t.From != nil && t.From.State == task.Claimed; {
		case t.From == nil && known, t.From != nil && at != t.From.State:
			w.T.Errorf("task %s: the transition begins at %+v, but the task was %s", t.ID, t.From, at)
		case left != (t.Outcome != task.OutcomeNone):
			w.T.Errorf("task %s: the transition from %s to %s ended the attempt with %q", t.ID, t.From.State, t.To.State, t.Outcome)
		}
		w.Told[t.ID] = t.To.State
	}
}

// dropForgotten must be called before a round is applied: it drops forgotten tasks that the round creates again, with
// an id derived from the request.
func (w *World) dropForgotten(ts []Transition) {
	for i := range ts {
		if id := ts[i].ID; ts[i].From == nil && w.Told[id].Ended() {
			if _, err := schema.ReadExec(w.Store, "default", id); err != nil {
				delete(w.Told, id)
			}
		}
	}
}

// checkTold checks that the rows agree with the transitions.
func (w *World) checkTold() (bad error) {
	lo, hi := schema.TableBounds("default", schema.TableExec)
	w.Store.Scan(lo, hi, func(k, v []byte) bool {
		x, err := schema.DecodeExec(v)
		if err == nil && w.Told[schema.IDAt(k)] != x.State {
			err = fmt.Errorf("task %s is %s, and the transitions say %s", schema.IDAt(k), x.State, w.Told[schema.IDAt(k)])
		}
		bad = err
		return bad == nil
	})
	return bad
}

// lastOf shows the last round's transitions of a task, one line each.
func (w *World) lastOf(id task.ID) (lines []string) {
	for i := range w.Last.Transitions {
		if t := &w.Last.Transitions[i]; t.ID == id {
			lines = append(lines, w.line(t))
		}
	}
	return lines
}

func (w *World) line(t *Transition) string {
	s := "new"
	if !t.Created() {
		s = t.From.State.String()
	}
	s += fmt.Sprintf(" -> %s, attempt %d", t.To.State, t.Attempt())
	if t.Claims() {
		s += fmt.Sprintf(", waited %v", t.Waited())
	}
	if t.Outcome != task.OutcomeNone {
		s += fmt.Sprintf(", %s after %v and %v", t.Outcome, t.Waited(), t.Ran(w.Now))
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
	w := NewWorld(t)
	a, err := w.Enqueue(task.Spec{Type: "job", Queue: "q", MaxAttempts: 2, Retry: &task.Retry{Initial: 10 * time.Second, Factor: 2,
		Max: time.Minute}})
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
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "q"}}, Worker: "w1", Lease: 30 * time.Second})
		return Hold{Namespace: "default", ID: got[0].ID, Token: got[0].Token}
	}
	expect("enqueue", "new -> ready, attempt 1")
	w.Now = w.Now.Add(3 * time.Second)
	h := claim()
	expect("claim", "ready -> claimed, attempt 1, waited 3s by w1")
	_, _ = Run(w, func(r *Round) (any, error) { return Extend(r, h, Extension{Lease: time.Minute}) })
	expect("extend")
	w.Now = w.Now.Add(2 * time.Second)
	_, _ = Run(w, func(r *Round) (Settled, error) {
		return Fail(r, h, FailRequest{Failure: schema.Failure{Type: "io", Message: "disk"}})
	})
	expect("fail", "claimed -> retrying, attempt 1, failed after 3s and 2s, io by w1")
	w.Pass(20 * time.Second)
	expect("due", "retrying -> ready, attempt 2")
	claim()
	w.Pass(31 * time.Second)
	if len(w.lastOf(a.ID)) != 1 || w.Last.Transitions[0].To.State != task.Dead {
		t.Errorf("a lost lease: got %q, want one transition to a dead letter", w.lastOf(a.ID))
	}
	_, _ = Run(w, func(r *Round) (any, error) { return nil, Retry(r, "default", a.ID) })
	expect("replay", "dead -> ready, attempt 3, replayed")
	h = claim()
	_, _ = Run(w, func(r *Round) (Settled, error) { return Release(r, h, time.Minute) })
	expect("snooze", "claimed -> scheduled, attempt 3, snoozed after 0s and 0s by w1")
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// Forgotten counts the rows that remain of forgotten tasks.
func (w *World) Forgotten() (n int) {
	schema.EachForgotten(w.Store, "default", func(task.ID, []byte) { n++ })
	return n
}
