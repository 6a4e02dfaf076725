package engine

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Purge discards up to limit waiting tasks of a queue that were created by the time before. It starts at the key from, nil in the first call, and returns
// the key for the next call, nil if nothing is left. A call that started at the first row again would pass all that the previous calls deleted.
func Purge(r *Round, ns, name string, before store.Time, from []byte, limit int) (n int, next []byte, err error) {
	q := r.Queue(ns, name)
	if q == nil {
		return 0, nil, task.NotFound("queue", name)
	}
	tasks, next := q.waiting(r, before, from, limit)
	for _, id := range tasks {
		x, err := r.Exec(ns, id)
		if err != nil || !x.State.Waiting() {
			continue // the end of a task before it ended its group, and the task that this enqueued has replaced it
		}
		c := r.Change(ns, id, x)
		c.Finish(task.Discarded, task.ReasonPurged)
		n++
	}
	if first := schema.QueueKey(ns, schema.TableReady, name); next == nil && from != nil && !bytes.Equal(from, first) {
		next = first // tasks may have moved to rows before from
	}
	return n, next, nil
}

// waiting returns up to limit waiting tasks of a queue that were created by a time, from a key on. If there are more, next is the key to continue from.
func (q *Queue) waiting(r *Round, before store.Time, from []byte, limit int) (tasks []task.ID, next []byte) {
	for _, t := range schema.WaitingTables(q.ns, q.name) {
		at := t.Prefix
		if from != nil {
			if !bytes.HasPrefix(from, t.Prefix) {
				continue
			}
			at, from = from, nil
		}
		for at != nil {
			var keys [][]byte
			var ids []task.ID
			r.tx.Scan(at, schema.After(t.Prefix), func(k, v []byte) bool {
				if id, ok := t.IDOf(k, v); ok {
					keys, ids = append(keys, bytes.Clone(k)), append(ids, id)
				}
				return len(ids) < limit
			})
			if at = nil; len(ids) == limit {
				at = append(keys[limit-1], 0)
			}
			r.Warm(q.ns, ids)
			for i, id := range ids {
				if q.isWaiting(r, keys[i], id, before) {
					tasks = append(tasks, id)
				}
				if len(tasks) == limit {
					return tasks, keys[i]
				}
			}
		}
	}
	return tasks, nil
}

// isWaiting reports whether the task of a row is waiting there, and was created by a time.
func (q *Queue) isWaiting(r *Round, row []byte, id task.ID, before store.Time) bool {
	x, err := r.Exec(q.ns, id)
	if row[0] == schema.TableReady && (err != nil || x.State != task.Ready || !bytes.Equal(row, schema.ReadyKey(q.ns, q.name, x.Lane(), x.Seq))) {
		return false // it has left its lane, but its row remains
	}
	if err != nil {
		schema.Damaged(err)
	}
	return x.CreatedAt <= before
}
