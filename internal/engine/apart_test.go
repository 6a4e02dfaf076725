package engine

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// apart returns the rows that are set apart.
func (w *World) apart() (all []schema.Apart) {
	lo, hi := schema.TableBounds("default", schema.TableApart)
	w.Store.Scan(lo, hi, func(_, row []byte) bool {
		all = append(all, schema.Must(schema.DecodeApart(row)))
		return true
	})
	return all
}

// mustSetApart checks what the last round has set apart, in the table and for the log, and that its row is gone.
func (w *World) mustSetApart(when string, key, value []byte) {
	w.T.Helper()
	want := schema.Apart{Key: key, Value: value, Reason: "on purpose", At: w.Now}
	all := w.apart()
	if len(all) == 0 || !reflect.DeepEqual(all[len(all)-1], want) {
		w.T.Errorf("%s: the table has %+v, want at its end %+v", when, all, want)
	}
	want.Namespace, want.Kept = "default", true
	if !reflect.DeepEqual(w.Last.Apart, []schema.Apart{want}) {
		w.T.Errorf("%s: the round reports %+v, want %+v", when, w.Last.Apart, want)
	}
}

// A row is set apart with its key, its value and the reason. One that is gone by now is not, and one without a
// namespace is shown in the default one.
func TestRowsAreSetApart(t *testing.T) {
	w := NewWorld(t)
	request := w.NewID()
	message, nobodys := schema.IDKey("default", schema.TableOutbox, request), schema.IDKey("", schema.TableCounts, request)
	queue := schema.QueueKey("default", schema.TableCounts, "q")
	for _, c := range []struct {
		key  []byte
		call func(r *Round)
	}{
		{message, func(r *Round) { SetMessageApart(r, "default", request, "on purpose") }},
		{queue, func(r *Round) { SetRowApart(r, queue, "on purpose") }},
		{nobodys, func(r *Round) { SetRowApart(r, nobodys, "on purpose") }},
	} {
		w.Round(func(r *Round) { r.tx.Set(c.key, []byte("what is this")) })
		w.Now++
		w.Round(c.call)
		w.mustSetApart(string(c.key), c.key, []byte("what is this"))
		if _, there := w.Store.Get(c.key); there {
			t.Errorf("the row %q is still there", c.key)
		}
		before := len(w.apart())
		if w.Round(c.call); len(w.apart()) != before || len(w.Last.Apart) > 0 {
			t.Errorf("the row %q, which is gone, was set apart again", c.key)
		}
	}
}

// The rows set apart are bounded in number and in bytes. A row beyond that is removed, and only reported.
func TestRowsSetApartAreBounded(t *testing.T) {
	for what, c := range map[string]struct {
		rows, size int
		kept       bool
	}{
		"one more row":        {rows: maxApart - 1, kept: true},
		"too many rows":       {rows: maxApart},
		"as many bytes":       {rows: 2, size: maxApartBytes / 4, kept: true},
		"too many bytes":      {rows: 4, size: maxApartBytes / 4},
		"a row that is large": {rows: 0, size: maxApartBytes},
	} {
		w := NewWorld(t)
		key := schema.QueueKey("default", schema.TableCounts, "q")
		w.Round(func(r *Round) {
			for i := range c.rows {
				r.tx.Set(schema.ApartKey("default", uint64(i)), make([]byte, c.size))
			}
			r.tx.Set(key, make([]byte, c.size))
		})
		w.Round(func(r *Round) { SetRowApart(r, key, "on purpose") })
		_, there := w.Store.Get(key)
		if there || len(w.Last.Apart) != 1 || w.Last.Apart[0].Kept != c.kept ||
			schema.CountApart(w.Store, 0)["default"] != int64(c.rows)+int64(len(w.kept())) {
			t.Errorf("%s: the row is there: %v; reported: %d, kept %v, want %v", what, there, len(w.Last.Apart), w.Last.Apart[0].Kept,
				c.kept)
		}
	}
}

// kept returns what the last round has set apart and kept.
func (w *World) kept() []schema.Apart {
	return slices.DeleteFunc(slices.Clone(w.Last.Apart), func(a schema.Apart) bool { return !a.Kept })
}

