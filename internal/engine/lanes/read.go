package lanes

import (
	"bytes"
	"errors"
	"slices"

	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A new leader reads the lanes of a queue bit by bit. Reading those of a million keys takes seconds, during which the
// shard would not answer. So a queue begins with the first lanes of each priority; Tick reads the others, a bounded
// number in each round. A verb that needs the lane of an unread key reads that key's rows.
//
// Until all lanes are read, only the keys read so far take turns. A claim never gets a task of a lower priority while a
// higher one might have a task for it: it finds nothing, and is woken when more is read.

// rows are the stored lanes of a queue.
type rows struct {
	ns, queue string
	unread    [3][]byte // by priority: the row from which lanes are still to be read; nil: all were
}

// rowsOf returns the key prefix of the rows of a priority's lanes.
func (w *rows) rowsOf(p task.Priority) []byte {
	return append(schema.QueueKey(w.ns, schema.TableLane, w.queue), byte(p))
}

// rowsOfKey returns the key prefix of the rows of a key's lanes in a priority.
func (w *rows) rowsOfKey(p task.Priority, key string) []byte {
	return append(append(w.rowsOf(p), key...), 0)
}

// isUnread reports whether the lanes of a key are unread, unless a verb has read them.
func (w *rows) isUnread(p task.Priority, key string) bool {
	from := w.unread[p-task.High]
	return from != nil && bytes.Compare(w.rowsOfKey(p, key), from) >= 0
}

// decodeStored returns a lane decoded from its row.
func (w *rows) decodeStored(k, v []byte) *Lane {
	name, ok := schema.ParseLane(k[len(w.ns)+len(w.queue)+3:])
	row, err := schema.DecodeLane(v)
	if !ok {
		err = errors.New("its key names no lane")
	}
	row = schema.MustRow(k, row, err)
	l := &Lane{LaneName: name, count: row.Count, scan: row.First, inRow: row.InRow, stale: row.Stale}
	if l.stale != 0 {
		l.stales = Bounds.Stale // an upper bound: they are deleted when the next task leaves
	}
	if l.inRow.Seq != 0 && (l.count == 1 || l.inRow.Seq == row.First) {
		l.head, l.scan = []schema.ReadyTask{l.inRow}, l.inRow.Seq+1
	}
	return l
}

// Open reads the first lanes of a queue.
func (r *Round) Open(s *Set) {
	for i, p := range task.Priorities {
		s.unread[i] = s.rowsOf(p)
		r.readRows(s, i, Bounds.FirstRead)
	}
}

// Partial reports whether some lanes are still to be read or put in order.
func (s *Set) Partial() bool { return s.left(0) || s.left(1) || s.left(2) }

// left is Partial for one priority.
func (s *Set) left(p int) bool { return s.unread[p] != nil || len(s.cold.released[p]) > 0 }

// MayFind reports whether a claim of the types may find a task in the lanes of a priority that are still to be read or put in order.
func (s *Set) MayFind(p int, types []string) bool {
	return s.unread[p] != nil || slices.ContainsFunc(s.cold.released[p], func(t *coldType) bool {
		return !s.held[t.typ] && (len(types) == 0 || slices.Contains(types, t.typ))
	})
}

// readRows reads roughly n lanes of a priority, up to the end of a key.
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

// readKey reads the lanes of a key if they are still unread.
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

// placeLanes adds lanes of one key and priority, except those already in memory, which may have changed in this round.
// Their tasks were waiting when the leader began, so they count as having used nothing.
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

// addAsCold adds a lane of a new key as a cold one, if there are many flows and a cold lane can represent the key.
func (s *Set) addAsCold(l *Lane, now store.Time) bool {
	_, tried := s.trials[l.Type]
	if l.Key == "" || len(s.flows) < Bounds.Warm || s.flows[l.Key] != nil || tried || s.rules.Held(l.Key, &limit.Claims{}, now) != 0 {
		return false
	}
	c, ok := l.toCold()
	if !ok {
		return false
	}
	if !s.held[l.Type] {
		s.open(now)
		if !s.reading {
			c.used = s.start(now)
		}
	}
	c.period = int32(s.period) // #nosec G115 -- as in cool
	s.cold.add(c, l.LaneName, s.held[l.Type])
	return true
}

// laneOf returns a lane, reading it if need be; nil: it is empty.
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

// thaw turns a cold lane into a flow, at least until the end of the round.
func (r *Round) thaw(s *Set, c *coldLane) {
	name := c.name()
	f := s.thaw(c, r.now)
	r.settleFlow(s, f, s.byName[name])
}

// waitingFlow is a flow that may have only one lane and no claims when the round ends.
type waitingFlow struct {
	s *Set
	f *Flow
	l *Lane // nil: the first one in order
}

// settleFlow makes sealFlows look at a flow.
func (r *Round) settleFlow(s *Set, f *Flow, l *Lane) {
	if len(s.flows) > Bounds.Warm {
		r.waiting = append(r.waiting, waitingFlow{s, f, l})
	}
}

// sealFlows turns flows that have waiting tasks only into cold lanes.
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

// ReadMore reads, or puts in order, roughly n lanes of the highest priority that has any left.
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
