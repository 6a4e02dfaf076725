package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/notify"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// rowsOf returns the rows of a namespace, including its deadlines but not the audit log.
func rowsOf(from store.Reader, ns string) (keys []string) {
	from.Scan([]byte{0}, []byte{0xff, 0xff}, func(k, v []byte) bool {
		d, isDeadline := schema.ParseDeadline(k, v)
		switch {
		case bytes.IndexByte(schema.Timelines[:], k[0]) >= 0 && isDeadline:
			if d.Namespace == ns && d.Kind != schema.OnAudit {
				keys = append(keys, fmt.Sprintf("%q", k))
			}
		case bytes.HasPrefix(k[1:], []byte(ns+"\x00")):
			keys = append(keys, fmt.Sprintf("%q", k))
		}
		return true
	})
	return keys
}

// eraseAll erases a namespace that was removed in a version, a few rows at a time.
func eraseAll(w *engine.World, ns string, removed uint64, few int) error {
	var behind []byte
	for {
		keys, next := query.Deadlines(w.Store, ns, behind, few)
		more, err := engine.Run(w, func(r *engine.Round) (bool, error) { return engine.Erase(r, ns, removed, keys, few) })
		if err != nil || !more && next == nil {
			return err
		}
		if next != nil {
			behind = next
		}
	}
}

// Whatever was done in a namespace, erasing it once it has no queues leaves nothing of it and removes nothing of
// another. Afterwards it behaves like a new one.
func TestErase(t *testing.T) {
	for seed := range uint64(4) {
		d := &duel{World: engine.NewWorld(t), queues: duelQueues, m: &model{rules: map[string]task.QueueConfig{},
			tokens: map[[2]string]*modelBucket{}, onces: map[[2]string]*modelOnce{}, broken: map[[2]string]*modelBreaker{},
			keys: map[string]modelClaim{}, now: engine.Dawn},
			rng: rand.New(rand.NewPCG(seed, 7)), tokens: map[task.ID][]task.Token{}}
		for _, q := range d.queues {
			d.rule(q, task.QueueConfig{Settings: task.DefaultSettings()})
		}
		d.Round(func(r *engine.Round) {
			engine.PutQueue(r, "other", "a", task.QueueConfig{Version: 1, Settings: task.DefaultSettings()})
			s := task.Spec{Type: "t", Queue: "a", IdempotencyKey: "k", IdempotencyTTL: time.Hour}
			s.Fill()
			if _, err := engine.Enqueue(r, &engine.NewTask{Spec: s, Namespace: "other", ID: d.NewID()}); err != nil {
				t.Fatal(err)
			}
			engine.PutShare(r, task.SpaceName{Namespace: "default"}, task.Share{Version: 1,
				Amounts: task.Amounts{Backlog: 1 << 40, Bytes: 1 << 40,
					Running: 1 << 40}})
		})
		for range 400 {
			d.step(d.verbs())
			if err := d.compare(); err != nil { // which gives the model the ids
				t.Fatal(err)
			}
		}
		if err := eraseAll(d.World, "default", 2, 7); !errors.Is(err, task.ErrWrongState) {
			t.Fatalf("erasing a namespace with queues: %v, want ErrWrongState", err)
		}
		d.endAll(t)
		others, busy := rowsOf(d.Store, "other"), rowsOf(d.Store, "default")
		if err := eraseAll(d.World, "default", 2, 7); err != nil {
			t.Fatal(err)
		}
		if left := rowsOf(d.Store, "default"); len(left) > 0 || len(busy) < 100 {
			t.Fatalf("seed %d: %d of %d rows are left: %.500s", seed, len(left), len(busy), left)
		}
		if now := rowsOf(d.Store, "other"); len(now) != len(others) {
			t.Errorf("seed %d: the other namespace has %d rows, want %d", seed, len(now), len(others))
		}
		d.Told = nil
		d.Round(func(r *engine.Round) {
			engine.PutQueue(r, "default", "a", task.QueueConfig{Version: 1, Settings: task.DefaultSettings()})
		})
		s := task.Spec{Type: "t", Queue: "a", IdempotencyKey: "k", IdempotencyTTL: time.Hour}
		s.Fill()
		a, err := d.Enqueue(s)
		if err != nil || a.Duplicate {
			t.Errorf("seed %d: the first task after erasing: %+v, %v", seed, a, err)
		}
		d.Pass(48 * time.Hour)
		for _, ns := range []string{"default", "other"} {
			if found := engine.CheckAll(d.Store, ns); len(found) > 0 {
				t.Errorf("seed %d: Check of namespace %s found %q", seed, ns, found)
			}
		}
	}
}

