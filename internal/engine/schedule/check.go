package schedule

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
)

// check: a plan and a course go together, the next tick of each course has its deadline, a history has the entries that its
// course counts and no others, and a deleted schedule is forgotten in time.
func check(c engine.Checker) {
	plans, courses := map[string]*plan{}, map[string]*course{}
	c.Scan(schema.TablePlan, func(k, v []byte) {
		name := strings.TrimSuffix(string(k[len(c.Namespace())+2:]), "\x00")
		p, err := decodePlan(v)
		if err != nil || p.Name != name {
			c.Find("plan of schedule %q can't be read (%v)", name, err)
			return
		}
		plans[name] = p
	})
	c.Scan(schema.TableCourse, func(k, v []byte) {
		name := strings.TrimSuffix(string(k[len(c.Namespace())+2:]), "\x00")
		at, err := decodeCourse(v)
		p := plans[name]
		switch {
		case err != nil || p == nil || p.id != at.id:
			c.Find("course of schedule %q belongs to no plan (%v)", name, err)
			delete(plans, name) // which has no other
			return
		case (at.planned == 0) != (at.fires == 0), at.fires < at.planned, at.paused != 0 && at.fires != 0:
			c.Find("schedule %q: its next tick is planned for %d and fires at %d, paused %d", name, at.planned, at.fires, at.paused)
		case at.fires != 0:
			c.ExpectRow(schema.DeadlineKey(at.fires, schema.OnTick, c.Namespace(), []byte(name)), nil)
		}
		courses[name] = at
	})
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		if courses[name] == nil {
			c.Find("schedule %q has no course", name)
		}
	}
	checkHistories(c, courses)
	c.Scan(schema.TableGone, func(k, v []byte) {
		g, err := decodeGone(v)
		if err != nil {
			c.Find("row %q: %v", k, err)
			return
		}
		c.ExpectRow(schema.DeadlineKey(g.until, schema.OnGone, c.Namespace(), k[len(c.Namespace())+2:len(k)-1]), nil)
	})
}

// checkHistories checks what schedules have written down of their last ticks.
func checkHistories(c engine.Checker, courses map[string]*course) {
	entries := map[string]uint64{}
	c.Scan(schema.TableTick, func(k, v []byte) {
		name, seq := string(k[len(c.Namespace())+2:len(k)-9]), binary.BigEndian.Uint64(k[len(k)-8:])
		at := courses[name]
		if _, err := decodeTick(seq, v); err != nil || at == nil || seq > at.seq || seq < oldestTick(at.seq) {
			c.Find("entry %d in the history of schedule %q belongs to nothing (%v)", seq, name, err)
		}
		entries[name]++
	})
	for name, at := range courses {
		if want := min(at.seq, HistoryLength); entries[name] != want {
			c.Find("the history of schedule %q has %d entries, expected %d", name, entries[name], want)
		}
	}
}
