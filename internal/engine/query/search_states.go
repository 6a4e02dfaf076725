package query

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// If the counters of the queues show that few tasks are in the states of a filter, they are found through the indexes
// of those states. Those are in a different order, so all of their rows are read for a page, and the newest are kept.

// InState counts the tasks of a queue in a state.
type InState struct {
	Queue string
	State task.State
	N     int64
	lanes []laneRef // lanes of ready tasks that the filter may select; nil: all
}

// laneRef is a lane and its row.
type laneRef struct {
	schema.LaneName
	row schema.LaneRow
}

// StatesCounted reports whether queues count the tasks in each of the filter's states.
func (f *Filter) StatesCounted() bool {
	return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s task.State) bool {
		return (&schema.Counts{}).Of(s, task.Normal) == nil
	})
}

// InStates returns, for each queue that the filter may select and each of its states, the number of tasks if there are
// any. The states must be counted.
func (f *Filter) InStates(from store.Reader, ns string) (all []InState) {
	states := slices.Clone(f.States)
	slices.Sort(states)
	states = slices.Compact(states)
	note := func(queue string, row []byte) {
		c := schema.Must(schema.DecodeCounts(row))
		for _, s := range states {
			n := *c.Of(s, task.Normal)
			if s == task.Ready {
				n = c.Ready[0] + c.Ready[1] + c.Ready[2]
			}
			if n > 0 {
				all = append(all, InState{Queue: queue, State: s, N: n})
			}
		}
	}
	if f.Queue != "" {
		if row, ok := from.Get(schema.QueueKey(ns, schema.TableCounts, f.Queue)); ok && f.maySee(f.Queue) {
			note(f.Queue, row)
		}
		return all
	}
	lo, hi := schema.TableBounds(ns, schema.TableCounts)
	from.Scan(lo, hi, func(k, v []byte) bool {
		if queue := strings.TrimSuffix(string(k[len(lo):]), "\x00"); f.maySee(queue) {
			note(queue, v)
		}
		return true
	})
	return all
}

// readByStates examines tasks from the indexes of their states, if they are few, and reports whether the search is done.
func (s *search) readByStates() (done bool) {
	all, _, ok := s.few(s.f)
	if !ok {
		return false
	}
	for {
		top := &newest{below: s.hi, kept: s.most.Kept}
		s.readStateIndexes(all, top)
		for chunk := range slices.Chunk(top.sorted(), s.chunk(IndexChunk)) {
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

// few returns how many tasks of each queue are in the states of a filter; ok is false if those are not counted or too many to read.
func (s *search) few(f *Filter) (all []InState, total int64, ok bool) {
	if !f.StatesCounted() {
		return nil, 0, false
	}
	all = f.InStates(s.from, s.ns)
	if len(all) > s.most.Scans {
		return nil, 0, false
	}
	for i := range all {
		if all[i].State == task.Ready {
			s.chooseLanes(&all[i])
		}
		total += all[i].N
	}
	return all, total, total <= int64(s.most.Index)
}

// fewInStates returns the ids of the tasks in the states of a filter, and of some others, newest first, if all of them
// are few enough to be kept. Claimed tasks are listed for the whole namespace, so that there may be many more than the
// filter counts.
func (s *search) fewInStates(f *Filter) (ids [][]byte, ok bool) {
	all, total, ok := s.few(f)
	if !ok || total > int64(s.most.Kept) {
		return nil, false
	}
	top := &newest{below: s.hi, kept: s.most.Kept}
	s.readStateIndexes(all, top)
	ids = top.sorted()
	return ids, !top.more
}

// chooseLanes finds the lanes of a queue whose tasks the filter may select, if it has a type or a key.
func (s *search) chooseLanes(c *InState) {
	if s.f.Type == "" && s.f.Key == "" {
		return
	}
	lanes, read, n := []laneRef{}, 0, int64(0)
	s.eachLane(c.Queue, func(l laneRef) bool {
		if read++; s.f.mayLane(l.LaneName) {
			lanes, n = append(lanes, l), n+l.row.Count
		}
		return read <= s.most.Lanes
	})
	if read <= s.most.Lanes {
		c.lanes, c.N = lanes, n+s.parked(c.Queue)
	}
}

// parked returns how many ready tasks of a queue are in no lane, because they wait for their unique key or a predecessor.
func (s *search) parked(queue string) int64 {
	row, _ := s.from.Get(schema.QueueKey(s.ns, schema.TableCounts, queue))
	return schema.Must(schema.DecodeCounts(row)).Parked
}

func (f *Filter) mayLane(l schema.LaneName) bool {
	return (f.Type == "" || l.Type == f.Type) && (f.Key == "" || l.Key == f.Key)
}

// eachLane calls fn for the lanes of a queue that are not empty, until it returns false.
func (s *search) eachLane(queue string, fn func(laneRef) bool) {
	prefix := schema.QueueKey(s.ns, schema.TableLane, queue)
	s.from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		s.rows++
		row := schema.Must(schema.DecodeLane(v))
		name, ok := schema.ParseLane(k[len(prefix):])
		return !ok || fn(laneRef{name, row})
	})
}

// readStateIndexes collects the newest tasks of all states.
func (s *search) readStateIndexes(all []InState, to *newest) {
	claimed := false
	for i := range all {
		switch c := &all[i]; c.State {
		case task.Claimed:
			claimed = true
		case task.Ready:
			s.readReady(c, to)
			s.readStateIndex(schema.TableWaiting, c, to)
		case task.Scheduled, task.Retrying:
			s.readStateIndex(schema.TableWaiting, c, to)
		default:
			s.readStateIndex(schema.TableDead, c, to)
		}
	}
	if claimed {
		s.readClaims(to)
	}
}

// readStateIndex collects the tasks of a queue in one state from an index.
func (s *search) readStateIndex(tab byte, c *InState, to *newest) {
	prefix := schema.StatePrefix(s.ns, tab, c.Queue, c.State)
	s.from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		s.rows++
		if tab != schema.TableDead || s.f.maySelectDead(v) {
			to.add(schema.IDAt(k))
		}
		return true
	})
}

