package engine

import (
	"fmt"
	"strings"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// PutQueue replaces the shard's copy of a queue's configuration with that of the system shard. A version that is not newer changes nothing.
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
		q.credit = lanes.CreditsByTypes{}
	}
	was := q.config
	if q.limits.Follow(r, &config.Settings) {
		q.in(r).SweepLater()
	}
	q.config = config
	q.own.Follow(r.tx, &was)
	q.in(r).followBreakers(&was.Settings)
	q.in(r).holdAll()
	r.tx.Set(schema.QueueKey(ns, schema.TableQueue, name), config.Encode())
	if !config.Paused {
		q.in(r).Wake()
	}
}

// HasQueue reports whether the shard has a copy of the queue's configuration.
func HasQueue(r *Round, ns, name string) bool { return r.Queue(ns, name) != nil }

// OlderThan reports whether the shard's copy of the queue is older than a version by which a slot has left the shard.
// Then the shard must not say yet that it does not know a key of the slot: it could learn it afterwards, from a caller
// whose map is as old as the copy.
func (q *Queue) OlderThan(version uint64) bool { return q.config.Version < version }

// CanAnswer reports whether the shard's copies of queues are new enough for tasks whose slots have left it: see OlderThan.
func CanAnswer(r *Round, ns string, specs []task.Spec) bool {
	for i := range specs {
		if s := &specs[i]; s.Left {
			if q := r.Queue(ns, s.Queue); q == nil || q.OlderThan(s.Routed) {
				return false
			}
		}
	}
	return true
}

// CopiedQueue is a queue that a shard has a copy of.
type CopiedQueue struct {
	Namespace, Name string
	Config          task.QueueConfig
}

// CopiedQueues returns the queues of all namespaces that a shard has copies of.
func CopiedQueues(from store.Reader) (queues []CopiedQueue, err error) {
	from.Scan([]byte{schema.TableQueue}, []byte{schema.TableQueue + 1}, func(k, v []byte) bool {
		names := strings.Split(string(k[1:]), "\x00")
		if len(names) != 3 {
			err = fmt.Errorf("queue row %q: unknown format", k)
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

// DropQueue removes the shard's copy of a queue that has no tasks left, apart from succeeded, discarded and cancelled ones. A copy that is
// newer than version stays: the queue was used after somebody decided to drop it, and the call came late.
func DropQueue(r *Round, ns, name string, version uint64) error {
	q := r.Queue(ns, name)
	if q == nil {
		return nil
	} else if q.config.Version > version {
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("delete queue %q: it was used meanwhile", name)}
	}
	if c := q.counts; c.Waiting()+c.Claimed+c.Dead+c.Poisoned > 0 {
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(
			"delete queue %q: it is not empty: it has %d waiting, %d claimed, %d dead and %d poisoned tasks", name, c.Waiting(), c.Claimed,
			c.Dead, c.Poisoned)}
	}
	delete(r.l.queues, q.queueName)
	q.order.Drop()
	q.space.DropQueue(&q.waits)
	q.limits.Drop(r.tx)
	q.own.Drop(r.tx)
	r.tx.Delete(schema.DeadlineKey(q.counts.Sweep, schema.OnSweep, ns, []byte(name)))
	if q.breakers != nil {
		q.breakers.Drop(q.in(r))
	}
	r.tx.Delete(schema.QueueKey(ns, schema.TableQueue, name))
	r.tx.Delete(schema.QueueKey(ns, schema.TableCounts, name))
	return nil
}