// A removal that reaches a shard late erases nothing of a namespace that was added again under the name, or kept, after it, whatever the
// shard got first: a queue or what its webhooks subscribe to. Nor does a late share of the earlier namespace count in it. The next removal
// erases everything.
func TestLateErasure(t *testing.T) {
	const first, since, share, next = 10, 20, 30, 40 // versions of the system shard
	for what, begin := range map[string]func(r *engine.Round){
		"a queue": func(r *engine.Round) {
			engine.Begin(r, "team", since)
			engine.PutQueue(r, "team", "a", task.QueueConfig{Version: 1, Settings: task.DefaultSettings()})
		},
		"subscriptions": func(r *engine.Round) { notify.PutWatch(r, "team", task.Watch{Version: since + 1, Since: since}) },
		"a share": func(r *engine.Round) {
			engine.PutShare(r, task.SpaceName{Namespace: "team"}, task.Share{Version: since + 1, Amounts: task.Amounts{Backlog: 1}})
		},
	} {
		w := engine.NewWorld(t)
		w.Round(func(r *engine.Round) {
			engine.PutShare(r, task.SpaceName{Namespace: "team"}, task.Share{Version: 5, Amounts: task.Amounts{Backlog: 1}})
		})
		if err := eraseAll(w, "team", first, 7); err != nil || len(rowsOf(w.Store, "team")) > 0 {
			t.Fatalf("%s: the first removal: %v, it leaves %q", what, err, rowsOf(w.Store, "team"))
		}
		w.Round(begin)
		if what == "a queue" {
			w.Round(func(r *engine.Round) { // late
				engine.PutShare(r, task.SpaceName{Namespace: "team"}, task.Share{Version: 5, Amounts: task.Amounts{Backlog: 0}})
				s := task.Spec{Type: "t", Queue: "a", IdempotencyKey: "k", IdempotencyTTL: time.Hour}
				s.Fill()
				id := w.NewID()
				_, err := engine.Enqueue(r, &engine.NewTask{Spec: s, Namespace: "team", ID: id})
				if err := errors.Join(err, engine.Cancel(r, "team", id), engine.DropQueue(r, "team", "a", math.MaxUint64)); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			})
		}
		has := rowsOf(w.Store, "team")
		for _, again := range []bool{false, true} {
			if again {
				w.BecomeLeader()
			}
			for _, removed := range []uint64{first, since - 1} {
				if err := eraseAll(w, "team", removed, 7); !errors.Is(err, task.ErrWrongState) {
					t.Errorf("%s: a late removal: %v, want ErrWrongState", what, err)
				}
				if now := rowsOf(w.Store, "team"); len(has) == 0 || !slices.Equal(now, has) {
					t.Errorf("%s: after a late removal there are %q, want %q", what, now, has)
				}
			}
		}
		w.Round(func(r *engine.Round) {
			engine.PutShare(r, task.SpaceName{Namespace: "team"}, task.Share{Version: share, Amounts: task.Unlimited})
			engine.Begin(r, "team", since)
		})
		if err := eraseAll(w, "team", next, 7); err != nil || len(rowsOf(w.Store, "team")) > 0 {
			t.Errorf("%s: the next removal: %v, it leaves %q", what, err, rowsOf(w.Store, "team"))
		}
	}
}

// endAll ends all tasks of the default namespace, and removes its queues.
func (d *duel) endAll(t *testing.T) {
	for range 5 { // the end of a task may start others
		var ids []task.ID
		lo, hi := schema.TableBounds("default", schema.TableExec)
		d.Store.Scan(lo, hi, func(k, _ []byte) bool {
			ids = append(ids, schema.IDAt(k))
			return true
		})
		for _, id := range ids {
			d.Round(func(r *engine.Round) {
				if x, err := r.Exec("default", id); err == nil && x.State.Ended() {
					_ = engine.Discard(r, "default", id, x.EndedAt)
				} else {
					_ = engine.Cancel(r, "default", id)
				}
			})
		}
	}
	for _, q := range d.queues {
		if _, err := engine.Run(d.World, func(r *engine.Round) (struct{}, error) {
			return struct{}{}, engine.DropQueue(r, "default", q, math.MaxUint64)
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Deadlines finds the deadlines of a namespace in all tables, page by page, each once.
func TestDeadlinesOfPages(t *testing.T) {
	w := engine.NewWorld(t)
	want := 0
	w.Round(func(r *engine.Round) {
		for i := range 40 {
			id := w.NewID()
			d := schema.Deadline{At: w.Now.Add(time.Hour), Kind: []schema.DeadlineKind{schema.OnForget, schema.OnLease, schema.OnDue,
				schema.OnLease}[i%4],
				Namespace: []string{"default", "default", "other", "other"}[i/10], Rest: id[:]}
			if d.Kind.Shared() {
				d.Shared = []task.ID{id}
			}
			r.Tx().Set(d.Key(), d.Value())
			if i < 20 {
				want++
			}
		}
	})
	for _, limit := range []int{1, 3, 10, 20, 100} {
		seen := map[string]bool{}
		var behind []byte
		for {
			keys, next := query.Deadlines(w.Store, "default", behind, limit)
			for _, k := range keys {
				if v, ok := w.Store.Get(k); !ok || schema.ReadDeadline(k, v).Namespace != "default" || seen[string(k)] {
					t.Fatalf("pages of %d: the row %x is of another namespace, or was listed twice", limit, k)
				}
				seen[string(k)] = true
			}
			if len(keys) > limit || next != nil && bytes.Compare(next, behind) <= 0 {
				t.Fatalf("a page of %d has %d deadlines and continues from %x after %x", limit, len(keys), next, behind)
			}
			if behind = next; behind == nil {
				break
			}
		}
		if len(seen) != want {
			t.Errorf("pages of %d list %d deadlines, want %d", limit, len(seen), want)
		}
	}
}
