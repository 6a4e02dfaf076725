package engine

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A task is forgotten at the end of the second in which its retention ends, or immediately if it has none. It leaves a
// row only if its request may still be repeated then.
func TestForgetLeavesARow(t *testing.T) {
	for _, c := range []struct {
		at         time.Duration // within a second
		keep, kept time.Duration
		want       int // rows
	}{
		{0, 0, 0, 1},
		{300 * time.Millisecond, 0, 0, 1},
		{0, time.Microsecond, time.Second, 1},
		{300 * time.Millisecond, time.Second, 1700 * time.Millisecond, 1},
		{0, time.Second, time.Second, 1},
		{0, time.Second + time.Microsecond, 2 * time.Second, 1},
		{0, task.RequestWindow - time.Second, task.RequestWindow - time.Second, 1},
		{0, task.RequestWindow - time.Microsecond, task.RequestWindow, 0},
		{0, task.RequestWindow, task.RequestWindow, 0},
		{0, 24 * time.Hour, 24 * time.Hour, 0},
	} {
		w := NewWorld(t)
		w.Now = w.Now.Add(c.at)
		a, err := w.Enqueue(task.Spec{Type: "job", Retention: &c.keep})
		if err != nil {
			t.Fatal(err)
		}
		w.Round(func(r *Round) { err = Cancel(r, "default", a.ID) })
		if err != nil {
			t.Fatal(err)
		}
		if ended := w.Now; c.kept > 0 {
			w.Now = ended.Add(c.kept - time.Microsecond)
			w.Round(Tick)
			w.stateOf(a.ID)
			w.Now = ended.Add(c.kept)
		}
		w.Round(Tick)
		if _, err := schema.ReadExec(w.Store, "default", a.ID); err == nil {
			t.Errorf("kept for %s: the task was not forgotten", c.keep)
		}
		if n := w.Forgotten(); n != c.want {
			t.Errorf("kept for %s: the task left %d rows, want %d", c.keep, n, c.want)
		}
	}
}

