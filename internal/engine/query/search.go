package query

import (
	"bytes"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A search visits the tasks that a filter may select, newest first: dead letters of one queue by end time, others by
// id. It must find the few tasks that match even if a million others are newer, so it reads the most selective index:
//
//   - dead letters of a queue: their index;
//   - tasks in states that queues count, if they are few: the indexes of those states;
//   - tasks with an error: the failed attempts;
//   - tasks of a type, or in an end state: the zones that have some;
//   - tasks of a queue: its index;
//   - all others: the states of all tasks.
//
// All but the first return the same tasks in the same order, so a later page may use another index.

// Reach is how far a search has come.
type Reach struct {
	Next []byte // where to continue; nil: it reached the end
	Rows int    // rows read to find tasks
}

// Budget bounds a search.
type Budget struct {
	Rows  int // tasks examined; passOver times as many may be skipped
	Index int // rows of state indexes that are read to sort their tasks
	Kept  int // tasks that are sorted at a time
	Scans int // pairs of queue and state that are read one by one
	Lanes int // lanes of a queue that are read to find those of a type or key
	Probe int // tasks of a queue that are examined before the search turns to rows of all queues: a small queue needs no more
}

// BudgetOf returns a budget of that many tasks and rows of state indexes.
func BudgetOf(rows, index int) Budget {
	return Budget{Rows: rows, Index: index, Kept: 4096, Scans: 1000, Lanes: 20_000, Probe: 1000}
}

// passOver is how many rows may be skipped for the cost of examining one task.
const passOver = 20

// search is a search in progress. The place of a task is the end of its key in the index that is read: its id, or its end time and id.
type search struct {
	f    *Filter
	from store.Reader
	ns   string
	take func(id task.ID, x *schema.Exec) (more bool)
	most Budget

	hi    []byte // the place below which it searches; nil: from the newest
	left  int    // rows that it may still skip
	rows  int
	bytes int    // of payloads read
	price int    // cost of a byte of payload
	full  bool   // take has returned false
	last  []byte // the last place visited
	next  []byte // set if it did not reach the end
}

// searchBytes bounds the payloads that a search reads.
const searchBytes = 64 << 20

// Walk calls take for the tasks that the filter selects, from a cursor on (nil: from the newest), until take returns
// false or the budget is spent.
func (f *Filter) Walk(from store.Reader, ns string, cursor []byte, most Budget,
	take func(id task.ID, x *schema.Exec) (more bool)) (Reach, error) {
	size := len(task.ID{})
	if f.ByEnd() {
		size = schema.DeadTail
	}
	if cursor != nil && len(cursor) != size {
		return Reach{}, task.Invalid("cursor", "was not returned by a list")
	}
	s := &search{f: f, from: from, ns: ns, take: take, most: most, hi: cursor, left: most.Rows * passOver,
		price: 1 + payloadPrice*len(f.Payload)}
	s.run()
	return Reach{s.next, s.rows}, nil
}

// ByEnd reports whether tasks are visited in order of their end times.
func (f *Filter) ByEnd() bool {
	return f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned)
}

func (s *search) run() {
	f := s.f
	switch {
	case f.ByEnd():
		prefix := schema.StatePrefix(s.ns, schema.TableDead, f.Queue, f.States[0])
		s.readIndex(prefix, math.MaxInt, func(k []byte) []byte { return k[len(prefix):] }, func(_, v []byte) bool {
			return f.maySelectDead(v)
		})
	case len(f.States) > 0 && s.readByStates():
	case f.Queue != "" && s.readQueue():
	case f.Error != "":
		s.readAttempts()
	default:
		s.readZones()
	}
}

// stop reports whether the search must stop here, and if so sets next.
func (s *search) stop() bool {
	if !s.full && s.left > 0 && s.bytes < searchBytes {
		return false
	}
	s.next = s.last
	return true
}

// spent reports whether examining that many tasks takes all that is left of the budget.
func (s *search) spent(tasks int) bool { return s.left-tasks*(passOver-1) <= 0 }

// pass counts a row that was read.
func (s *search) pass() {
	s.left--
	s.rows++
}

// candidate is a task that the filter may select.
type candidate struct {
	place []byte
	id    task.ID
	x     *schema.Exec // nil: the task no longer exists
}

// Candidates are examined in chunks if rows of other tables must be read for them: IndexChunk candidates from an index,
// or envelopeChunk if their payloads are read, which may be large.
const (
	IndexChunk    = 128
	envelopeChunk = 32
)

func (f *Filter) needsEnvelope() bool { return f.Tag != "" || f.Text != "" || len(f.Payload) > 0 }

// chunk returns how many candidates are examined together; at most that many unless envelopes are needed.
func (s *search) chunk(most int) int {
	if s.f.needsEnvelope() {
		return envelopeChunk
	}
	return most
}