// Of a deadline that tasks share, only the given ones are set apart.
func TestPartOfADeadlineIsSetApart(t *testing.T) {
	w := NewWorld(t)
	ids, _ := w.claimAll(3)
	slices.SortFunc(ids, task.ID.Compare)
	w.mustHaveRows("claimed", schema.OnLease, w.sharedRows(schema.OnLease)...)
	all := w.deadlines()[0]
	if len(all.Shared) != 3 {
		t.Fatalf("the deadline is %+v, want one of three leases", all)
	}
	for len(all.Shared) > 0 {
		one, rest := all.First()
		w.Now++
		w.Round(func(r *Round) { SetDeadlineApart(r, one, "on purpose") })
		w.mustSetApart("a lease", one.Key(), one.Value())
		var left [][]task.ID
		if len(rest.Shared) > 0 {
			left = [][]task.ID{rest.Shared}
		}
		if got := w.sharedRows(schema.OnLease); !reflect.DeepEqual(got, left) {
			t.Errorf("the rows name %v, want %v", got, left)
		}
		all = rest
	}
	if w.Round(func(r *Round) { SetDeadlineApart(r, all, "on purpose") }); len(w.Last.Apart) > 0 {
		t.Errorf("a deadline that is gone was set apart: %+v", w.Last.Apart)
	}
}

// Handled one by one, the tasks of a shared deadline are announced before their turn, and the others wait for theirs.
func TestDeadlinesOneByOne(t *testing.T) {
	w := NewWorld(t)
	ids, _ := w.claimAll(3)
	tickOne := func() (begun []task.ID) {
		w.Round(func(r *Round) {
			TickOne(r, func(d schema.Deadline) {
				if d.Kind != schema.OnLease {
					t.Errorf("the deadline is %+v, want a lease's", d)
				}
				begun = append(begun, d.Shared...)
			})
		})
		return begun
	}
	if begun := tickOne(); begun != nil {
		t.Errorf("%v was begun before it is due", begun)
	}
	w.Now = w.deadlines()[0].At
	var done []task.ID
	for n := range ids {
		if next := w.Leader.NextDeadline(); next > w.Now {
			t.Errorf("after %d leases the next deadline is at %d, want %d", n, next, w.Now)
		}
		begun := tickOne()
		if len(begun) != 1 || w.stateOf(begun[0]) != task.Ready {
			t.Fatalf("after %v begun are %v, want one that is ready", done, begun)
		}
		done = append(done, begun...)
		for _, id := range ids {
			if waits := w.stateOf(id) == task.Claimed; waits == slices.Contains(done, id) {
				t.Errorf("after %v the lease of %s has ended: %v", done, id, !waits)
			}
		}
	}
	if begun := tickOne(); begun != nil || w.Leader.NextDeadline() <= w.Now {
		t.Errorf("after all leases %v is begun, and the next deadline is at %d", begun, w.Leader.NextDeadline())
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// A task that can't be claimed leaves its lane: it is discarded if its state can be read, and else stays where it is.
// The others are claimed.
func TestPlaceIsSetApart(t *testing.T) {
	for _, what := range []string{"readable", "spoilt", "gone", "claimed"} {
		w := NewWorld(t)
		var ids []task.ID
		for range 3 {
			ids = append(ids, w.enqueueOne())
			w.Pass(time.Millisecond)
		}
		x, err := schema.ReadExec(w.Store, "default", ids[1])
		if err != nil {
			t.Fatal(err)
		}
		key := schema.ReadyKey("default", x.Queue, x.Lane(), x.Seq)
		row, _ := w.Store.Get(key)
		row = bytes.Clone(row)
		w.Round(func(r *Round) {
			switch exec := schema.IDKey("default", schema.TableExec, ids[1]); what {
			case "spoilt":
				r.tx.Set(exec, []byte{9})
			case "gone":
				r.tx.Delete(exec)
			}
		})
		w.BecomeLeader()
		if what == "claimed" { // another task's place, which is left already
			w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 3})
		}
		w.Round(func(r *Round) { SetRowApart(r, key, "on purpose") })
		if what == "claimed" {
			if len(w.Last.Apart) > 0 || w.stateOf(ids[1]) != task.Claimed {
				t.Errorf("the place of a claimed task was set apart: %+v", w.Last.Apart)
			}
			continue
		}
		w.mustSetApart(what, key, row)
		if what == "readable" {
			if x, err = schema.ReadExec(w.Store, "default", ids[1]); err != nil || x.State != task.Discarded ||
				x.Reason != task.ReasonUnreadable {
				t.Errorf("the task is %+v, %v, want that it is discarded", x, err)
			}
		}
		if n := w.ReadyIn("default"); n != 2 {
			t.Errorf("%s: the queue counts %d tasks, want 2", what, n)
		}
		got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}, Max: 3})
		if len(got) != 2 || got[0].ID != ids[0] || got[1].ID != ids[2] {
			t.Errorf("%s: claimed %v, want the two others", what, got)
		}
		if w.Round(func(r *Round) { SetRowApart(r, key, "on purpose") }); len(w.Last.Apart) > 0 {
			t.Errorf("%s: the place was set apart again: %+v", what, w.Last.Apart)
		}
	}
}
