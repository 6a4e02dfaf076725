package lanes

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A new leader reads the lanes of a queue bit by bit. Reading those of a million keys takes seconds, in which the shard would answer
// nobody. So a queue begins with the first lanes of each priority; Tick reads the others, a bounded number in each round. A verb that
// needs the lane of a key that is still unread reads that key's rows.
//
// Until all lanes are read, keys take turns among those that were. A claim never gets a task of a lower priority while a higher one
// might have a task for it: it finds nothing, and is woken when more is read.

// rows are the stored lanes of a queue.
type rows struct {
	ns, queue string
	unread    [3][]byte // by priority: the row from which on lanes are still to be read; nil: there is none
}

// rowsOf begins the rows of a priority's lanes.
func (w *rows) rowsOf(p task.Priority) []byte {
	return append(schema.QueueKey(w.ns, schema.TableLane, w.queue), byte(p))
}

// rowsOfKey begins the rows of a key's lanes of a priority.
func (w *rows) rowsOfKey(p task.Priority, key string) []byte {
	return append(append(w.rowsOf(p), key...), 0)
}

// isUnread says whether the lanes of a key are not read yet, unless something needed them.
func (w *rows) isUnread(p task.Priority, key string) bool {
	from := w.unread[p-task.High]
	return from != nil && bytes.Compare(w.rowsOfKey(p, key), from) >= 0
}

// decodeStored is a lane as its row tells it.
func (w *rows) decodeStored(k, v []byte) *Lane {
	name, ok := schema.ParseLane(k[len(w.ns)+len(w.queue)+3:])
	row, err := schema.DecodeLane(v)
	schema.Must(err)
	if !ok {
		schema.Must(fmt.Errorf("lane key %q", k))
	}
	l := &Lane{LaneName: name, count: row.Count, scan: row.First, inRow: row.InRow, stale: row.Stale}
	if l.stale != 0 {
		l.stales = Bounds.Stale // at most: they are deleted when the next task leaves
	}
	if l.inRow.Seq != 0 && (l.count == 1 || l.inRow.Seq == row.First) {
		l.head, l.scan = []schema.ReadyTask{l.inRow}, l.inRow.Seq+1
	}
	return l
}

// Open begins to read the lanes of a queue.
func (r *Round) Open(s *Set) {
	for i, p := range task.Priorities {
		s.unread[i] = s.rowsOf(p)
		r.readRows(s, i, Bounds.FirstRead)
	}
}

// Partial says whether some lanes are still to be read, or put in order.
func (s *Set) Partial() bool { return s.left(0) || s.left(1) || s.left(2) }

// left says whether some lanes of a priority are.
func (s *Set) left(p int) bool { return s.unread[p] != nil || len(s.cold.released[p]) > 0 }

// MayFind says whether a claim of the types may find a task in the lanes of a priority that are left.
func (s *Set) MayFind(p int, types []string) bool {
	return s.unread[p] != nil || slices.ContainsFunc(s.cold.released[p], func(t *coldType) bool {
		return !s.held[t.typ] && (len(types) == 0 || slices.Contains(types, t.typ))
	})
}

// readRows reads about n lanes of a priority, up to the end of a key.
func (r *Round) readRows(s *Set, p, n int) {
	from := s.unread[p]
	s.unread[p] = nil
	var ofKey []*Lane
	r.tx.Scan(from, schema.After(s.rowsOf(task.Priorities[p])), func(k, v []byte) bool {
		l := s.decodeStored(k, v)
		if len(ofKey) > 0 && l.Key != ofKey[0].Key {
			r.placeLanes(s, ofKey)
			ofKey = ofKey[:0]
			if n <= 0 {
				s.unread[p] = s.rowsOfKey(l.Priority, l.Key)
				return false
			}
		}
		ofKey = append(ofKey, l)
		n--
		r.Read++
		return true
	})
	r.placeLanes(s, ofKey)
}

