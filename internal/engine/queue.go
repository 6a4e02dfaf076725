package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// PutQueue makes the shard's copy of a queue's configuration what the system shard says. An older version than the one
// that is there changes nothing.
func PutQueue(r *Round, ns, name string, config task.QueueConfig) {
	q := r.Queue(ns, name)
	if q == nil {
		q = r.l.newQueue(queueName{ns, name}, r.spaceOf(ns))
		q.space.AddQueue()
		r.l.queues[q.queueName] = q
		q.in(r).touch()
	} else if q.config.Version >= config.Version {
		return
	}
	if q.config.Settings.Weights != config.Settings.Weights {
		q.credit = [3]int{}
	}
	was := q.config.Settings
	if q.limits.Follow(r, &config.Settings) {
		q.in(r).SweepLater()
	}
	q.config = config
	q.in(r).followBreakers(&was)
	q.in(r).holdAll()
	r.tx.Set(schema.QueueKey(ns, schema.TableQueue, name), config.Encode())
	if !config.Paused {
		q.in(r).Wake()
	}
}

// HasQueue says whether the shard has a copy of the queue's configuration.
func HasQueue(r *Round, ns, name string) bool { return r.Queue(ns, name) != nil }

// CopiedQueue is a queue that a shard has a copy of.
type CopiedQueue struct {
	Namespace, Name string
	Config          task.QueueConfig
}

// CopiedQueues are the queues of all namespaces that a shard has copies of.
func CopiedQueues(from store.Reader) (queues []CopiedQueue, err error) {
	from.Scan([]byte{schema.TableQueue}, []byte{schema.TableQueue + 1}, func(k, v []byte) bool {
		names := strings.Split(string(k[1:]), "\x00")
		if len(names) != 3 {
			err = fmt.Errorf("queue row %q: unknown form", k)
			return false
		}
		q := CopiedQueue{Namespace: names[0], Name: names[1]}
		if q.Config, err = task.DecodeQueueConfig(v); err != nil {
			return false
		}
		queues = append(queues, q)
		return true
	})
	return queues, err
}

// DropQueue removes the shard's copy of a queue that has no task left, except such as have ended for good.
func DropQueue(r *Round, ns, name string) error {
	q := r.Queue(ns, name)
	if q == nil {
		return nil
	}
	if c := q.counts; c.Waiting()+c.Claimed+c.Dead+c.Poisoned > 0 {
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(
			"delete queue %q: it is not empty: %d tasks wait, %d are claimed, %d are dead, %d are poisoned", name, c.Waiting(), c.Claimed, c.Dead, c.Poisoned)}
	}
	delete(r.l.queues, q.queueName)
	q.order.Drop()
	q.space.DropQueue(&q.waits)
	q.limits.Drop(r.tx)
	r.tx.Delete(schema.DeadlineKey(q.counts.Sweep, schema.OnSweep, ns, []byte(name)))
	if q.breakers != nil {
		q.breakers.Drop(q.in(r))
	}
	r.tx.Delete(schema.QueueKey(ns, schema.TableQueue, name))
	r.tx.Delete(schema.QueueKey(ns, schema.TableCounts, name))
	return nil
}

// KeysUntil is when the last of a queue's idempotency keys ends; 0: it has none.
func KeysUntil(from store.Reader, ns, name string) (last store.Time, err error) {
	keys := schema.IdempotencyKey(ns, name, "")
	from.Scan(keys, schema.After(keys), func(_, v []byte) bool {
		var k schema.KeyRow
		k, err = schema.DecodeKey(v)
		last = max(last, k.Until)
		return err == nil
	})
	return last, err
}

// QueueInfo is how a queue stands in one shard.
type QueueInfo struct {
	Config                                       task.QueueConfig
	Scheduled, Claimed, Retrying, Dead, Poisoned int64
	Ready                                        [3]int64 // by priority, high first
	Held                                         int64    // of the ready: may not run now
	OldestReady                                  time.Duration
	Breakers                                     []breaker.Info // that are not closed: up to 100, the longest open first
	BreakersOpen                                 int            // how many there are
}

// DescribeQueue tells how a queue stands.
func DescribeQueue(r *Round, ns, name string) (QueueInfo, error) {
	q := r.Queue(ns, name)
	if q == nil {
		return QueueInfo{}, task.NotFound("queue", name)
	}
	c := q.counts
	i := QueueInfo{Config: q.config, Scheduled: c.Scheduled, Claimed: c.Claimed, Retrying: c.Retrying, Dead: c.Dead,
		Poisoned: c.Poisoned, Ready: c.Ready}
	i.Held = q.heldTasks(r.now)
	i.Breakers, i.BreakersOpen = q.breakers.Told(&q.config.Settings)
	for _, p := range task.Priorities {
		if since, some := q.lanes.Oldest(&r.lanes, p); some {
			i.OldestReady = max(i.OldestReady, r.now.Sub(since))
		}
	}
	return i, nil
}

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
