package lanes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// This file is used by the engine's tests: it compares memory with the rows.

// Verify returns an error if the lanes differ from the rows, or from again, which a new leader has read from them.
// Reading is true if the leader has more lanes to read.
func (s *Set) Verify(from store.Reader, again *Set, reading bool) error {
	c := comparison{s, again, from}
	if err := c.lanes(); err != nil {
		return err
	}
	if err := c.flows(); err != nil {
		return err
	}
	return c.cold(reading)
}

// comparison compares memory with the rows, and with what a new leader has read from them.
type comparison struct {
	s, again *Set
	from     store.Reader
}

// VerifyTypes is Verify for the types that are held or on trial. Watched is true if breakers watch the types.
func (s *Set) VerifyTypes(again *Set, watched bool) error {
	if watched != (s.ofType != nil) || !maps.Equal(s.held, again.held) {
		return fmt.Errorf("queue %q: memory holds %v, rows %v", s.queue, s.held, again.held)
	}
	if !watched {
		return nil
	}
	for typ, l := range s.trials {
		if other, tried := again.trials[typ]; !tried || (other == nil) != (l == nil) {
			return fmt.Errorf("trial of type %q: memory shows %+v, rows %+v", typ, l, other)
		}
	}
	n := 0
	for typ, of := range s.ofType {
		for i, l := range of {
			if n++; l.Type != typ || l.among != i || s.byName[l.LaneName] != l {
				return fmt.Errorf("lane %v is at place %d of type %q, not at %d", l.LaneName, i, typ, l.among)
			}
		}
	}
	if n != len(s.byName) || len(s.trials) != len(again.trials) {
		return fmt.Errorf("%d of %d lanes lie among their types; %d trials, by the rows %d", n, len(s.byName),
			len(s.trials), len(again.trials))
	}
	return nil
}

// Memory summarizes what is in memory of a queue's lanes.
type Memory struct {
	Flows    int
	Tasks    int64 // in all lanes that were read
	Released int   // lanes of the first type of normal priority that are still to be put in order
}

// Memory returns a summary of what is in memory.
func (s *Set) Memory() (m Memory) {
	m.Flows = len(s.flows)
	for _, l := range s.all() {
		m.Tasks += l.count
	}
	if types := s.cold.released[1]; len(types) > 0 {
		m.Released = types[0].lanes.Len()
	}
	return m
}

// Dump returns what is in memory, for debugging.
func (s *Set) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  account %d opened %d held %v\n", s.period, s.opened, s.held)
	for _, key := range slices.Sorted(maps.Keys(s.flows)) {
		f := s.flows[key]
		fmt.Fprintf(&b, "  flow %q %v %d %v %d %d %d %v %v %d %v\n", key, f.weight, f.lanes, f.place, f.Held, f.Use.Count(), f.Running,
			f.used, f.at, f.period, f.rank)
	}
	for _, ln := range slices.SortedFunc(maps.Keys(s.byName), func(a, b schema.LaneName) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	}) {
		n := s.byName[ln]
		fmt.Fprintf(&b, "  lane %v %d %v %d %t %d %d\n", ln, n.count, n.head, n.scan, n.dirty, n.own, n.sameType)
	}
	return b.String()
}

// all returns the lanes in memory, cold ones included.
func (s *Set) all() map[schema.LaneName]*Lane {
	all := maps.Clone(s.byName)
	for _, c := range s.cold.byKey {
		l := c.lane()
		if head := s.cold.heads[c]; head != nil {
			l.head, l.scan = head, head[len(head)-1].Seq+1
		}
		all[l.LaneName] = l
	}
	return all
}

// lanes checks that all stored lanes are in memory, except those still to be read.
func (c comparison) lanes() error {
	s := c.s
	mine, stored := s.all(), c.again.all()
	for name, l := range mine {
		if err := c.lane(l, stored[name]); err != nil {
			return err
		}
	}
	for name := range stored {
		if mine[name] == nil && !s.isUnread(name.Priority, name.Key) {
			return fmt.Errorf("lane %v is stored, and neither in memory nor still to be read", name)
		}
	}
	return nil
}

func (c comparison) lane(l, again *Lane) error {
	s := c.s
	if again == nil || again.count != l.count {
		return fmt.Errorf("lane %v: memory counts %d, rows %+v", l.LaneName, l.count, again)
	}
	if again.inRow != l.inRow {
		return fmt.Errorf("lane %v: memory says that task %+v has no row of its own, the lane's row %+v", l.LaneName, l.inRow, again.inRow)
	}
	if again.stale != l.stale || l.stale >= l.first() && l.stale != 0 {
		return fmt.Errorf("lane %v: memory says that stale rows begin at %d and end before %d, its row that they begin at %d", l.LaneName,
			l.stale, l.first(), again.stale)
	}
	i, ok, from := 0, true, uint64(0)
	if l.stale != 0 {
		from = l.first()
	}
	schema.ScanLane(c.from, s.ns, s.queue, l.LaneName, l.inRow, from, math.MaxUint64, func(t schema.ReadyTask) bool {
		if i < len(l.head) {
			ok = ok && l.head[i] == t
		} else {
			ok = ok && t.Seq >= l.scan
		}
		i++
		return true
	})
	if !ok || i != int(l.count) {
		return fmt.Errorf("lane %v: head %v, scan %d, count %d do not match %d rows", l.LaneName, l.head, l.scan, l.count, i)
	}
	return nil
}

