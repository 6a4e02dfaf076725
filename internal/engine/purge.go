package engine

import (
	"bytes"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Purge discards up to limit waiting tasks of a queue that were created by the time before. It reports whether there may be more.
func Purge(r *Round, ns, name string, before store.Time, limit int) (n int, more bool, err error) {
	q := r.Queue(ns, name)
	if q == nil {
		return 0, false, task.NotFound("queue", name)
	}
	for _, t := range q.waiting(r, before, limit) {
		from := t.exec
		if from.Order != 0 {
			from = r.execOf(ns, t.id) // the end of its predecessor may have moved it
		}
		c := r.Change(ns, t.id, from)
		c.Finish(task.Discarded, task.ReasonPurged)
		n++
	}
	return n, n == limit, nil
}

type found struct {
	id   task.ID
	exec *schema.Exec
}

// waiting returns up to limit waiting tasks of a queue that were created by a time.
func (q *Queue) waiting(r *Round, before store.Time, limit int) (tasks []found) {
	keep := func(id task.ID, x *schema.Exec) bool {
		if x.CreatedAt <= before {
			tasks = append(tasks, found{id, x})
		}
		return len(tasks) < limit
	}
	take := func(id task.ID) bool { return keep(id, r.execOf(q.ns, id)) }
	prefix := schema.QueueKey(q.ns, schema.TableReady, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		id, _, ok := schema.DecodeReady(v)
		if !ok {
			schema.Must(schema.ErrReady(k))
		}
		x, err := r.Exec(q.ns, id)
		if err != nil || x.State != task.Ready || !bytes.Equal(k, schema.ReadyKey(q.ns, q.name, x.Lane(), x.Seq)) {
			return true // it has left its lane, but its row remains
		}
		return keep(id, x)
	})
	prefix = schema.QueueKey(q.ns, schema.TableLane, q.name)
	if len(tasks) < limit {
		r.tx.Scan(prefix, schema.After(prefix), func(_, v []byte) bool {
			l, err := schema.DecodeLane(v)
			schema.Must(err)
			return l.InRow.Seq == 0 || take(l.InRow.ID)
		})
	}
	for _, s := range []task.State{task.Ready, task.Scheduled, task.Retrying} { // ready tasks that are in no lane
		if len(tasks) < limit {
			prefix := schema.StatePrefix(q.ns, schema.TableWaiting, q.name, s)
			r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool { return take(schema.IDAt(k)) })
		}
	}
	return tasks
}
