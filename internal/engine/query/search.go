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

// A search goes through the tasks that a filter may select, newest first: dead letters of one queue by their ends, others by their ids. It
// is to find the few tasks that match although a million others came later, so it reads the rows that are nearest to them:
//
//   - dead letters of a queue from their index;
//   - tasks in states that queues count, if they are few, from the indexes of those states;
//   - those with an error from the attempts that failed;
//   - those of a type, or in an end state, from the zones that have some;
//   - those of a queue from its index;
//   - all others from the states of all tasks.
//
// All but the first give the same tasks in the same order, so that a later page may be read from elsewhere.

// Reach is how far a search came.
type Reach struct {
	Next []byte // where it would go on; nil: it came to the end
	Rows int    // that it read to find tasks
}

// Effort bounds a search.
type Effort struct {
	Rows  int // tasks that are looked at closely; passOver times as many may be passed over
	Index int // rows of the indexes of states that are read to put their tasks in order
	Kept  int // tasks that are put in order at once
	Scans int // queues and states that are read one by one
	Lanes int // lanes of a queue that are read to find those of a type or a key
	Probe int // tasks of a queue that are looked at before the search turns to rows of all queues: a small queue needs no more
}

// EffortOf is an effort of so many tasks, and rows of indexes.
func EffortOf(rows, index int) Effort {
	return Effort{Rows: rows, Index: index, Kept: 4096, Scans: 1000, Lanes: 20_000, Probe: 1000}
}

// passOver is how many rows may be passed over for the price of a task that is looked at closely.
const passOver = 20

// search is a search under way. The place of a task is what ends its key where the search reads it: its id, or its end and its id.
type search struct {
	f    *Filter
	from store.Reader
	ns   string
	take func(id task.ID, x *schema.Exec) (more bool)
	most Effort

	hi    []byte // the place below which it reads; nil: from the newest
	left  int    // rows that it may pass over
	rows  int
	bytes int    // of payloads that were read
	price int    // of a byte of them
	full  bool   // take wants no more
	last  []byte // the place that it came to
	next  []byte // set if it did not come to the end
}

// searchBytes bounds the payloads that a search reads.
const searchBytes = 64 << 20

// Walk gives the tasks that the filter selects to take, from a cursor, nil: from the newest, until take wants no more or as much was read as
// the effort allows.
func (f *Filter) Walk(from store.Reader, ns string, cursor []byte, most Effort, take func(id task.ID, x *schema.Exec) (more bool)) (Reach, error) {
	size := len(task.ID{})
	if f.ByEnd() {
		size = schema.DeadTail
	}
	if cursor != nil && len(cursor) != size {
		return Reach{}, task.Invalid("cursor", "is not one that a list gave")
	}
	s := &search{f: f, from: from, ns: ns, take: take, most: most, hi: cursor, left: most.Rows * passOver, price: 1 + payloadPrice*len(f.Payload)}
	s.run()
	return Reach{s.next, s.rows}, nil
}

// ByEnd says whether tasks come in the order of their ends.
func (f *Filter) ByEnd() bool {
	return f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned)
}

func (s *search) run() {
	f := s.f
	switch {
	case f.ByEnd():
		prefix := schema.StatePrefix(s.ns, schema.TableDead, f.Queue, f.States[0])
		s.readIndex(prefix, math.MaxInt, func(k []byte) []byte { return k[len(prefix):] }, func(_, v []byte) bool { return f.maySelectDead(v) })
	case len(f.States) > 0 && s.readByStates():
	case f.Queue != "" && s.readQueue():
	case f.Error != "":
		s.readAttempts()
	default:
		s.readZones()
	}
}

// stop ends the search before its end, if it must.
func (s *search) stop() bool {
	if !s.full && s.left > 0 && s.bytes < searchBytes {
		return false
	}
	s.next = s.last
	return true
}

// spent says whether looking at so many tasks takes all that is left of the effort.
func (s *search) spent(tasks int) bool { return s.left-tasks*(passOver-1) <= 0 }

// pass notes a row that is read.
func (s *search) pass() {
	s.left--
	s.rows++
}

// candidate is a task that the filter may select.
type candidate struct {
	place []byte
	id    task.ID
	x     *schema.Exec // nil: there is no such task any more
}

// Candidates are looked at together if rows of other tables are to be read for them: indexChunk that an index names, fewer if their payloads are
// read, which may be large.
const (
	IndexChunk    = 128
	envelopeChunk = 32
)

func (f *Filter) needsEnvelope() bool { return f.Tag != "" || f.Text != "" || len(f.Payload) > 0 }

// chunk is how many candidates are looked at together, if it may be so many.
func (s *search) chunk(most int) int {
	if s.f.needsEnvelope() {
		return envelopeChunk
	}
	return most
}

// look gives those candidates that match to who searches, and says whether the search goes on; then it has come to seen.
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

