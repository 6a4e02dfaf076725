package engine

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Where the counters of the queues say that few tasks are in the states of a filter, they are found by the indexes of those states. Their
// order is another one, so that all of their rows are read for a page, and the newest are kept.

// inState is how many tasks of a queue are in a state.
type inState struct {
	queue string
	state task.State
	n     int64
	lanes []laneRef // of ready tasks that the filter may select; nil: all
}

// laneRef is a lane and its row.
type laneRef struct {
	laneName
	row laneRow
}

// statesCounted says whether queues count the tasks in each of the filter's states.
func (f *Filter) statesCounted() bool {
	return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s task.State) bool { return (&counts{}).of(s, task.Normal) == nil })
}

// inStates says how many tasks of each queue that the filter may select are in each of its states, where there are any. The states must be
// counted.
func (f *Filter) inStates(from store.Reader, ns string) (all []inState) {
	states := slices.Clone(f.States)
	slices.Sort(states)
	states = slices.Compact(states)
	note := func(queue string, row []byte) {
		c, err := decodeCounts(row)
		corrupt(err)
		for _, s := range states {
			n := *c.of(s, task.Normal)
			if s == task.Ready {
				n = c.ready[0] + c.ready[1] + c.ready[2]
			}
			if n > 0 {
				all = append(all, inState{queue: queue, state: s, n: n})
			}
		}
	}
	if f.Queue != "" {
		if row, ok := from.Get(queueKey(ns, tabCounts, f.Queue)); ok && f.maySee(f.Queue) {
			note(f.Queue, row)
		}
		return all
	}
	lo, hi := tableBounds(ns, tabCounts)
	from.Scan(lo, hi, func(k, v []byte) bool {
		if queue := strings.TrimSuffix(string(k[len(lo):]), "\x00"); f.maySee(queue) {
			note(queue, v)
		}
		return true
	})
	return all
}

// readByStates reads tasks from the indexes of their states, if they are few, and says whether that was all there is to do.
func (s *search) readByStates() (done bool) {
	all, _, ok := s.few(s.f)
	if !ok {
		return false
	}
	for {
		top := &newest{below: s.hi, kept: s.most.kept}
		s.readStateIndexes(all, top)
		for chunk := range slices.Chunk(top.sorted(), s.chunk(indexChunk)) {
			if s.stop() || !s.lookAt(chunk, nil) {
				return true
			}
		}
		if !top.more || s.stop() {
			return true
		}
		s.hi = bytes.Clone(s.last)
	}
}

// few says how many tasks of each queue are in the states of a filter, if those are counted and few enough to be read.
func (s *search) few(f *Filter) (all []inState, total int64, ok bool) {
	if !f.statesCounted() {
		return nil, 0, false
	}
	all = f.inStates(s.from, s.ns)
	if len(all) > s.most.scans {
		return nil, 0, false
	}
	for i := range all {
		if all[i].state == task.Ready {
			s.chooseLanes(&all[i])
		}
		total += all[i].n
	}
	return all, total, total <= int64(s.most.index)
}

// fewInStates gives the ids of tasks in the states of a filter, the newest first, if they are few enough to be kept.
func (s *search) fewInStates(f *Filter) (ids [][]byte, ok bool) {
	all, total, ok := s.few(f)
	if !ok || total > int64(s.most.kept) {
		return nil, false
	}
	top := &newest{below: s.hi, kept: s.most.kept}
	s.readStateIndexes(all, top)
	return top.sorted(), true
}

// chooseLanes finds the lanes of a queue whose tasks the filter may select, if it says a type or a key.
func (s *search) chooseLanes(c *inState) {
	if s.f.Type == "" && s.f.Key == "" {
		return
	}
	lanes, read, n := []laneRef{}, 0, int64(0)
	s.eachLane(c.queue, func(l laneRef) bool {
		if read++; s.f.mayLane(l.laneName) {
			lanes, n = append(lanes, l), n+l.row.count
		}
		return read <= s.most.lanes
	})
	if read <= s.most.lanes {
		c.lanes, c.n = lanes, n+s.parked(c.queue)
	}
}

