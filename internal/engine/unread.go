package engine

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

// Bounds of the lanes that are read. A key's lanes of one priority are read at once, whatever their number: their tasks have an order.
// Tests change them.
var (
	firstLanes = 500  // of each priority when a queue is first used
	tickLanes  = 2000 // in a Tick, and when a type is no longer held
	claimLanes = 2000 // by the claims of a round that found nothing, first lanes included
)

// readLanes begins to read the lanes of a queue.
func (r *Round) readLanes(q *Queue) {
	for i, p := range task.Priorities {
		q.lanes.unread[i] = q.lanesOf(p)
		r.readMore(q, i, firstLanes)
	}
	r.readLater(q)
}

// readLater has Tick read the lanes of a queue that are left.
func (r *Round) readLater(q *Queue) {
	if q.lanes.partial() && !slices.Contains(r.l.reading, q) {
		r.l.reading = append(r.l.reading, q)
	}
}

// lanesOf begins the rows of a priority's lanes.
func (q *Queue) lanesOf(p task.Priority) []byte {
	return append(schema.QueueKey(q.ns, schema.TableLane, q.name), byte(p))
}

// lanesOfKey begins the rows of a key's lanes of a priority.
func (q *Queue) lanesOfKey(p task.Priority, key string) []byte {
	return append(append(q.lanesOf(p), key...), 0)
}

// partial says whether some lanes are still to be read, or put in order.
func (s *lanes) partial() bool { return s.left(0) || s.left(1) || s.left(2) }

// left says whether some lanes of a priority are.
func (s *lanes) left(p int) bool { return s.unread[p] != nil || len(s.cold.released[p]) > 0 }

// mayFind says whether a claim of the types may find a task in the lanes of a priority that are left.
func (s *lanes) mayFind(p int, types []string) bool {
	return s.unread[p] != nil || slices.ContainsFunc(s.cold.released[p], func(t *coldType) bool {
		return !s.held[t.typ] && (len(types) == 0 || slices.Contains(types, t.typ))
	})
}

// isUnread says whether the lanes of a key are not read yet, unless something needed them.
func (q *Queue) isUnread(p task.Priority, key string) bool {
	from := q.lanes.unread[p-task.High]
	return from != nil && bytes.Compare(q.lanesOfKey(p, key), from) >= 0
}

// readMore reads about n lanes of a priority, up to the end of a key.
func (r *Round) readMore(q *Queue, p, n int) {
	from := q.lanes.unread[p]
	q.lanes.unread[p] = nil
	var ofKey []*lane
	r.tx.Scan(from, schema.After(q.lanesOf(task.Priorities[p])), func(k, v []byte) bool {
		l := q.decodeStored(k, v)
		if len(ofKey) > 0 && l.Key != ofKey[0].Key {
			r.placeLanes(q, ofKey)
			ofKey = ofKey[:0]
			if n <= 0 {
				q.lanes.unread[p] = q.lanesOfKey(l.Priority, l.Key)
				return false
			}
		}
		ofKey = append(ofKey, l)
		n--
		r.lanesRead++
		return true
	})
	r.placeLanes(q, ofKey)
}

// readKey reads the lanes of a key that are still unread.
func (r *Round) readKey(q *Queue, p task.Priority, key string) {
	if !q.isUnread(p, key) {
		return
	}
	var ofKey []*lane
	prefix := q.lanesOfKey(p, key)
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		ofKey = append(ofKey, q.decodeStored(k, v))
		r.lanesRead++
		return true
	})
	r.placeLanes(q, ofKey)
}

// decodeStored is a lane as its row tells it.
func (q *Queue) decodeStored(k, v []byte) *lane {
	name, ok := schema.ParseLane(k[len(q.ns)+len(q.name)+3:])
	row, err := schema.DecodeLane(v)
	schema.Must(err)
	if !ok {
		schema.Must(fmt.Errorf("lane key %q", k))
	}
	l := &lane{LaneName: name, count: row.Count, scan: row.First, inRow: row.InRow}
	if l.inRow.Seq != 0 && (l.count == 1 || l.inRow.Seq == row.First) {
		l.head, l.scan = []schema.ReadyTask{l.inRow}, l.inRow.Seq+1
	}
	return l
}

