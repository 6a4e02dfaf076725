package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

func FewPerZone(t *testing.T, n int) {
	old := zonemap.ZoneTasks
	zonemap.ZoneTasks = n
	t.Cleanup(func() { zonemap.ZoneTasks = old })
}

// zoneStarts returns the zones that have a row.
func (w *World) zoneStarts() (starts []task.ID) {
	return zonemap.Read(w.Store, "default").Starts()
}

// Zones are removed with their tasks, except the first one, and later tasks with ids in their range are found.
func TestEmptyZonesAreRemoved(t *testing.T) {
	FewPerZone(t, 10)
	w := NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	keep := time.Duration(0)
	most := 0
	for range 300 {
		w.Pass(20 * time.Second)
		a, err := w.Enqueue(task.Spec{Type: "job", Queue: "default", Retention: &keep})
		if err != nil {
			t.Fatal(err)
		}
		w.settle(a.ID, true, nil)
		most = max(most, len(w.zoneStarts()))
	}
	// Ten minutes of tasks are kept for repeated requests: 30, in three zones or four.
	if got := w.zoneStarts(); len(got) > 8 || got[0] != (task.ID{}) || most > 10 {
		t.Errorf("zones begin at %v, with at most %d at a time, want few, and the one that begins at id 0", got, most)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	late := task.NewID(1, int64(Dawn)/1000+1000, 7) // where zones were removed
	w.Round(func(r *Round) {
		s := task.Spec{Type: "late", Queue: "default"}
		s.Fill()
		if _, err := Enqueue(r, &NewTask{Namespace: "default", ID: late, Fresh: true, Spec: s}); err != nil {
			t.Fatal(err)
		}
	})
	if _, ids := w.pages(query.Filter{Type: "late"}, 10); len(ids) != 1 || ids[0] != late {
		t.Errorf("found %v, want %s", ids, late)
	}
}

// A zone whose last task ends and is forgotten in the round that removes the zone has no row afterwards.
func TestZoneChangedAndRemovedInOneRound(t *testing.T) {
	FewPerZone(t, 2)
	w := NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	keep := time.Duration(0)
	add := func(r *Round) task.ID {
		s := task.Spec{Type: "job", Queue: "default", Retention: &keep}
		s.Fill()
		w.Now += store.Time(time.Millisecond / time.Microsecond)
		n := &NewTask{Namespace: "default", ID: w.NewID(), Fresh: true, Spec: s}
		if _, err := Enqueue(r, n); err != nil {
			t.Fatal(err)
		}
		return n.ID
	}
	var ids []task.ID
	for range 6 {
		w.Round(func(r *Round) { ids = append(ids, add(r)) })
	}
	w.Pass(11 * time.Minute)
	w.Round(func(r *Round) {
		for _, id := range ids[2:4] { // all of the second zone
			if err := Cancel(r, "default", id); err != nil {
				t.Fatal(err)
			}
		}
		r.shared.Seal(r.tx, &r.l.timelines) // or they would be forgotten in the next round
		Tick(r)
		for range 6 {
			add(r)
		}
	})
	if err := w.Check(); err != nil {
		t.Error(err)
	}
	for _, start := range w.zoneStarts() {
		if start.UnixMilli() == ids[2].UnixMilli() {
			t.Errorf("zone %s has a row, but its tasks are gone", start)
		}
	}
}

// Ids of one millisecond are in no order: however they fall, a rare type stays in few zones.
func TestZonesOfOneMillisecond(t *testing.T) {
	FewPerZone(t, 10)
	w := NewWorld(t)
	w.PutQueue("default", task.DefaultSettings(), false)
	if _, err := w.Enqueue(task.Spec{Type: "rare", Queue: "default"}); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		w.Now += store.Time(time.Millisecond / time.Microsecond)
		w.EnqueueMany(30, nil)
	}
	zones := func() (all, rare int) {
		lo, hi := schema.TableBounds("default", schema.TableZone)
		w.Store.Scan(lo, hi, func(k, row []byte) bool {
			z, err := zonemap.Decode(schema.IDAt(k), row)
			if err != nil {
				t.Fatal(err)
			}
			all++
			if z.May(0, "", "rare") {
				rare++
			}
			return true
		})
		return all, rare
	}
	all, rare := zones()
	if rare > 2 || all < 40 || all > 150 {
		t.Errorf("%d of %d zones list a type that only one task has, want at most 2 of 40 to 150", rare, all)
	}
	w.Now += store.Time(time.Millisecond / time.Microsecond)
	w.EnqueueMany(1000, nil)
	if after, _ := zones(); after-all < 1000/(4*zonemap.ZoneTasks)-1 {
		t.Errorf("1,000 tasks of one millisecond made only %d zones", after-all)
	}
}

// A list by state includes the ready tasks that wait for the holder of their unique key, which are in no lane.
func TestSearchFindsParkedTasks(t *testing.T) {
	w := NewWorld(t)
	spec := task.Spec{Type: "job", Queue: "mail", Unique: &task.Unique{Key: "k", States: task.Unfinished, OnConflict: task.KeepLast}}
	if _, err := w.Enqueue(spec); err != nil {
		t.Fatal(err)
	}
	if got := w.Claim(ClaimRequest{Queues: []Share{{Queue: "mail"}}}); len(got) != 1 {
		t.Fatalf("claimed %v, want one task", got)
	}
	w.Pass(time.Millisecond)
	next, err := w.Enqueue(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []query.Filter{{}, {Type: "job"}, {Queue: "mail"}, {Queue: "mail", Type: "job"}} {
		f.States = []task.State{task.Ready}
		if _, ids := w.pages(f, 10); len(ids) != 1 || ids[0] != next.ID {
			t.Errorf("%+v: found %v, want %s", f, ids, next.ID)
		}
	}
}