// readReady collects the ready tasks of a queue, and some that have left their lane but whose rows remain.
func (s *search) readReady(c *InState, to *newest) {
	if c.lanes != nil {
		for _, l := range c.lanes {
			schema.ScanLane(s.from, s.ns, c.Queue, l.LaneName, l.row.InRow, l.row.First, math.MaxUint64, func(t schema.ReadyTask) bool {
				s.rows++
				to.add(t.ID)
				return true
			})
		}
		return
	}
	s.eachLane(c.Queue, func(l laneRef) bool {
		if l.row.InRow.Seq != 0 {
			to.add(l.row.InRow.ID)
		}
		return true
	})
	prefix := schema.QueueKey(s.ns, schema.TableReady, c.Queue)
	s.from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		s.rows++
		id, _, ok := schema.DecodeReady(v)
		if !ok {
			schema.DamagedReady(k)
		}
		to.add(id)
		return true
	})
}

// readClaims collects the claimed tasks of the namespace from the deadlines of their leases.
func (s *search) readClaims(to *newest) {
	s.from.Scan([]byte{schema.TableLease}, []byte{schema.TableLease + 1}, func(k, v []byte) bool {
		s.rows++
		if d := schema.ReadDeadline(k, v); d.Namespace == s.ns {
			for _, id := range d.Shared {
				to.add(id)
			}
		}
		return true
	})
}

// newest keeps the greatest of the ids that are added, each once.
type newest struct {
	kept  int    // how many to keep
	below []byte // ignore ids from this one on; nil: none
	ids   []task.ID
	more  bool // some ids were not kept
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
	slices.SortFunc(n.ids, func(a, b task.ID) int { return b.Compare(a) })
	n.ids = slices.Compact(n.ids) // a task may be listed in the rows of two leases
	if len(n.ids) > n.kept {
		n.ids, n.more = n.ids[:n.kept], true
	}
}

// sorted returns the ids that were kept, newest first.
func (n *newest) sorted() [][]byte {
	n.cut()
	out := make([][]byte, len(n.ids))
	for i := range n.ids {
		out[i] = n.ids[i][:]
	}
	return out
}
