package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// keyed enqueues a task with an idempotency key of a TTL, and reports whether the task is new.
func (w *World) keyed(key string, lasts time.Duration) bool {
	w.T.Helper()
	return w.keyedTask(task.Spec{IdempotencyKey: key, IdempotencyTTL: lasts})
}

func (w *World) keyedTask(s task.Spec) bool {
	w.T.Helper()
	s.Type = "job"
	a, err := w.Enqueue(s)
	if err != nil {
		w.T.Fatal(err)
	}
	return !a.Duplicate
}

// keyRows returns the number of keys that the shard remembers.
func (w *World) keyRows() (n int) {
	lo, hi := schema.TableBounds("default", schema.TableKey)
	w.Store.Scan(lo, hi, func(_, _ []byte) bool { n++; return true })
	return n
}

// Keys that are renewed while their rows still exist outlast their first deadlines, whatever else is renewed meanwhile.
func TestRenewedKeys(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	for name, anew := range map[string]func(w *World){
		"one that ends later first": func(w *World) {
			w.Now = w.Now.Add(1500 * ms)
			w.keyed("late", time.Hour)
			w.keyed("early", time.Hour)
		},
		"one that ends earlier first": func(w *World) {
			w.keyed("late", time.Hour) // a repeat
			w.Now = w.Now.Add(1500 * ms)
			w.keyed("early", time.Hour)
			w.keyed("late", time.Hour)
		},
		"each as soon as it has ended": func(w *World) {
			w.Now = w.Now.Add(1050 * ms)
			w.keyed("early", time.Hour)
			w.Now = w.Now.Add(60 * ms)
			w.keyed("late", time.Hour)
		},
	} {
		w := NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		w.Now = w.Now.Add(2 * second) // nothing that this leader reads is from an earlier one
		w.keyed("early", 100*ms)
		w.keyed("late", 1100*ms)
		anew(w)
		w.Now = w.Now.Add(10 * second)
		w.Round(Tick)
		for _, key := range []string{"early", "late"} {
			if w.keyed(key, time.Hour) {
				t.Errorf("%s: key %q was forgotten too early", name, key)
			}
		}
		w.Pass(2 * time.Hour)
		if n := w.keyRows(); n != 0 {
			t.Errorf("%s: %d key rows are left", name, n)
		}
	}
}

// Keys of a round share rows for their deadlines, and a bounded number expires per round.
func TestManyKeysEnd(t *testing.T) {
	const over = 300
	w := NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	w.Round(func(r *Round) {
		for i := range tickLimit + over {
			s := task.Spec{Type: "job", IdempotencyKey: fmt.Sprint(i), IdempotencyTTL: time.Minute}
			s.Fill()
			if _, err := Enqueue(r, &NewTask{Spec: s, Namespace: "default", ID: w.NewID(), Fresh: true}); err != nil {
				t.Fatal(err)
			}
		}
	})
	rows := 0
	for _, d := range w.deadlines() {
		if rows++; len(d.Keys) == 0 || len(d.Keys) > deadline.MaxShared {
			t.Errorf("a deadline row has %d keys", len(d.Keys))
		}
	}
	if want := (tickLimit + over + deadline.MaxShared - 1) / deadline.MaxShared; rows != want {
		t.Errorf("got %d deadline rows, want %d", rows, want)
	}
	w.Now = w.Now.Add(time.Minute)
	w.Round(Tick)
	if n := w.keyRows(); n != over {
		t.Errorf("%d keys are left after a round, want %d", n, over)
	}
	if last := fmt.Sprint(tickLimit + over - 1); !w.keyed(last, time.Hour) {
		t.Error("an expired key still found its task before its row was deleted")
	} else if w.Round(Tick); w.keyed(last, time.Hour) {
		t.Error("a key that was set again before the deletion was forgotten")
	}
	if n := w.keyRows(); n != 1 {
		t.Errorf("%d keys are left, want only the one that was set again", n)
	}
}

// An older idempotency key makes a repeat only of a task that has the same key, as long as that is known.
func TestOlderKeys(t *testing.T) {
	w := NewWorld(t)
	settings := task.DefaultSettings()
	settings.Retention.Succeeded = time.Second
	w.PutQueue("default", settings, false)
	enqueue := func(key, idempotency, older string, want bool) {
		t.Helper()
		s := task.Spec{Key: key, IdempotencyKey: idempotency, OlderKey: older, IdempotencyTTL: time.Minute}
		if got := w.keyedTask(s); got != want {
			t.Errorf("key %q, idempotency key %q or %q: it is new: %v, want %v", key, idempotency, older, got, want)
		}
	}
	enqueue("a", "older", "", true)
	enqueue("a", "newer", "older", false)
	enqueue("b", "newer", "older", true)
	enqueue("a", "newest", "unused", true)
	enqueue("b", "newer", "older", false)
	enqueue("b", "older", "", false)
	for _, c := range w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 10}) {
		w.ack(Hold{Namespace: "default", ID: c.ID, Token: c.Token})
	}
	enqueue("a", "later", "older", false)
	w.Pass(2 * time.Second) // the tasks are forgotten, and their idempotency keys are not
	enqueue("a", "older", "", false)
	enqueue("a", "later", "older", true)
}