// placeLanes takes lanes of one key and priority into memory, but for those that are there: they may have changed in this round. They
// waited when the leader began, and so have used nothing.
func (r *Round) placeLanes(q *Queue, ofKey []*lane) {
	s := &q.lanes
	s.reading = true
	defer func() { s.reading = false }()
	for _, l := range ofKey {
		c := s.cold.byKey[l.Key]
		switch {
		case s.byName[l.LaneName] != nil || c != nil && c.name() == l.LaneName:
			continue
		case c != nil:
			r.thaw(q, c)
		case len(ofKey) == 1 && q.addAsCold(l, r.now):
			continue
		}
		s.add(l, q.flowOf(l.Key, r.now), r.now)
	}
}

// addAsCold makes a lane of a new key a cold one, if there are many flows and nothing else is to be known of the key.
func (q *Queue) addAsCold(l *lane, now store.Time) bool {
	s := &q.lanes
	_, tried := s.trials[l.Type]
	_, paused := q.config.HeldKey(l.Key)
	if l.Key == "" || len(s.flows) < maxWarm || s.flows[l.Key] != nil || tried || paused || !q.hasToken(l.Key, now) {
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
	s.addCold(c, l.LaneName)
	return true
}

// laneOf is a lane in memory, read if need be; nil: it is empty.
func (r *Round) laneOf(q *Queue, name schema.LaneName) *lane {
	if l := q.lanes.byName[name]; l != nil {
		return l
	}
	if c := q.lanes.cold.byKey[name.Key]; c != nil {
		r.thaw(q, c)
	}
	r.readKey(q, name.Priority, name.Key)
	if c := q.lanes.cold.byKey[name.Key]; c != nil {
		r.thaw(q, c)
	}
	return q.lanes.byName[name]
}

// thaw makes a cold lane a flow for this round at least.
func (r *Round) thaw(q *Queue, c *coldLane) {
	name := c.name()
	f := q.thaw(c, r.now)
	r.settleFlow(q, f, q.lanes.byName[name])
}

// waitingFlow is a flow of which nothing but one lane may be left when the round ends.
type waitingFlow struct {
	q *Queue
	f *flow
	l *lane // nil: the one that is shown
}

// settleFlow has a flow looked at when the round is sealed.
func (r *Round) settleFlow(q *Queue, f *flow, l *lane) {
	if len(q.lanes.flows) > maxWarm {
		r.flows = append(r.flows, waitingFlow{q, f, l})
	}
}

// sealFlows makes cold lanes of the flows that only wait.
func (r *Round) sealFlows() {
	for _, w := range r.flows {
		l := w.l
		for p := 0; p < len(w.f.ready) && l == nil; p++ {
			if w.f.ready[p].Len() > 0 {
				l = w.f.ready[p].top()
			}
		}
		if l != nil {
			w.q.lanes.cool(w.f, l, r.now)
		}
	}
	r.flows = nil
}

// readOn reads more lanes, of one queue.
func (r *Round) readOn() {
	if len(r.l.reading) == 0 {
		return
	}
	q := r.l.reading[0]
	if r.l.queues[q.queueName] == q { // else it was deleted
		r.readFirst(q, tickLanes)
		if q.starved {
			q.starved = false
			r.wake(q)
		}
		if q.lanes.partial() {
			return
		}
	}
	r.l.reading = r.l.reading[1:]
}

// readFirst reads about n lanes of the highest priority of which some are left, or puts them in order.
func (r *Round) readFirst(q *Queue, n int) {
	for p := range q.lanes.unread {
		switch {
		case len(q.lanes.cold.released[p]) > 0:
			r.takeReleased(q, p, n)
		case q.lanes.unread[p] != nil:
			r.readMore(q, p, n)
		default:
			continue
		}
		return
	}
}

// readForClaim reads more lanes for a claim that found nothing, as long as the round may.
func (r *Round) readForClaim(q *Queue, types []string) bool {
	for q.lanes.partial() && q.mayRun(r.now) && r.lanesRead < claimLanes {
		r.readFirst(q, claimLanes-r.lanesRead)
		if q.runnable(r.now, types) {
			return true
		}
	}
	q.starved = q.starved || q.lanes.partial()
	return false
}
