package schema

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// LaneName identifies a lane within its queue.
type LaneName struct {
	Priority  task.Priority
	Key, Type string
}

// ReadyTask is a task in its lane.
type ReadyTask struct {
	Seq     uint64
	ID      task.ID
	ReadyAt store.Time
}

// LaneRow is the row of a lane.
type LaneRow struct {
	Count int64
	First uint64 // a lower bound
	InRow ReadyTask
	// Stale is where the rows of tasks that have left begin; 0: there are none. They end before First, where readers start.
	Stale uint64
}

// Encode returns the row.
func (l *LaneRow) Encode() []byte { return Encode(48, l, (*LaneRow).fields) }

// DecodeLane decodes the row of a lane.
func DecodeLane(row []byte) (l LaneRow, err error) {
	f := Decoding(row)
	for f.Next() {
		l.fields(&f)
	}
	return l, f.Err()
}

func (l *LaneRow) fields(f *Fields) {
	Num(f, 1, &l.Count)
	Num(f, 2, &l.First)
	Num(f, 3, &l.InRow.Seq)
	f.ID(4, &l.InRow.ID)
	Num(f, 5, &l.InRow.ReadyAt)
	Num(f, 6, &l.Stale)
}

// ScanLane calls fn for the tasks of a lane with sequence numbers in [seq, end), in order, until fn returns false.
func ScanLane(from store.Reader, ns, queue string, l LaneName, inRow ReadyTask, seq, end uint64, fn func(ReadyTask) bool) {
	prefix := LaneKey(ns, TableReady, queue, l)
	key := func(seq uint64) []byte { return binary.BigEndian.AppendUint64(prefix[:len(prefix):len(prefix)], seq) }
	left, more := inRow.Seq != 0 && inRow.Seq >= seq && inRow.Seq < end, true
	from.Scan(key(seq), key(end), func(k, v []byte) bool {
		id, readyAt, ok := DecodeReady(v)
		if !ok {
			DamagedReady(k)
		}
		t := ReadyTask{binary.BigEndian.Uint64(k[len(k)-8:]), id, readyAt}
		if left && inRow.Seq < t.Seq {
			left, more = false, fn(inRow)
		}
		more = more && fn(t)
		return more
	})
	if left && more {
		fn(inRow)
	}
}

// DamagedReady panics because the row of a ready task can't be decoded. Whoever takes the tasks of its lane needs it.
func DamagedReady(k []byte) { DamagedRow(k, errors.New("it names no ready task")) }

// EncodeReady returns the row of a ready task.
func EncodeReady(id task.ID, readyAt store.Time) []byte {
	b := append(make([]byte, 0, 26), RowVersion)
	return binary.AppendUvarint(append(b, id[:]...), uint64(readyAt))
}

// DecodeReady decodes the row of a ready task; ok is false if it is not one.
func DecodeReady(row []byte) (id task.ID, readyAt store.Time, ok bool) {
	if len(row) < 18 || row[0] != RowVersion {
		return id, 0, false
	}
	copy(id[:], row[1:])
	at, n := binary.Uvarint(row[17:])
	return id, store.Time(at), n > 0
}

// ParseLane parses the part of a lane's key after the queue.
func ParseLane(k []byte) (n LaneName, ok bool) {
	if len(k) < 3 || k[len(k)-1] != 0 {
		return n, false
	}
	n.Priority = task.Priority(k[0])
	n.Key, n.Type, ok = strings.Cut(string(k[1:len(k)-1]), "\x00")
	return n, ok && n.Priority >= task.High && n.Priority <= task.Low
}

// ParseReady is the inverse of ReadyKey.
func ParseReady(k []byte) (ns, queue string, l LaneName, seq uint64, ok bool) {
	if len(k) < 9 || k[0] != TableReady {
		return "", "", l, 0, false
	}
	lane, last := k[1:len(k)-8], k[len(k)-8:]
	parts := strings.SplitN(string(lane), "\x00", 3)
	if len(parts) < 3 {
		return "", "", l, 0, false
	}
	l, ok = ParseLane([]byte(parts[2]))
	return parts[0], parts[1], l, binary.BigEndian.Uint64(last), ok
}

// WaitingTable is a table with rows of waiting tasks.
type WaitingTable struct {
	Prefix []byte                                  // of the rows of one queue
	IDOf   func(k, v []byte) (id task.ID, ok bool) // the task of a row, if it has one
}

// WaitingTables returns the tables in which the waiting tasks of a queue are found. A row of TableReady may remain after its task has left.
func WaitingTables(ns, queue string) []WaitingTable {
	ready := func(k, v []byte) (task.ID, bool) {
		id, _, ok := DecodeReady(v)
		if !ok {
			DamagedReady(k)
		}
		return id, true
	}
	inRow := func(_, v []byte) (task.ID, bool) {
		l := Must(DecodeLane(v))
		return l.InRow.ID, l.InRow.Seq != 0
	}
	waiting := func(k, _ []byte) (task.ID, bool) { return IDAt(k), true }
	return []WaitingTable{
		{QueueKey(ns, TableReady, queue), ready},
		{QueueKey(ns, TableLane, queue), inRow},
		{StatePrefix(ns, TableWaiting, queue, task.Ready), waiting}, // in no lane
		{StatePrefix(ns, TableWaiting, queue, task.Scheduled), waiting},
		{StatePrefix(ns, TableWaiting, queue, task.Retrying), waiting},
	}
}
