package engine

import (
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Queue is the leader's memory of one queue.
type Queue struct {
	queueName
	config   task.QueueConfig
	space    *limit.Space
	waits    limit.Waiter
	own      limit.QueueLimits
	counts   schema.Counts
	lanes    *lanes.Set
	limits   limit.Set
	breakers *breaker.Set // nil: no rule
	order    lanes.OrderSet
	credit   lanes.CreditsByTypes // of the priorities
	dirty    bool
	starved  bool   // a claim found nothing while lanes were unread, or expired tasks were first
	expiring uint64 // the round in which claims found too many expired tasks
}

func (l *Leader) newQueue(name queueName, s *limit.Space) *Queue {
	q := &Queue{queueName: name, space: s, waits: limit.Waiter{Queue: name.name}, order: l.orders.NewSet(name.ns, name.name)}
	q.limits = limit.NewSet(name.ns, name.name, &q.config.Settings, q)
	q.own = limit.NewQueueLimits(name.ns, name.name, &q.config, &q.counts)
	q.lanes = lanes.New(name.ns, name.name, q)
	return q
}

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Config returns the shard's copy of the queue's configuration. It must not be changed.
func (q *Queue) Config() *task.QueueConfig { return &q.config }

// strict reports whether tasks of one key run strictly in order.
func (q *Queue) strict() bool { return q.config.Settings.KeyOrder == task.KeyOrderStrict }

// retryOf, timeoutOf and maxAttempts return the rule of the task, or else that of its queue.
func (q *Queue) retryOf(e *schema.Envelope) task.Retry {
	if e.Retry != nil {
		return *e.Retry
	}
	return q.config.Settings.Retry
}

func (q *Queue) timeoutOf(e *schema.Envelope) time.Duration {
	if e.Timeout > 0 {
		return e.Timeout
	}
	return q.config.Settings.Timeout
}

func (q *Queue) maxAttempts(x *schema.Exec) int {
	if x.MaxAttempts > 0 {
		return x.MaxAttempts
	}
	return q.config.Settings.MaxAttempts
}

// LastAttempt returns the number of the last possible attempt, which is shown next to the current one ("2 of 5").
func (q *Queue) LastAttempt(x *schema.Exec) int { return x.Exhausted + q.maxAttempts(x) }