// look calls take for the candidates that match, and reports whether the search continues. If so, it has examined everything up to seen.
func (s *search) look(all []candidate, seen []byte) bool {
	matches := s.matches(all)
	for i, c := range all {
		if s.full {
			s.next = s.last
			return false
		}
		s.last = append(s.last[:0], c.place...)
		s.left -= passOver - 1
		s.full = matches(i) && !s.take(c.id, c.x)
	}
	if seen != nil {
		s.last = append(s.last[:0], seen...)
	}
	return true
}

// matches examines candidates, and returns a function that reports whether the filter selects the i-th.
func (s *search) matches(all []candidate) func(i int) bool {
	of := make([]bool, len(all))
	var keys [][]byte
	var which []int
	for _, i := range byID(len(all), func(i int) []byte { return all[i].id[:] }) {
		if of[i] = all[i].x != nil && s.f.matchesState(all[i].x); of[i] && s.f.needsEnvelope() {
			keys, which = append(keys, schema.IDKey(s.ns, schema.TableEnvelope, all[i].id)), append(which, i)
			of[i] = false
		}
	}
	s.from.GetEach(keys, func(n int, row []byte) {
		i := which[n]
		e := schema.Must(schema.DecodeEnvelope(s.ns, all[i].id, row))
		s.bytes += len(row) * s.price
		of[i] = s.f.matchesEnvelope(e)
	})
	return func(i int) bool { return of[i] && s.f.matchesFailure(s.from, s.ns, all[i].id, all[i].x) }
}

// below returns the key below which the search begins in a table.
func (s *search) below(prefix []byte) []byte {
	if s.hi == nil {
		return schema.After(prefix)
	}
	return append(prefix[:len(prefix):len(prefix)], s.hi...)
}

// readIndex examines the tasks of an index, up to that many rows. It reports whether the index is exhausted and the
// search may continue. Rows whose task can't match are skipped.
func (s *search) readIndex(prefix []byte, most int, place func(k []byte) []byte, may func(k, v []byte) bool) (end bool) {
	hi := s.below(prefix)
	for most > 0 {
		var names [][]byte
		var seen []byte
		end, stopped := true, false
		s.from.ScanBack(prefix, hi, func(k, v []byte) bool {
			if len(names) == s.chunk(IndexChunk) || most == 0 {
				end = false
				return false
			}
			if len(names) == 0 && s.stop() || s.spent(len(names)) {
				end, stopped = false, true
				return false
			}
			s.pass()
			most--
			seen = append(seen[:0], k...)
			if may == nil || may(k, v) {
				names = append(names, bytes.Clone(place(k)))
			}
			return true
		})
		var to []byte
		if seen != nil {
			hi, to = seen, place(seen)
		}
		if !s.lookAt(names, to) {
			return false
		}
		switch {
		case end:
			return true
		case stopped:
			s.next = s.last
			return false
		}
	}
	s.hi = bytes.Clone(s.last)
	return false
}

// lookAt examines the tasks of some places, and reports whether the search continues.
func (s *search) lookAt(places [][]byte, seen []byte) bool {
	execs := readExecs(s.from, s.ns, places)
	all := make([]candidate, len(places))
	for i, at := range places {
		all[i] = candidate{at, schema.IDAt(at), execs[i]}
	}
	return s.look(all, seen)
}

// tail returns the id at the end of a place or a key.
func tail(k []byte) []byte { return k[len(k)-len(task.ID{}):] }

// byID returns the indexes of n tasks sorted by id: reading rows in the order of their keys costs less.
func byID(n int, id func(i int) []byte) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(id(a), id(b)) })
	return order
}

// readExecs reads the states of the tasks whose ids end the given names; nil: the task was forgotten, but a shared row still lists it.
func readExecs(from store.Reader, ns string, names [][]byte) []*schema.Exec {
	order := byID(len(names), func(i int) []byte { return tail(names[i]) })
	keys := make([][]byte, len(names))
	for i, at := range order {
		keys[i] = schema.IDKey(ns, schema.TableExec, schema.IDAt(names[at]))
	}
	execs := make([]*schema.Exec, len(names))
	from.GetEach(keys, func(i int, row []byte) {
		x := schema.Must(schema.DecodeExec(row))
		execs[order[i]] = x
	})
	return execs
}

// readQueue examines the tasks of a queue, and reports whether the search is done. If another index may be more
// selective, it reads only the first tasks.
func (s *search) readQueue() (done bool) {
	most := math.MaxInt
	if s.f.Type != "" || s.f.Error != "" || len(s.f.States) > 0 {
		most = s.most.Probe
	}
	return s.readIndex(schema.QueueKey(s.ns, schema.TableListed, s.f.Queue), most, tail, nil) || s.next != nil
}

// readAttempts examines the tasks that had an attempt without success.
func (s *search) readAttempts() {
	var before task.ID
	id := func(k []byte) []byte { return k[len(k)-8-len(before) : len(k)-8] }
	s.readIndex(schema.Table(s.ns, schema.TableAttempt), math.MaxInt, id, func(k, _ []byte) bool {
		same := task.ID(id(k)) == before
		before = task.ID(id(k))
		return !same
	})
}

