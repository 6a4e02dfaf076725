package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Purge discards up to limit of the tasks of a queue that waited at time before, and says whether there may be more.
func Purge(r *Round, ns, name string, before store.Time, limit int) (n int, more bool, err error) {
	q := r.Queue(ns, name)
	if q == nil {
		return 0, false, task.NotFound("queue", name)
	}
	for _, t := range q.waiting(r, before, limit) {
		from := t.exec
		if from.Order != 0 {
			from = r.execOf(ns, t.id) // the end of the one before may have moved it
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

// waiting finds up to limit tasks that wait in a queue since before a time.
func (q *Queue) waiting(r *Round, before store.Time, limit int) (tasks []found) {
	take := func(id task.ID) bool {
		x, err := r.Exec(q.ns, id)
		schema.Must(err)
		if x.CreatedAt <= before {
			tasks = append(tasks, found{id, x})
		}
		return len(tasks) < limit
	}
	prefix := schema.QueueKey(q.ns, schema.TableReady, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(_, v []byte) bool {
		id, _, ok := schema.DecodeReady(v)
		if !ok {
			schema.Must(fmt.Errorf("a ready row of queue %q", q.name))
		}
		return take(id)
	})
	prefix = schema.QueueKey(q.ns, schema.TableLane, q.name)
	if len(tasks) < limit {
		r.tx.Scan(prefix, schema.After(prefix), func(_, v []byte) bool {
			l, err := schema.DecodeLane(v)
			schema.Must(err)
			return l.InRow.Seq == 0 || take(l.InRow.ID)
		})
	}
	for _, s := range []task.State{task.Ready, task.Scheduled, task.Retrying} { // ready ones that no lane has
		if len(tasks) < limit {
			prefix := schema.StatePrefix(q.ns, schema.TableWaiting, q.name, s)
			r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool { return take(schema.IDAt(k)) })
		}
	}
	return tasks
}
