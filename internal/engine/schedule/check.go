package schedule

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
)

// check checks that each plan has a progress row and vice versa, that the next tick of each schedule has its deadline,
// that a history has exactly the entries that its schedule counts, and that the record of a deleted schedule has a
// deadline.
func check(c engine.Checker) {
	plans, courses := map[string]*plan{}, map[string]*progress{}
	c.Scan(schema.TablePlan, func(k, v []byte) {
		name := strings.TrimSuffix(string(k[len(c.Namespace())+2:]), "\x00")
		p, err := decodePlan(v)
		if err != nil || p.Name != name {
			c.Find("plan of schedule %q can't be read (%v)", name, err)
			return
		}
		plans[name] = p
	})
	c.Scan(schema.TableProgress, func(k, v []byte) {
		name := strings.TrimSuffix(string(k[len(c.Namespace())+2:]), "\x00")
		at, err := decodeProgress(v)
		p := plans[name]
		switch {
		case err != nil || p == nil || p.id != at.id:
			c.Find("course of schedule %q has no plan (%v)", name, err)
			delete(plans, name) // so that it is not reported again
			return
		case (at.planned == 0 || at.paused != 0) != (at.fires == 0), at.fires != 0 && at.fires < at.planned:
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
	c.Scan(schema.TableDeletion, func(k, v []byte) {
		g, err := decodeDeletion(v)
		if err != nil {
			c.Find("row %q: %v", k, err)
			return
		}
		c.ExpectRow(schema.DeadlineKey(g.until, schema.OnDeletion, c.Namespace(), k[len(c.Namespace())+2:len(k)-1]), nil)
	})
}

// checkHistories checks the history of each schedule.
func checkHistories(c engine.Checker, courses map[string]*progress) {
	entries := map[string]uint64{}
	c.Scan(schema.TableTick, func(k, v []byte) {
		name, seq := string(k[len(c.Namespace())+2:len(k)-9]), binary.BigEndian.Uint64(k[len(k)-8:])
		at := courses[name]
		if _, err := decodeTick(seq, v); err != nil || at == nil || seq > at.seq || seq < oldestTick(at.seq) {
			c.Find("entry %d in the history of schedule %q is orphaned (%v)", seq, name, err)
		}
		entries[name]++
	})
	for name, at := range courses {
		if want := min(at.seq, HistoryLength); entries[name] != want {
			c.Find("the history of schedule %q has %d entries, expected %d", name, entries[name], want)
		}
	}
}