// parked is how many ready tasks of a queue wait for their unique keys: they are in no lane.
func (s *search) parked(queue string) int64 {
	row, _ := s.from.Get(queueKey(s.ns, tabCounts, queue))
	c, err := decodeCounts(row)
	corrupt(err)
	return c.parked
}

func (f *Filter) mayLane(l laneName) bool {
	return (f.Type == "" || l.typ == f.Type) && (f.Key == "" || l.key == f.Key)
}

// eachLane calls fn for the lanes of a queue that are not empty, until it returns false.
func (s *search) eachLane(queue string, fn func(laneRef) bool) {
	prefix := queueKey(s.ns, tabLane, queue)
	s.from.Scan(prefix, after(prefix), func(k, v []byte) bool {
		s.rows++
		row, err := decodeLane(v)
		corrupt(err)
		name, ok := parseLane(k[len(prefix):])
		return !ok || fn(laneRef{name, row})
	})
}

// readStateIndexes gathers the newest tasks of all states.
func (s *search) readStateIndexes(all []inState, to *newest) {
	claimed := false
	for i := range all {
		switch c := &all[i]; c.state {
		case task.Claimed:
			claimed = true
		case task.Ready:
			s.readReady(c, to)
			s.readStateIndex(tabWaiting, c, to)
		case task.Scheduled, task.Retrying:
			s.readStateIndex(tabWaiting, c, to)
		default:
			s.readStateIndex(tabDead, c, to)
		}
	}
	if claimed {
		s.readClaims(to)
	}
}

// readStateIndex gathers the tasks of a queue that an index has in a state.
func (s *search) readStateIndex(tab byte, c *inState, to *newest) {
	prefix := statePrefix(s.ns, tab, c.queue, c.state)
	s.from.Scan(prefix, after(prefix), func(k, v []byte) bool {
		s.rows++
		if tab != tabDead || s.f.maySelectDead(v) {
			to.add(idAt(k))
		}
		return true
	})
}

// readReady gathers the ready tasks of a queue.
func (s *search) readReady(c *inState, to *newest) {
	if c.lanes != nil {
		for _, l := range c.lanes {
			scanLane(s.from, s.ns, c.queue, l.laneName, l.row.inRow, 0, math.MaxUint64, func(t readyTask) bool {
				s.rows++
				to.add(t.id)
				return true
			})
		}
		return
	}
	s.eachLane(c.queue, func(l laneRef) bool {
		if l.row.inRow.seq != 0 {
			to.add(l.row.inRow.id)
		}
		return true
	})
	prefix := queueKey(s.ns, tabReady, c.queue)
	s.from.Scan(prefix, after(prefix), func(k, v []byte) bool {
		s.rows++
		id, _, ok := decodeReady(v)
		if !ok {
			corrupt(errReady(k))
		}
		to.add(id)
		return true
	})
}

// readClaims gathers the claimed tasks of the namespace by the deadlines of their leases.
func (s *search) readClaims(to *newest) {
	s.from.Scan([]byte{tabLease}, []byte{tabLease + 1}, func(k, _ []byte) bool {
		s.rows++
		d, ok := parseDeadline(k)
		if !ok {
			corrupt(errDeadline(k))
		}
		if d.ns == s.ns {
			to.add(d.id())
		}
		return true
	})
}

// newest keeps the greatest ids of all that are added.
type newest struct {
	kept  int    // how many
	below []byte // only those below this one; nil: all
	ids   []task.ID
	more  bool // some were not kept
}

func (n *newest) add(id task.ID) {
	if n.below != nil && bytes.Compare(id[:], n.below) >= 0 {
		return
	}
	if n.ids = append(n.ids, id); len(n.ids) == 2*n.kept {
		n.cut()
	}
}

func (n *newest) cut() {
	slices.SortFunc(n.ids, func(a, b task.ID) int { return bytes.Compare(b[:], a[:]) })
	if len(n.ids) > n.kept {
		n.ids, n.more = n.ids[:n.kept], true
	}
}

// sorted are those that were kept, the newest first.
func (n *newest) sorted() [][]byte {
	n.cut()
	out := make([][]byte, len(n.ids))
	for i := range n.ids {
		out[i] = n.ids[i][:]
	}
	return out
}
