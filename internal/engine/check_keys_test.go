package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/task"
)

// A queue is refused for shards that can't keep what the keys of its tasks promise: those that hold or wait for a
// unique key, and those whose idempotency key is remembered.
func TestCheckKeys(t *testing.T) {
	unique := func(key string) *task.Unique {
		return &task.Unique{Key: key, States: task.Unfinished, OnConflict: task.KeepLast}
	}
	for _, c := range []struct {
		name  string
		specs []task.Spec
		claim bool
		after time.Duration
		field string // "": the queue is accepted
	}{
		{"no keys", []task.Spec{{}}, false, 0, ""},
		{"one key each", []task.Spec{{Key: "a"}, {Unique: unique("b")}, {IdempotencyKey: "c"}}, false, 0, ""},
		{"keys in one slot", []task.Spec{{Key: "a", Unique: unique("{a}b"), IdempotencyKey: "a"}}, false, 0, ""},
		{"a holder", []task.Spec{{Key: "a", Unique: unique("b")}}, false, 0, "unique.key"},
		{"a task that waits behind the holder", []task.Spec{{Unique: unique("b")}, {Key: "a", Unique: unique("b")}}, true, 0, "unique.key"},
		{"an idempotency key", []task.Spec{{Key: "a", IdempotencyKey: "b"}}, false, 0, "idempotency_key"},
		{"an idempotency key of a task with a unique key", []task.Spec{{Unique: unique("a"), IdempotencyKey: "b"}}, false, 0,
			"idempotency_key"},
		{"one that is forgotten", []task.Spec{{Key: "a", IdempotencyKey: "b"}}, false, 25 * time.Hour, ""},
	} {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		for _, s := range c.specs {
			s.Type = "job"
			if _, err := w.Enqueue(s); err != nil {
				t.Fatal(err)
			}
			if c.claim {
				w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}})
			}
		}
		w.Pass(c.after)
		err := query.CheckKeys(w.Store, "default", "default")
		if (err != nil) != (c.field != "") || err != nil && (!errors.Is(err, task.ErrWrongState) ||
			!strings.Contains(err.Error(), c.field+": ")) {
			t.Errorf("%s: %v, want it refused for %q", c.name, err, c.field)
		}
		if err := query.CheckKeys(w.Store, "default", "other"); err != nil {
			t.Errorf("another queue: %v", err)
		}
	}
}
