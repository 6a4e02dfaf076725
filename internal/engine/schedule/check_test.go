package schedule

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/checktest"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checked holds the rows to check, before they are encoded: a schedule that is due, one that is paused, and one that was deleted.
type checked struct {
	*checktest.Rows
	plans   map[string]*plan
	courses map[string]*progress
	gone    map[string]deletion
}

func newChecked() *checked {
	planOf := func(id byte, name string) *plan {
		return &plan{id: task.ID{id}, version: 2, Schedule: task.Schedule{Name: name, Every: time.Hour}}
	}
	return &checked{checktest.New(),
		map[string]*plan{"due": planOf(1, "due"), "paused": planOf(2, "paused")},
		map[string]*progress{"due": {id: task.ID{1}, planned: 5, fires: 6, seq: 2}, "paused": {id: task.ID{2}, paused: 5,
			seq: HistoryLength + 2}},
		map[string]deletion{"gone": {version: 3, until: 9}}}
}

func (w *checked) check() {
	for name, p := range w.plans {
		w.Set(schema.NameKey(checktest.NS, schema.TablePlan, name), p.encode())
	}
	for name, c := range w.courses {
		w.Set(schema.NameKey(checktest.NS, schema.TableProgress, name), c.encode())
	}
	for name, g := range w.gone {
		w.Set(schema.NameKey(checktest.NS, schema.TableDeletion, name), g.encode())
	}
	check(w.Rows)
}

// tick adds an entry to a history.
func (w *checked) tick(name string, seq uint64) {
	w.Set(schema.TickKey(checktest.NS, name, seq), encodeTick(&schema.Tick{Planned: 5}))
}

// Every disagreement is found.
func TestCheck(t *testing.T) {
	broken := []byte{0xff}
	for name, c := range map[string]struct {
		spoil func(w *checked)
		want  string
		rows  int // of index rows
	}{
		"nothing":       {func(*checked) {}, "", 2},
		"fires at once": {func(w *checked) { w.courses["due"].fires = 5 }, "", 2},
		"never due":     {func(w *checked) { w.courses["due"].planned, w.courses["due"].fires = 0, 0 }, "", 1},
		"another name": {func(w *checked) { w.plans["due"].Name = "do"; delete(w.courses, "due"); w.drop("due") },
			`plan of schedule "due"`, 1},
		"no plan to read": {func(w *checked) {
			delete(w.plans, "due")
			delete(w.courses, "due")
			w.drop("due")
			w.Set(schema.NameKey(checktest.NS, schema.TablePlan, "due"), broken)
		}, `plan of schedule "due"`, 1},
		"no course to read": {func(w *checked) {
			row := w.courses["due"].encode()
			delete(w.courses, "due")
			w.drop("due")
			w.Set(schema.NameKey(checktest.NS, schema.TableProgress, "due"), append(row, 0xff))
		}, `schedule "due"`, 1},
		"a course of another": {func(w *checked) { w.courses["due"].id = task.ID{9}; w.drop("due") }, `course of schedule "due"`, 1},
		"a course of no plan": {func(w *checked) { w.courses["other"] = &progress{} }, `course of schedule "other"`, 2},
		"no deadline's time":  {func(w *checked) { w.courses["due"].fires = 0 }, `planned for 5 and fires at 0`, 1},
		"no plan's time":      {func(w *checked) { w.courses["due"].planned = 0 }, `planned for 0 and fires at 6`, 1},
		"fires too early":     {func(w *checked) { w.courses["due"].fires = 4 }, `planned for 5 and fires at 4`, 1},
		"paused, and is due":  {func(w *checked) { w.courses["due"].paused = 3 }, `paused 3`, 1},
		"no course":           {func(w *checked) { delete(w.courses, "due"); w.drop("due") }, `schedule "due" has no course`, 1},
		"an entry of nothing": {func(w *checked) { w.tick("gone", 1) }, `entry 1 in the history of schedule "gone"`, 2},
		"an entry less": {func(w *checked) { delete(w.Stored, string(schema.TickKey(checktest.NS, "due", 2))) },
			`has 1 entries, expected 2`, 2},
		"no deleted one": {func(w *checked) { w.Set(schema.NameKey(checktest.NS, schema.TableDeletion, "lost"), broken) }, `row "`, 2},
		"an entry not to read": {func(w *checked) { w.Set(schema.TickKey(checktest.NS, "due", 2), broken) },
			`entry 2 in the history of schedule "due"`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newChecked()
			w.tick("due", 1)
			w.tick("due", 2)
			for seq := uint64(3); seq <= HistoryLength+2; seq++ {
				w.tick("paused", seq)
			}
			c.spoil(w)
			w.check()
			w.Expect(t, c.want, c.rows)
		})
	}
}

// drop removes the history of a schedule.
func (w *checked) drop(name string) {
	for seq := range uint64(3) {
		delete(w.Stored, string(schema.TickKey(checktest.NS, name, seq)))
	}
}

// A history has the last thousand entries: an older one, or one newer than its schedule, is orphaned.
func TestCheckHistories(t *testing.T) {
	for shift, want := range map[uint64]string{1: "", 0: "entry 1 in", 2: fmt.Sprintf("entry %d in", HistoryLength+2)} {
		w := newChecked()
		delete(w.plans, "due")
		delete(w.courses, "due")
		w.courses["paused"].seq = HistoryLength + 1
		for seq := range uint64(HistoryLength) {
			w.tick("paused", seq+1+shift)
		}
		w.check()
		w.Expect(t, want, 1)
	}
}

// Rows survive encoding and decoding.
func TestRowsKeepAll(t *testing.T) {
	p := &plan{id: task.ID{1}, version: 2, createdAt: 3, updatedAt: 4, Schedule: task.Schedule{Name: "s", Cron: "@daily",
		TimeZone: "UTC", Owner: "ada"}}
	p.Fill()
	if again, err := decodePlan(p.encode()); err != nil || !reflect.DeepEqual(again, p) {
		t.Errorf("%+v was decoded as %+v: %v", p, again, err)
	}
	c := &progress{id: task.ID{1}, began: 2, planned: 3, fires: 4, catchUpTo: 5, seq: 6, paused: 7, reason: "r", by: "ada"}
	if again, err := decodeProgress(c.encode()); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%+v was decoded as %+v: %v", c, again, err)
	}
	e := &schema.Tick{Seq: 1, Planned: 2, Until: 3, Count: 4, At: 5, Outcome: schema.TickSkipped, Reason: "r", Task: task.ID{6},
		Request: task.ID{7}}
	if again, err := decodeTick(1, encodeTick(e)); err != nil || !reflect.DeepEqual(again, e) {
		t.Errorf("%+v was decoded as %+v: %v", e, again, err)
	}
	for _, existed := range []bool{true, false} {
		g := deletion{version: 1, existed: existed, until: 2}
		if again, err := decodeDeletion(g.encode()); err != nil || again != g {
			t.Errorf("%+v was decoded as %+v: %v", g, again, err)
		}
	}
	for name, row := range map[string][]byte{"a plan in a broken row": {0xff}, "a broken plan": badPlan()} {
		if _, err := decodePlan(row); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// badPlan returns a row with a schedule that can't be decoded.
func badPlan() []byte {
	f := schema.Encoding(nil)
	f.Put(5, []byte{0xff})
	return f.Row()
}
