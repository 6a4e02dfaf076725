package engine

import (
	"bytes"
	"slices"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Purging is how far the purge of a queue has come.
type Purging struct {
	Done    bool
	before  store.Time // it discards tasks created by this time; 0: it has not begun
	created []task.ID  // but not these: its first round created them by ending others
	next    []byte     // the row to go on from. At the first row again, it would pass all that it has deleted
}

// Purge discards up to limit of the tasks of a queue that are waiting when the purge begins. It is called until the
// purge is done, each time with what the last call has returned.
func Purge(r *Round, ns, name string, p Purging, limit int) (n int, after Purging, err error) {
	q := r.Queue(ns, name)
	if q == nil {
		return 0, p, task.NotFound("queue", name)
	}
	if p.before == 0 {
		p.before = r.now
	}
	from := p.next
	tasks, next := q.waiting(r, &p, limit)
	earlier := len(r.Transitions)
	for _, id := range tasks {
		x, err := r.Exec(ns, id)
		if err != nil || !x.State.Waiting() {
			continue // the end of a task before it ended its group, and the task that this enqueued has replaced it
		}
		c := r.Change(ns, id, x)
		c.Finish(task.Discarded, task.ReasonPurged)
		n++
	}
	own := r.Transitions[earlier:]
	for i := range own {
		if own[i].Created() && r.now == p.before {
			p.created = append(p.created, own[i].ID)
		}
	}
	if first := schema.QueueKey(ns, schema.TableReady, name); next == nil && from != nil && !bytes.Equal(from, first) {
		next = first // tasks may have moved to rows before from
	}
	p.next, p.Done = next, next == nil
	return n, p, nil
}

// waiting returns up to limit tasks of a queue for a purge. If there are more, next is the row to go on from.
func (q *Queue) waiting(r *Round, p *Purging, limit int) (tasks []task.ID, next []byte) {
	from := p.next
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
				if q.isWaiting(r, keys[i], id, p) {
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

// isWaiting reports whether the task of a row is waiting there, and was when the purge began.
func (q *Queue) isWaiting(r *Round, row []byte, id task.ID, p *Purging) bool {
	x, err := r.Exec(q.ns, id)
	if row[0] == schema.TableReady && (err != nil || x.State != task.Ready ||
		!bytes.Equal(row, schema.ReadyKey(q.ns, q.name, x.Lane(), x.Seq))) {
		return false // it has left its lane, but its row remains
	}
	if err != nil {
		schema.Damaged(err)
	}
	return x.CreatedAt <= p.before && !slices.Contains(p.created, id)
}