// cold checks that cold lanes are where they belong, and only of keys with waiting tasks only.
func (c comparison) cold(reading bool) error {
	s := c.s
	n := 0
	for p := range s.cold.byType {
		if !heapOK(&s.cold.order[p]) {
			return fmt.Errorf("the cold types of priority %d are out of order", p)
		}
		for typ, t := range s.cold.byType[p] {
			tasks := int64(0)
			for _, it := range t.lanes.items {
				if n++; s.cold.byKey[it.of.key] != it.of || s.flows[it.of.key] != nil {
					return fmt.Errorf("cold lane %+v is not alone", it.of)
				}
				if !t.held && it.of.period != int32(s.period) { // #nosec G115 -- a test
					return fmt.Errorf("cold lane %+v runs by account %d, not %d", it.of, it.of.period, s.period)
				}
				tasks += int64(it.of.count)
			}
			if tasks != t.tasks || t.held != s.held[typ] || t.held != (t.place < 0) || t.start != 0 || t.lanes.Len() == 0 ||
				!heapOK(&t.lanes) {
				return fmt.Errorf("cold type %+v is not as its %d lanes of %d tasks are; held: %t", t, t.lanes.Len(), tasks, s.held[typ])
			}
		}
	}
	for p := range s.cold.released {
		for _, t := range s.cold.released[p] {
			tasks := int64(0)
			for _, it := range t.lanes.items {
				if n++; s.cold.byKey[it.of.key] != it.of || it.of.of != t || s.flows[it.of.key] != nil {
					return fmt.Errorf("released lane %+v is not alone", it.of)
				}
				tasks += int64(it.of.count)
			}
			if tasks != t.tasks || t.lanes.Len() == 0 || t.place >= 0 || !heapOK(&t.lanes) || !reading {
				return fmt.Errorf("released type %+v is not as its %d lanes of %d tasks are", t, t.lanes.Len(), tasks)
			}
		}
	}
	ahead := 0
	for l, head := range s.cold.heads {
		if ahead += len(head); s.cold.byKey[l.key] != l || len(head) < 2 || len(head) > Bounds.Head || head[0] != l.first {
			return fmt.Errorf("tasks %v are remembered of a lane %+v", head, l)
		}
	}
	if ahead != s.cold.ahead || ahead > Bounds.Heads {
		return fmt.Errorf("%d tasks of cold lanes are remembered, %d by count, at most %d", ahead, s.cold.ahead, Bounds.Heads)
	}
	if n != len(s.cold.byKey) {
		return fmt.Errorf("%d cold lanes lie among their types, %d are known", n, len(s.cold.byKey))
	}
	return nil
}

// flows checks that memory holds back the same flows as the rows imply, and has no idle key.
func (c comparison) flows() error {
	s, again := c.s, c.again
	for key := range again.flows {
		if s.flows[key] == nil && s.cold.byKey[key] == nil && !s.Partial() {
			return fmt.Errorf("memory knows nothing of key %q", key)
		}
	}
	for key, f := range s.flows {
		g := again.flows[key]
		if cold := again.cold.byKey[key]; cold != nil {
			g = &Flow{lanes: 1}
		}
		if s.Partial() && g != nil {
			g.lanes = f.lanes
		}
		if g == nil || f.Running != g.Running || f.Use.Count() != g.Use.Count() || f.Use.Yielding != g.Use.Yielding ||
			len(f.Use.Named) != len(g.Use.Named) || f.Held != g.Held || f.lanes != g.lanes || f.idle() {
			return fmt.Errorf("flow %q: memory has %+v, rows %+v", key, f, g)
		}
		for p := range s.order {
			if in := f.place[p] >= 0; in != (f.Held == 0 && f.ready[p].Len() > 0) || in && s.order[p].items[f.place[p]].of != f {
				return fmt.Errorf("flow %q is at place %d of priority %d", key, f.place[p], p)
			}
		}
	}
	for _, l := range s.byName {
		runs, p := !s.held[l.Type] || s.trials[l.Type] == l, l.Priority-task.High
		if own := l.own >= 0; own != runs || own && l.flow.ready[p].items[l.own].of != l {
			return fmt.Errorf("lane %v is at place %d of its flow", l.LaneName, l.own)
		}
		if in := l.sameType >= 0; in != (runs && l.flow.Held == 0) || in && s.byType[p][l.Type].items[l.sameType].of != l {
			return fmt.Errorf("lane %v is at place %d of its type", l.LaneName, l.sameType)
		}
	}
	for p := range s.order {
		if !heapOK(&s.order[p]) {
			return fmt.Errorf("the flows of priority %d are out of order", p)
		}
		for typ, h := range s.byType[p] {
			if !heapOK(h) {
				return fmt.Errorf("the lanes of type %q are out of order", typ)
			}
		}
	}
	return nil
}

func heapOK[T any](h *ranking[T]) bool {
	for i := 1; i < h.Len(); i++ {
		if h.items[i].before(h.items[(i-1)/2].order) {
			return false
		}
	}
	for i, it := range h.items {
		if it.order != h.order(it.of) || int(*h.place(it.of)) != i {
			return false
		}
	}
	return true
}
