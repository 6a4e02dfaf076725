package lanes

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// stored returns the rows of ready tasks, by key.
func (w *listed) stored(r *Round) map[string]uint64 {
	rows := map[string]uint64{}
	prefix := schema.QueueKey("ns", schema.TableReady, "q")
	r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool {
		rows[string(k)] = binary.BigEndian.Uint64(k[len(k)-8:])
		return true
	})
	return rows
}

// compareRows checks that rows of tasks that are in no lane are before the first task of a long lane, and few.
func (w *listed) compareRows(r *Round) {
	rows := w.stored(r)
	for _, t := range w.tasks {
		delete(rows, string(schema.ReadyKey("ns", "q", t.Lane(), t.Seq)))
	}
	for name, l := range w.set.byName {
		stale := 0
		for k, seq := range rows {
			if k == string(schema.ReadyKey("ns", "q", name, seq)) {
				stale++
				delete(rows, k)
				if l.stale == 0 || seq < l.stale || seq >= l.first() {
					w.t.Errorf("lane %v has a stale row at %d, but records stale rows from %d up to %d", name, seq, l.stale, l.first())
				}
			}
		}
		if (stale > 0) != (l.stale != 0) || stale >= Bounds.Stale {
			w.t.Errorf("lane %v has %d stale rows from %d on, want fewer than %d", name, stale, l.stale, Bounds.Stale)
		}
	}
	for k := range rows {
		w.t.Errorf("row %q belongs to no task and to no lane", k)
	}
}

// The rows of tasks that leave the head of a long lane are deleted together, and those of others immediately.
func TestStaleRows(t *testing.T) {
	was, from := Bounds, store.RangeFrom
	defer func() { Bounds, store.RangeFrom = was, from }()
	for _, least := range []int{0, 3, 10} {
		t.Run(fmt.Sprint("ranges of ", least), func(t *testing.T) {
			Bounds.Stale, store.RangeFrom = 4, least
			leaveRows(t, least <= 4)
		})
	}
}

func leaveRows(t *testing.T, asRange bool) {
	w := newListed(t, 0)
	rows := func(when, want string) {
		t.Helper()
		w.round(func(r *Round) {
			var got []uint64
			for _, seq := range w.stored(r) {
				got = append(got, seq)
			}
			slices.Sort(got)
			if fmt.Sprint(got) != want {
				t.Errorf("%s: rows %v, want %s", when, got, want)
			}
			w.compare(r)
		})
	}
	var gone listedTask
	leave := func(seqs ...uint64) {
		t.Helper()
		w.round(func(r *Round) {
			for _, seq := range seqs {
				at := slices.IndexFunc(w.tasks, func(t listedTask) bool { return t.Seq == seq })
				gone = w.tasks[at]
				r.Leave(w.set, gone.Exec)
				w.tasks = slices.Delete(w.tasks, at, at+1)
				w.set.ForgetIdle(gone.Key)
			}
		})
	}
	w.round(func(r *Round) {
		for range 12 {
			w.enterNew(r, task.Normal, "", "x")
		}
	})
	leave(1, 2, 5, 3)
	rows("three left the head, one another place", "[1 2 3 4 6 7 8 9 10 11 12]")
	w.round(func(r *Round) { w.enter(r, gone) })
	rows("one came back, before the first", "[3 4 6 7 8 9 10 11 12]")
	leave(3)
	rows("it left again", "[3 4 6 7 8 9 10 11 12]")
	w.round(w.begin)
	rows("a new leader", "[3 4 6 7 8 9 10 11 12]")
	leave(4)
	rows("the next left", "[6 7 8 9 10 11 12]")
	leave(6, 7)
	rows("two more left", "[6 7 8 9 10 11 12]")
	leave(8)
	rows("a third, after which the lane is long no more", "[6 7 8 9 10 11 12]")
	if leave(9); asRange != (w.wrote == 2) { // with the row of the lane
		t.Errorf("four stale rows were deleted by an entry of %d rows, want a range: %t", w.wrote, asRange)
	}
	rows("a fourth", "[10 11 12]")
	w.round(func(r *Round) { w.enterNew(r, task.Normal, "", "x"); w.enterNew(r, task.Normal, "", "x") })
	leave(10, 14, 13, 12)
	rows("one left, and others", "[10 11]")
	leave(11)
	rows("the lane has ended", "[]")
}