// matches looks at candidates, and returns what says of each whether the filter selects it.
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
		e, err := schema.DecodeEnvelope(s.ns, all[i].id, row)
		schema.Must(err)
		s.bytes += len(row) * s.price
		of[i] = s.f.matchesEnvelope(e)
	})
	return func(i int) bool { return of[i] && s.f.matchesFailure(s.from, s.ns, all[i].id, all[i].x) }
}

// below is where the search begins in a table.
func (s *search) below(prefix []byte) []byte {
	if s.hi == nil {
		return schema.After(prefix)
	}
	return append(prefix[:len(prefix):len(prefix)], s.hi...)
}

// readIndex reads the tasks that rows of an index name, up to so many rows, and says whether those were all and the search may go on. A row
// whose task can't match is passed over.
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

// lookAt looks at the tasks of some places, and says whether the search goes on.
func (s *search) lookAt(places [][]byte, seen []byte) bool {
	execs := readExecs(s.from, s.ns, places)
	all := make([]candidate, len(places))
	for i, at := range places {
		all[i] = candidate{at, schema.IDAt(at), execs[i]}
	}
	return s.look(all, seen)
}

// tail is the id that ends a place or a key.
func tail(k []byte) []byte { return k[len(k)-len(task.ID{}):] }

// byID is the order of so many tasks by their ids: rows that are read in the order of their keys cost less.
func byID(n int, id func(i int) []byte) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(id(a), id(b)) })
	return order
}

// readExecs reads the states of tasks whose ids end the keys; nil: it is forgotten, and a row that it shared still names it.
func readExecs(from store.Reader, ns string, names [][]byte) []*schema.Exec {
	order := byID(len(names), func(i int) []byte { return tail(names[i]) })
	keys := make([][]byte, len(names))
	for i, at := range order {
		keys[i] = schema.IDKey(ns, schema.TableExec, schema.IDAt(names[at]))
	}
	execs := make([]*schema.Exec, len(names))
	from.GetEach(keys, func(i int, row []byte) {
		x, err := schema.DecodeExec(row)
		schema.Must(err)
		execs[order[i]] = x
	})
	return execs
}

// readQueue reads the tasks of a queue, and says whether that was all there is to do. With a filter by what other rows know better it
// reads only the first.
func (s *search) readQueue() (done bool) {
	most := math.MaxInt
	if s.f.Type != "" || s.f.Error != "" || len(s.f.States) > 0 {
		most = s.most.Probe
	}
	return s.readIndex(schema.QueueKey(s.ns, schema.TableListed, s.f.Queue), most, tail, nil) || s.next != nil
}

// readAttempts reads the tasks that had an attempt without success.
func (s *search) readAttempts() {
	var before task.ID
	id := func(k []byte) []byte { return k[len(k)-8-len(before) : len(k)-8] }
	s.readIndex(schema.Table(s.ns, schema.TableAttempt), math.MaxInt, id, func(k, _ []byte) bool {
		same := task.ID(id(k)) == before
		before = task.ID(id(k))
		return !same
	})
}

// readZones reads the states of tasks, without those of zones that can't have what is searched for.
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
		z, err := zonemap.Decode(schema.IDAt(k), v)
		schema.Must(err)
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

// zoneFilter says which zones may have a task that the filter selects; ok is false if zones tell nothing of that. It is to be asked for each
// zone, from the newest. Tasks that wait or run are looked up, if they are few: zones only tell of ends.
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

// endStates are the states of the filter in which tasks have ended.
func (f *Filter) endStates() []task.State {
	return slices.DeleteFunc(slices.Clone(f.States), func(s task.State) bool { return !s.Ended() })
}

func (f *Filter) mayBeEndedIn(z *zonemap.Zone, states []task.State) bool {
	return slices.ContainsFunc(states, func(s task.State) bool { return f.mayBeIn(z, s) })
}

// mayBeIn says whether a zone may have a task that the filter selects and that has ended in a state, 0: in any or not.
func (f *Filter) mayBeIn(z *zonemap.Zone, s task.State) bool {
	return z.May(s, f.Queue, f.Type)
}

// readStates reads the states of the tasks in a range of ids, and says whether the search goes on below.
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
			x, err := schema.DecodeExec(row)
			schema.Must(err)
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

// maySelect says by what begins the row of a task's state whether the filter may select the task.
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
	switch {
	case len(f.States) > 0 && !slices.Contains(f.States, state), f.Type != "" && string(typ) != f.Type:
		return false
	}
	return f.maySee(string(queue))
}

// maySee says whether the filter may select tasks of a queue.
func (f *Filter) maySee(queue string) bool {
	return (f.Queue == "" || queue == f.Queue) && (f.Not == "" || queue != f.Not) && (f.Within == nil || task.Scope{Queues: f.Within}.Sees(queue))
}

// maySelectDead says by a row of the index of the dead whether the filter may select its task.
func (f *Filter) maySelectDead(row []byte) bool {
	print, typ, err := schema.DecodeDead(row)
	schema.Must(err)
	return (f.Type == "" || typ == "" || typ == f.Type) && (f.Fingerprint == "" || print == 0 || fingerprint.Text(print) == f.Fingerprint)
}