// readKey reads the lanes of a key that are still unread.
func (r *Round) readKey(s *Set, p task.Priority, key string) {
	if !s.isUnread(p, key) {
		return
	}
	var ofKey []*Lane
	prefix := s.rowsOfKey(p, key)
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		ofKey = append(ofKey, s.decodeStored(k, v))
		r.Read++
		return true
	})
	r.placeLanes(s, ofKey)
}

// placeLanes takes lanes of one key and priority into memory, but for those that are there: they may have changed in this round. They
// waited when the leader began, and so have used nothing.
func (r *Round) placeLanes(s *Set, ofKey []*Lane) {
	s.reading = true
	defer func() { s.reading = false }()
	for _, l := range ofKey {
		c := s.cold.byKey[l.Key]
		switch {
		case s.byName[l.LaneName] != nil || c != nil && c.name() == l.LaneName:
			continue
		case c != nil:
			r.thaw(s, c)
		case len(ofKey) == 1 && s.addAsCold(l, r.now):
			continue
		}
		s.add(l, s.Flow(l.Key, r.now), r.now)
	}
}

// addAsCold makes a lane of a new key a cold one, if there are many flows and nothing else is to be known of the key.
func (s *Set) addAsCold(l *Lane, now store.Time) bool {
	_, tried := s.trials[l.Type]
	if l.Key == "" || len(s.flows) < Bounds.Warm || s.flows[l.Key] != nil || tried || s.rules.Held(l.Key, 0, now) != 0 {
		return false
	}
	c, ok := l.chill()
	if !ok {
		return false
	}
	if !s.held[l.Type] {
		s.open(now)
		if !s.reading {
			c.used = s.start(now)
		}
	}
	c.account = int32(s.account) // #nosec G115 -- as in cool
	s.cold.add(c, l.LaneName, s.held[l.Type])
	return true
}

// laneOf is a lane in memory, read if need be; nil: it is empty.
func (r *Round) laneOf(s *Set, name schema.LaneName) *Lane {
	if l := s.byName[name]; l != nil {
		return l
	}
	if c := s.cold.byKey[name.Key]; c != nil {
		r.thaw(s, c)
	}
	r.readKey(s, name.Priority, name.Key)
	if c := s.cold.byKey[name.Key]; c != nil {
		r.thaw(s, c)
	}
	return s.byName[name]
}

// thaw makes a cold lane a flow for this round at least.
func (r *Round) thaw(s *Set, c *coldLane) {
	name := c.name()
	f := s.thaw(c, r.now)
	r.settleFlow(s, f, s.byName[name])
}

// waitingFlow is a flow of which nothing but one lane may be left when the round ends.
type waitingFlow struct {
	s *Set
	f *Flow
	l *Lane // nil: the one that is shown
}

// settleFlow has a flow looked at when the round is sealed.
func (r *Round) settleFlow(s *Set, f *Flow, l *Lane) {
	if len(s.flows) > Bounds.Warm {
		r.waiting = append(r.waiting, waitingFlow{s, f, l})
	}
}

// sealFlows makes cold lanes of the flows that only wait.
func (r *Round) sealFlows() {
	for _, w := range r.waiting {
		l := w.l
		for p := 0; p < len(w.f.ready) && l == nil; p++ {
			if w.f.ready[p].Len() > 0 {
				l = w.f.ready[p].top()
			}
		}
		if l != nil {
			w.s.cool(w.f, l, r.now)
		}
	}
	r.waiting = nil
}

// ReadMore reads about n lanes of the highest priority of which some are left, or puts them in order.
func (r *Round) ReadMore(s *Set, n int) {
	for p := range s.unread {
		switch {
		case len(s.cold.released[p]) > 0:
			r.takeReleased(s, p, n)
		case s.unread[p] != nil:
			r.readRows(s, p, n)
		default:
			continue
		}
		return
	}
}
