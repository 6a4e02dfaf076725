package engine

import (
	"encoding/binary"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Ready tasks lie in lanes: one for each priority, key and type of a queue that has any. Within a lane they are ordered
// by the sequence number they got when they became ready; a claim merges the heads of the lanes that it may take, fairly
// among keys (flows.go). So a rare type or a held key never makes a claim scan past other tasks.
//
// The simple idea, one ordered list a queue, fails twice: a claim for one type would read past all others, and a list
// read from its start walks over the tombstones of everything already claimed. A lane is read from a moving head.

// laneName is a lane within its queue.
type laneName struct {
	priority task.Priority
	key, typ string
}

// headCap is how many tasks of a lane are kept in memory in front of its head.
const headCap = 256

// readyTask is a task in its lane.
type readyTask struct {
	seq     uint64
	id      task.ID
	readyAt store.Time
}

// lane is the leader's memory of one lane that is not empty. In it lie, in order, all its tasks before scan; those from
// scan on are still to be read.
type lane struct {
	laneName
	count int64
	inRow readyTask // the task that has no row but the lane's: see startsInRow
	head  []readyTask
	scan  uint64
	dirty bool

	flow          *flow
	own, sameType int32 // places in the heaps of its flow, and of its type; -1: it is held
	among         int   // its place among lanes.ofType
}

// startsInRow says whether the task that begins a lane is told of in the row of the lane, not in one of its own. With many keys
// that have a task or two each, that halves what waiting costs. Leaders below the level at which a queue may have limits would
// not find the task; so only queues with limits have it.
func (q *queue) startsInRow(l laneName) bool { return l.key != "" && q.config.Limited() }

// first is a lower bound of the first task's sequence number, exact when the head is not empty.
func (l *lane) first() uint64 {
	if len(l.head) > 0 {
		return l.head[0].seq
	}
	return l.scan
}

// insert adds a task. An insert before scan goes into the head, so that it is found without reading again.
func (l *lane) insert(t readyTask) {
	unread := l.count > int64(len(l.head))
	l.count++
	switch {
	case t.seq >= l.scan && unread:
		return // behind what is still to be read
	case t.seq >= l.scan:
		if len(l.head) == headCap {
			l.scan = t.seq
			return
		}
		l.head = append(l.head, t)
		l.scan = t.seq + 1
		return
	}
	at, _ := slices.BinarySearchFunc(l.head, t.seq, func(have readyTask, seq uint64) int {
		return compare(have.seq, seq)
	})
	l.head = slices.Insert(l.head, at, t)
	if len(l.head) > 2*headCap {
		l.scan = l.head[headCap].seq
		l.head = l.head[:headCap]
	}
}

// remove takes the task at seq out.
func (l *lane) remove(seq uint64) {
	l.count--
	for i := range l.head {
		if l.head[i].seq == seq {
			if i == 0 {
				l.head = l.head[1:]
			} else {
				l.head = slices.Delete(l.head, i, i+1)
			}
			return
		}
	}
}

func (l *lane) encode() []byte {
	r := newRow(48)
	r.num(1, uint64(l.count))
	r.num(2, l.first())
	if t := l.inRow; t.seq != 0 {
		r.num(3, t.seq)
		r.bytes(4, t.id[:])
		r.num(5, uint64(t.readyAt))
	}
	return r
}

// laneRow is what is stored of a lane.
type laneRow struct {
	count int64
	first uint64 // a lower bound
	inRow readyTask
}

func decodeLane(row []byte) (l laneRow, err error) {
	err = decode(row, func(tag protowire.Number, v uint64) {
		switch tag {
		case 1:
			l.count = int64(v)
		case 2:
			l.first = v
		case 3:
			l.inRow.seq = v
		case 5:
			l.inRow.readyAt = store.Time(v)
		}
	}, func(tag protowire.Number, b []byte) {
		if tag == 4 {
			copy(l.inRow.id[:], b)
		}
	})
	return l, err
}

// scanLane calls fn for the tasks of a lane from one sequence number up to but without another, in order, until fn returns false.
func scanLane(from store.Reader, ns, queue string, l laneName, inRow readyTask, seq, end uint64, fn func(readyTask) bool) {
	prefix := laneKey(ns, tabReady, queue, l)
	key := func(seq uint64) []byte { return binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], seq) }
	left, more := inRow.seq != 0 && inRow.seq >= seq && inRow.seq < end, true
	from.Scan(key(seq), key(end), func(k, v []byte) bool {
		id, readyAt, ok := decodeReady(v)
		if !ok {
			corrupt(errReady(k))
		}
		t := readyTask{binary.BigEndian.Uint64(k[len(k)-8:]), id, readyAt}
		if left && inRow.seq < t.seq {
			left, more = false, fn(inRow)
		}
		more = more && fn(t)
		return more
	})
	if left && more {
		fn(inRow)
	}
}

func errReady(k []byte) error { return fmt.Errorf("ready row %q", k) }

func encodeReady(id task.ID, readyAt store.Time) []byte {
	b := append(make([]byte, 0, 26), rowVersion)
	return binary.AppendUvarint(append(b, id[:]...), uint64(readyAt))
}

func decodeReady(row []byte) (id task.ID, readyAt store.Time, ok bool) {
	if len(row) < 18 || row[0] != rowVersion {
		return id, 0, false
	}
	copy(id[:], row[1:])
	at, n := binary.Uvarint(row[17:])
	return id, store.Time(at), n > 0
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
