package engine

import (
	"errors"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A call that ends a failed attempt can be repeated, whatever the handler asked for: it gets the first answer, and changes nothing.
func TestRepeatsOfFail(t *testing.T) {
	for _, action := range []FailAction{FailRetry, FailDead, FailDiscard, FailPoison} {
		w := NewWorld(t)
		_, holds := w.claimAll(1)
		fail := func(r *Round) (Settled, error) {
			return Fail(r, holds[0], FailRequest{Action: action, Failure: schema.Failure{Message: "no"}})
		}
		first := must(w, fail)
		w.Now++
		if again := must(w, fail); again != first || len(w.Last.Transitions) > 0 {
			t.Errorf("action %d was answered with %+v, then with %+v and %d transitions", action, first, again, len(w.Last.Transitions))
		}
	}
}

// A repeated claim says that it is one. It marks its tasks once, and writes nothing after.
func TestRepeatsOfClaims(t *testing.T) {
	w := NewWorld(t)
	w.enqueueOne()
	c := ClaimRequest{Namespace: "default", Queues: []Share{{Queue: "default"}}, Max: 1, MaxBytes: 1 << 20, ClaimKey: "k"}
	w.Round(func(*Round) {})
	nothing := w.Written
	for try := range 3 {
		w.Round(func(r *Round) {
			got, repeat := ClaimTasks(r, &c)
			if len(got) != 1 || repeat != (try > 0) || got[0].Exec.Claim.Repeated != (try > 0) {
				t.Fatalf("call %d claimed %+v, and is a repeat: %v", try, got, repeat)
			}
		})
		if writes := w.Written > nothing; writes != (try < 2) {
			t.Errorf("call %d wrote %d bytes, and a round without calls %d", try, w.Written, nothing)
		}
	}
}

// A place in a lane that names a task which is somewhere else is damage: the task is not claimed from there, least of all twice.
func TestClaimFromAWrongPlace(t *testing.T) {
	w := NewWorld(t)
	first, second := w.enqueueOne(), w.enqueueOne()
	claim := func() []Claimed { return w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}}) }
	if got := claim(); len(got) != 1 || got[0].ID != first {
		t.Fatalf("claimed %+v, want the first task", got)
	}
	x := schema.Must(schema.ReadExec(w.Store, "default", second))
	w.Round(func(r *Round) {
		r.tx.Set(schema.ReadyKey("default", "default", x.Lane(), x.Seq), schema.EncodeReady(first, x.ReadyAt))
	})
	w.BecomeLeader()
	if d := schema.Catch(func() { t.Errorf("claimed %+v from a place that names a claimed task", claim()) }); d == nil {
		t.Error("the place was not reported as damaged")
	}
}

// An order to cancel a task whose id belongs to another request changes nothing.
func TestCancelWithAForeignID(t *testing.T) {
	w := NewWorld(t)
	message := task.ID{6: 0x80, 8: 0x80, 15: 9}
	if _, err := w.Enqueue(task.Spec{Type: "job", RequestID: message}); err != nil {
		t.Fatal(err)
	}
	id := w.enqueueOne()
	if _, err := Run(w, func(r *Round) (struct{}, error) { return struct{}{}, CancelOnce(r, "default", id, message) }); !errors.Is(err,
		task.ErrConflict) {
		t.Errorf("the order returned %v, want a conflict", err)
	}
	if s := w.stateOf(id); s != task.Ready {
		t.Errorf("the task is %s", s)
	}
}

// A breaker's deadline that names no type is damage.
func TestUnreadableBreakerDeadline(t *testing.T) {
	w := NewWorld(t)
	w.Round(func(r *Round) {
		r.tx.Set(schema.DeadlineKey(w.Now, schema.OnBreaker, "default", []byte("queue")), nil)
	})
	w.BecomeLeader()
	if d := schema.Catch(func() { w.Round(Tick) }); d == nil {
		t.Error("the deadline was handled")
	}
}

// Every verb on a task that does not exist says so.
func TestVerbsOnMissingTasks(t *testing.T) {
	w := NewWorld(t)
	w.enqueueOne()
	id := w.NewID()
	hold := Hold{Namespace: "default", ID: id}
	for verb, call := range map[string]func(r *Round) error{
		"cancel":      func(r *Round) error { return Cancel(r, "default", id) },
		"cancel once": func(r *Round) error { return CancelOnce(r, "default", id, task.ID{15: 9}) },
		"retry":       func(r *Round) error { return Retry(r, "default", id) },
		"discard":     func(r *Round) error { return Discard(r, "default", id, w.Now) },
		"update":      func(r *Round) error { return Update(r, "default", id, Edit{Priority: task.High}) },
		"within":      func(r *Round) error { return TaskWithin(r, task.Scope{Queues: []string{"other"}}, "default", id) },
		"ack":         func(r *Round) error { _, err := Ack(r, hold, schema.Result{}); return err },
		"ack late":    func(r *Round) error { _, err := AckLate(r, hold, schema.Result{}); return err },
		"fail":        func(r *Round) error { _, err := Fail(r, hold, FailRequest{}); return err },
		"release":     func(r *Round) error { _, err := Release(r, hold, 0); return err },
		"give back":   func(r *Round) error { _, err := GiveBack(r, hold); return err },
		"extend":      func(r *Round) error { _, err := Extend(r, hold, Extension{}); return err },
	} {
		if _, err := Run(w, func(r *Round) (struct{}, error) { return struct{}{}, call(r) }); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("%s returned %v, want not found", verb, err)
		}
	}
}

// A claim that ends without a call of its holder is reported, so that the holder hears of it.
func TestLostClaimsAreReported(t *testing.T) {
	w := NewWorld(t)
	_, holds := w.claimAll(2)
	must(w, func(r *Round) (struct{}, error) { return struct{}{}, Cancel(r, "default", holds[0].ID) })
	if want := (Lost{ID: holds[0].ID, Token: holds[0].Token, Reason: task.StaleCancelled}); len(w.Last.Lost) != 1 ||
		w.Last.Lost[0] != want {
		t.Errorf("a cancelled task was reported as %+v, want %+v", w.Last.Lost, want)
	}
	w.Now = w.deadlines()[0].At
	w.Round(Tick)
	if want := (Lost{ID: holds[1].ID, Token: holds[1].Token, Reason: task.StaleExpired}); len(w.Last.Lost) != 1 || w.Last.Lost[0] != want {
		t.Errorf("a lost lease was reported as %+v, want %+v", w.Last.Lost, want)
	}
}