// A bounded number of rows of forgotten tasks is deleted per round, and an expired row has no effect while it waits for that.
func TestForgottenRowsEnd(t *testing.T) {
	const over = 500 // the limit of one round
	w := NewWorld(t)
	none := time.Duration(0)
	specs := map[task.ID]task.Spec{}
	for i := range tickLimit + over {
		s := task.Spec{Type: "job", Retention: &none, RequestID: task.NewID(1, int64(w.Now)/1000, uint64(i))}
		a, err := w.Enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		specs[a.ID] = s
		w.Round(func(r *Round) { err = Cancel(r, "default", a.ID) })
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Pass(0)
	if n := w.Forgotten(); n != len(specs) {
		t.Fatalf("%d tasks were forgotten, but %d left a row", len(specs), n)
	}
	w.Now = w.Now.Add(task.RequestWindow)
	w.Round(Tick)
	if n := w.Forgotten(); n != over {
		t.Fatalf("%d rows are left after a round, want %d", n, over)
	}
	var late task.ID
	schema.EachForgotten(w.Store, "default", func(id task.ID, _ []byte) { late = id })
	for _, duplicate := range []bool{false, true} {
		if a, err := w.Enqueue(specs[late]); err != nil || a.ID != late || a.State != task.Ready || a.Duplicate != duplicate {
			t.Errorf("the late repeat of a request got %+v (%v), want duplicate %t", a, err, duplicate)
		}
		w.Round(Tick)
	}
	if n := w.Forgotten(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if found := CheckAll(w.Store, "default"); len(found) > 0 {
		t.Errorf("Check found %q", found)
	}
}

// The row of a forgotten task lasts for as long as its own request may be repeated, even if rows of an earlier task with its id, and of its
// neighbours, expire in the same second.
func TestForgottenTwice(t *testing.T) {
	w, none := NewWorld(t), time.Duration(0)
	w.Now = w.Now.Add(300 * time.Millisecond)
	began := int64(w.Now) / 1000
	enter := func(requests ...uint64) {
		t.Helper()
		for _, n := range requests {
			a, err := w.Enqueue(task.Spec{Type: "job", Retention: &none, RequestID: task.NewID(1, began, n)})
			if err != nil || a.Duplicate {
				t.Fatalf("request %d got %+v (%v), want a new task", n, a, err)
			}
			w.settle(a.ID, true, nil)
			w.Pass(0)
		}
	}
	left := func(want int) {
		t.Helper()
		if n := w.Forgotten(); n != want {
			t.Errorf("%d rows are left, want %d", n, want)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	}
	enter(6, 7, 8)
	left(3)
	w.Pass(task.RequestWindow)
	enter(7)
	left(3)
	w.Pass(time.Second)
	left(1)
	w.Pass(task.RequestWindow - time.Second)
	left(1)
	w.Pass(time.Second)
	left(0)
}

// A task whose request must be remembered but which has no envelope is damage, and is not forgotten.
func TestForgetFindsDamage(t *testing.T) {
	w, none := NewWorld(t), time.Duration(0)
	a, err := w.Enqueue(task.Spec{Type: "job", Retention: &none})
	if err != nil {
		t.Fatal(err)
	}
	w.settle(a.ID, true, nil)
	w.Round(func(r *Round) { r.tx.Delete(schema.IDKey("default", schema.TableEnvelope, a.ID)) })
	defer func() {
		if _, damaged := recover().(*schema.DamageError); !damaged {
			t.Error("the damaged task was forgotten")
		}
	}()
	w.Round(Tick)
}

// Rows to delete are grouped into runs, which end where a row that stays is between them.
func TestRuns(t *testing.T) {
	var s runs[int]
	s.add(1, true)
	s.add(2, false)
	s.ended = true
	s.add(3, false)
	s.add(4, false)
	s.add(5, true)
	s.add(6, false)
	if got := fmt.Sprint(s.all); got != "[[1 2] [3 4] [5 6]]" {
		t.Errorf("the runs are %s, want [[1 2] [3 4] [5 6]]", got)
	}
}

// A repeat is answered with the task of the first call: in its current state, or in its end state if it is forgotten.
func TestRepeatIsAnsweredLikeTheFirst(t *testing.T) {
	none, hour := time.Duration(0), time.Hour
	for name, s := range map[string]task.Spec{
		"UUIDv7":                       {RequestID: task.NewID(1, int64(Dawn)/1000, 7), Retention: &none},
		"UUIDv4":                       {RequestID: task.ID{15: 7}, Retention: &none},
		"idempotency key":              {IdempotencyKey: "k", Retention: &none},
		"idempotency key, kept longer": {IdempotencyKey: "k", Retention: &hour},
	} {
		w := NewWorld(t)
		s.Type = "job"
		first, err := w.Enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []task.State{task.Ready, task.Cancelled} {
			if state == task.Cancelled {
				w.Round(func(r *Round) { err = Cancel(r, "default", first.ID) })
			}
			w.Pass(max(*s.Retention, time.Minute))
			want := Accepted{ID: first.ID, State: state, CreatedAt: first.CreatedAt, Duplicate: true}
			if again, err2 := w.Enqueue(s); err != nil || err2 != nil || again != want {
				t.Errorf("%s: a repeat got %+v (%v, %v), want %+v", name, again, err, err2, want)
			}
		}
	}
}

// Forgetting leaves the same rows whether they are deleted as ranges or one by one, and none of a forgotten task.
func TestForgottenAsRanges(t *testing.T) {
	defer func(was int) { store.RangeFrom = was }(store.RangeFrom)
	for seed := range uint64(20) {
		store.RangeFrom = math.MaxInt
		want := forgetSome(t, seed)
		for _, from := range []int{1, 2, 3, 8} {
			if store.RangeFrom = from; !slices.Equal(forgetSome(t, seed), want) {
				t.Errorf("seed %d: with range deletes from %d rows on, other rows are left", seed, from)
			}
		}
	}
}

// forgetSome takes tasks of all kinds through their lives, some of them in the same second, ends most of their
// retentions, and returns the remaining rows.
func forgetSome(t *testing.T, seed uint64) (rows []string) {
	w, rng := NewWorld(t), rand.New(rand.NewPCG(seed, 0))
	var ids []task.ID
	enter := func() {
		keep := []time.Duration{11 * time.Minute, 11 * time.Minute, 11*time.Minute + 300*time.Millisecond,
			13 * time.Minute, 30 * time.Minute, 2 * time.Second}[rng.IntN(6)]
		s := task.Spec{Type: "job", Queue: []string{"a", "b"}[rng.IntN(2)], Retention: &keep, MaxAttempts: 5,
			Retry: &task.Retry{Initial: time.Millisecond, Max: time.Millisecond, Factor: 1}}
		switch n := len(ids); rng.IntN(6) {
		case 0:
			s.IdempotencyKey = fmt.Sprint(n)
		case 1:
			s.Unique = &task.Unique{Key: fmt.Sprint(n), States: task.Unfinished | task.StatesOf(task.Succeeded)}
		case 2:
			s.Then = []task.Spec{{Type: "next", Queue: "a", Retention: &keep}}
			s.Then[0].Fill()
		}
		a, err := w.Enqueue(s)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	end := func(c Claimed) {
		h := Hold{Namespace: "default", ID: c.ID, Token: c.Token}
		if rng.IntN(3) == 0 {
			b := []byte("half")
			must(w, func(r *Round) (store.Time, error) { return Extend(r, h, Extension{Checkpoint: &b}) })
		}
		switch rng.IntN(5) {
		case 0:
			must(w, func(r *Round) (Settled, error) { return Fail(r, h, FailRequest{}) })
		case 1:
			must(w, func(r *Round) (Settled, error) { return Fail(r, h, FailRequest{Action: FailDead}) })
			if rng.IntN(2) == 0 { // so that it may end twice in a second
				must(w, func(r *Round) (struct{}, error) { return struct{}{}, Retry(r, "default", c.ID) })
			}
		case 2:
			must(w, func(r *Round) (Settled, error) { return Ack(r, h, schema.Result{Data: []byte("1")}) })
		default:
			must(w, func(r *Round) (Settled, error) { return Ack(r, h, schema.Result{}) })
		}
	}
	for step := range 50 {
		for range rng.IntN(5) * max(1-step/30, 0) {
			enter()
		}
		for _, c := range w.Claim(ClaimRequest{Queues: []Share{{Queue: "a"}, {Queue: "b"}}, Max: rng.IntN(6)}) {
			end(c)
		}
		w.Pass(time.Duration(rng.IntN(150)) * time.Millisecond)
	}
	for range 12 {
		if d := time.Duration(60+rng.IntN(40)) * time.Second; rng.IntN(2) == 0 {
			w.Pass(d)
		} else { // much is due at once
			for w.Now = w.Now.Add(d); w.Leader.NextDeadline() <= w.Now; {
				w.Round(Tick)
			}
		}
		for _, v := range query.ToArchive(w.Store, "default", math.MaxInt) {
			w.Round(func(r *Round) { ForgetArchived(r, "default", v.ID, v.Exec.EndedAt) })
		}
	}
	if err := w.Check(); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	gone := slices.DeleteFunc(ids, func(id task.ID) bool { _, err := schema.ReadExec(w.Store, "default", id); return err == nil })
	if len(gone) < len(ids)/3 {
		t.Fatalf("seed %d: only %d tasks of %d were forgotten", seed, len(gone), len(ids))
	}
	w.Store.Scan(nil, []byte{0xff}, func(k, v []byte) bool {
		rows = append(rows, fmt.Sprintf("%q %x", k, v))
		for _, id := range gone {
			if bytes.Contains(k, id[:]) && k[0] != schema.TableRequest {
				t.Errorf("seed %d: task %s was forgotten, but row %q is left", seed, id, k)
			}
		}
		return true
	})
	return rows
}
