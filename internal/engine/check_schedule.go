package engine

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// checkSchedules: a plan and a course go together, the next tick of each course has its deadline, a ledger has the entries that its
// course counts and no others, and a deleted schedule is forgotten in time.
func (c *checker) checkSchedules() {
	plans, courses := map[string]*plan{}, map[string]*course{}
	c.scan(schema.TablePlan, func(k, v []byte) {
		name := strings.TrimSuffix(string(k[len(c.ns)+2:]), "\x00")
		p, err := decodePlan(v)
		if err != nil || p.Name != name {
			c.find("plan of schedule %q can't be read (%v)", name, err)
			return
		}
		plans[name] = p
	})
	c.scan(schema.TableCourse, func(k, v []byte) {
		name := strings.TrimSuffix(string(k[len(c.ns)+2:]), "\x00")
		at, err := decodeCourse(v)
		p := plans[name]
		switch {
		case err != nil || p == nil || p.id != at.id:
			c.find("course of schedule %q belongs to no plan (%v)", name, err)
			return
		case (at.planned == 0) != (at.fires == 0), at.fires < at.planned, at.paused != 0 && at.fires != 0:
			c.find("schedule %q: its next tick is planned for %d and fires at %d, paused %d", name, at.planned, at.fires, at.paused)
		case at.fires != 0:
			c.expectRow(schema.DeadlineKey(at.fires, schema.OnTick, c.ns, []byte(name)), nil)
		}
		courses[name] = at
	})
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		if courses[name] == nil {
			c.find("schedule %q has no course", name)
		}
	}
	c.checkLedgers(courses)
	c.scan(schema.TableGone, func(k, v []byte) {
		g, err := decodeGone(v)
		if err != nil {
			c.find("row %q: %v", k, err)
			return
		}
		c.expectRow(schema.DeadlineKey(g.until, schema.OnGone, c.ns, k[len(c.ns)+2:len(k)-1]), nil)
	})
}

// checkLedgers checks what schedules have written down of their last ticks.
func (c *checker) checkLedgers(courses map[string]*course) {
	entries := map[string]uint64{}
	c.scan(schema.TableTick, func(k, v []byte) {
		name, seq := string(k[len(c.ns)+2:len(k)-9]), binary.BigEndian.Uint64(k[len(k)-8:])
		at := courses[name]
		if _, err := decodeTick(seq, v); err != nil || at == nil || seq > at.seq || seq < oldestTick(at.seq) {
			c.find("entry %d in the ledger of schedule %q belongs to nothing (%v)", seq, name, err)
		}
		entries[name]++
	})
	for name, at := range courses {
		if want := min(at.seq, ledgerLength); entries[name] != want {
			c.find("the ledger of schedule %q has %d entries, expected %d", name, entries[name], want)
		}
	}
}