// readZones examines all tasks except those of zones that can't match.
func (s *search) readZones() {
	lo, _ := schema.TableBounds(s.ns, schema.TableExec)
	upper := s.below(lo)
	may, ok := s.zoneFilter()
	if !ok {
		s.readStates(lo, upper)
		return
	}
	zones := schema.Table(s.ns, schema.TableZone)
	on := true
	s.from.ScanBack(zones, s.below(zones), func(k, v []byte) bool {
		if on = !s.stop(); !on {
			return false
		}
		s.pass()
		z := schema.Must(zonemap.Decode(schema.IDAt(k), v))
		start := schema.IDKey(s.ns, schema.TableExec, z.Start)
		if may(z) {
			on = s.readStates(start, upper)
		} else {
			s.last = append(s.last[:0], z.Start[:]...)
		}
		upper = start
		return on
	})
	if on {
		s.readStates(lo, upper)
	}
}

// zoneFilter returns a function that reports whether a zone may have a task that the filter selects; ok is false if
// zones can't tell. The function must be called for each zone in turn, from the newest. Tasks that have not ended are
// looked up, if they are few, because zones record only end states.
func (s *search) zoneFilter() (may func(*zonemap.Zone) bool, ok bool) {
	ended := s.f.endStates()
	switch {
	case len(s.f.States) == 0, len(ended) == 0:
		return func(z *zonemap.Zone) bool { return s.f.mayBeIn(z, 0) }, s.f.Type != ""
	case len(ended) < len(s.f.States):
		rest := *s.f
		rest.States = slices.DeleteFunc(slices.Clone(s.f.States), task.State.Ended)
		ids, ok := s.fewInStates(&rest)
		if !ok {
			return func(z *zonemap.Zone) bool { return s.f.mayBeIn(z, 0) }, s.f.Type != ""
		}
		return func(z *zonemap.Zone) bool {
			n := 0
			for n < len(ids) && bytes.Compare(ids[n], z.Start[:]) >= 0 {
				n++
			}
			ids = ids[n:]
			return n > 0 || s.f.mayBeEndedIn(z, ended)
		}, true
	}
	return func(z *zonemap.Zone) bool { return s.f.mayBeEndedIn(z, ended) }, true
}

// endStates returns the end states of the filter.
func (f *Filter) endStates() []task.State {
	return slices.DeleteFunc(slices.Clone(f.States), func(s task.State) bool { return !s.Ended() })
}

func (f *Filter) mayBeEndedIn(z *zonemap.Zone, states []task.State) bool {
	return slices.ContainsFunc(states, func(s task.State) bool { return f.mayBeIn(z, s) })
}

// mayBeIn reports whether a zone may have a task that the filter selects and that has ended in a state; 0: ended or not.
func (f *Filter) mayBeIn(z *zonemap.Zone, s task.State) bool {
	return z.May(s, f.Queue, f.Type)
}

// readStates examines the tasks in a range of ids, and reports whether the search continues below.
func (s *search) readStates(lo, hi []byte) (on bool) {
	on, stopped := true, false
	var some []candidate
	var seen []byte
	s.from.ScanBack(lo, hi, func(k, row []byte) bool {
		if len(some) == 0 && s.stop() || s.spent(len(some)) {
			stopped = true
			return false
		}
		s.pass()
		seen = append(seen[:0], tail(k)...)
		if s.f.maySelect(row) {
			x := schema.Must(schema.DecodeExec(row))
			some = append(some, candidate{bytes.Clone(seen), schema.IDAt(k), x})
		}
		if len(some) == s.chunk(1) || len(some) == 0 {
			on = s.look(some, seen)
			some = some[:0]
		}
		return on
	})
	if on && len(some) > 0 {
		on = s.look(some, seen)
	}
	if on && stopped {
		s.next, on = s.last, false
	}
	return on
}

// maySelect reports whether the filter may select a task. It decodes only the beginning of the task's state.
func (f *Filter) maySelect(row []byte) bool {
	var state task.State
	var queue, typ []byte
	for b := row[min(1, len(row)):]; len(b) > 0; {
		tag, kind, n := protowire.ConsumeTag(b)
		if n < 0 || tag > 4 {
			break
		}
		b = b[n:]
		if kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				break
			}
			if tag == 1 {
				state = task.State(v)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			break
		}
		if tag == 3 {
			queue = v
		} else {
			typ = v
		}
		b = b[n:]
	}
	return f.matches(state, string(queue), string(typ))
}

// maySee reports whether the filter may select tasks of a queue.
func (f *Filter) maySee(queue string) bool {
	return (f.Queue == "" || queue == f.Queue) && (f.Not == "" || queue != f.Not) &&
		(f.Within == nil || task.Scope{Queues: f.Within}.Sees(queue))
}

// maySelectDead reports whether the filter may select the task of a row in the index of the dead.
func (f *Filter) maySelectDead(row []byte) bool {
	d := schema.Must(schema.DecodeDead(row))
	return (f.Type == "" || d.Type == "" || d.Type == f.Type) &&
		(f.Fingerprint == "" || d.Fingerprint == 0 || fingerprint.Text(d.Fingerprint) == f.Fingerprint)
}
