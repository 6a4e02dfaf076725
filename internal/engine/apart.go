package engine

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A row that a loop of the shard can't handle would stop the loop for all others. It is set apart: moved into a table
// of its own, with the reason, in one entry of the log, where check, the metrics and the overview report it. A call
// that needs a row which can't be understood just fails.

// maxApart and maxApartBytes bound the rows that are set apart in a shard. Beyond them a row is not kept; the log has its key.
const (
	maxApart      = 1000
	maxApartBytes = 16 << 20
)

// setApart moves a row out of the way of the loop that can't handle it.
func setApart(r *Round, a schema.Apart) {
	if a.Namespace == "" {
		a.Namespace = "default" // so that somebody sees it
	}
	a.At = r.now
	rows, size := 0, len(a.Key)+len(a.Value)
	r.tx.Scan([]byte{schema.TableApart}, []byte{schema.TableApart + 1}, func(_, v []byte) bool {
		rows, size = rows+1, size+len(v)
		return true
	})
	if a.Kept = rows < maxApart && size <= maxApartBytes; a.Kept {
		r.tx.Set(schema.ApartKey(a.Namespace, r.tx.NextSeq()), a.Encode())
	}
	r.tx.Delete(a.Key)
	r.Apart = append(r.Apart, a)
}

// SetMessageApart moves a message out of the outbox.
func SetMessageApart(r *Round, ns string, request task.ID, reason string) {
	key := schema.IDKey(ns, schema.TableOutbox, request)
	if row, ok := r.tx.Get(key); ok {
		setApart(r, schema.Apart{Namespace: ns, Key: key, Value: row, Reason: reason})
	}
}

// SetRowApart moves a row that the leader needs for a queue or a namespace as a whole. The queue or namespace is then as without it.
// The row of a ready task, which names its place in a lane, is one: all claims that reach it need the task.
func SetRowApart(r *Round, key []byte, reason string) {
	if ns, queue, lane, seq, ok := schema.ParseReady(key); ok {
		setPlaceApart(r, ns, queue, lane, seq, reason)
		return
	}
	if row, ok := r.tx.Get(key); ok {
		ns, _, _ := bytes.Cut(key[1:], []byte{0})
		setApart(r, schema.Apart{Namespace: string(ns), Key: key, Value: row, Reason: reason})
	}
}

// setPlaceApart takes a task that can't be claimed out of its lane. A task whose state can be read is discarded;
// another stays where it is, in no lane.
func setPlaceApart(r *Round, ns, queue string, lane schema.LaneName, seq uint64, reason string) {
	q := r.Queue(ns, queue)
	if q == nil {
		return // it is gone by now
	}
	key := schema.ReadyKey(ns, queue, lane, seq)
	row, some := r.tx.Get(key)
	inRow, held := r.lanes.Holds(q.lanes, lane, seq)
	if inRow.Seq == seq {
		row, some = schema.EncodeReady(inRow.ID, inRow.ReadyAt), true
	}
	if !some {
		return
	}
	if held { // else the task has left, and its row remained
		leavePlace(r, q, lane, seq, row)
	}
	setApart(r, schema.Apart{Namespace: ns, Key: key, Value: row, Reason: reason})
}

// leavePlace takes the task that a row names out of its lane.
func leavePlace(r *Round, q *Queue, lane schema.LaneName, seq uint64, row []byte) {
	var x *schema.Exec
	id, _, named := schema.DecodeReady(row)
	if d := schema.Catch(func() { x, _ = r.Exec(q.ns, id) }); d == nil && x != nil && isAt(x, q.name, lane, seq) {
		c := r.Change(q.ns, id, x)
		c.Finish(task.Discarded, task.ReasonUnreadable)
		return
	}
	there := &schema.Exec{State: task.Ready, Queue: q.name, Priority: lane.Priority, Key: lane.Key, Type: lane.Type, Seq: seq}
	if named && x == nil {
		c := Change{r: r, ns: q.ns, id: id, q: q}
		c.leave(there)
	} else { // the counters have the task as its state says
		r.lanes.Leave(q.lanes, there)
	}
	q.lanes.ForgetIdle(lane.Key)
}

// SetDeadlineApart moves a deadline that can't be handled; of a shared one, only the given tasks or keys.
func SetDeadlineApart(r *Round, d schema.Deadline, reason string) {
	row, ok := r.tx.Get(d.Key())
	if !ok {
		return // it is gone by now
	}
	rest, _ := schema.ParseDeadline(d.Key(), row)
	rest.Shared = slices.DeleteFunc(rest.Shared, func(id task.ID) bool { return slices.Contains(d.Shared, id) })
	rest.Keys = slices.DeleteFunc(rest.Keys, func(key []byte) bool {
		return slices.ContainsFunc(d.Keys, func(apart []byte) bool { return bytes.Equal(apart, key) })
	})
	setApart(r, schema.Apart{Namespace: d.Namespace, Key: d.Key(), Value: d.Value(), Reason: reason})
	if len(rest.Shared)+len(rest.Keys) > 0 {
		r.tx.Set(rest.Key(), rest.Value())
	}
}

// TickOne is Tick for the first deadline that is due; of a shared one, for its first task or key. It calls begin before
// it handles the deadline, so that the next round can set the deadline apart after a panic.
func TickOne(r *Round, begin func(schema.Deadline)) {
	if r.l.FirstDeadline() > r.now {
		return
	}
	due := readDue(r)
	next := r.now + 1 // nothing is due any more
	if len(due.Deadlines) > 0 {
		next = due.Deadlines[0].At
		one, rest := due.Deadlines[0].First()
		begin(one)
		r.tx.Delete(one.Key())
		if len(rest.Shared)+len(rest.Keys) > 0 {
			r.tx.Set(rest.Key(), rest.Value())
		}
		r.l.points.due[one.Kind](r, one)
	}
	for _, line := range due.Lines {
		r.l.timelines.Rewind(line, next)
	}
}
