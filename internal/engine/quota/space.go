// Package quota is what a namespace may use of a shard: how many tasks that have not ended, how many bytes of them, how many at once.
// It knows the shard's share, a row, and not how a quota is divided among shards. Of queues it knows the counters and the names.
package quota

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Space is the leader's memory of a namespace. What the namespace uses is the sum of its queues' counters, which change with the tasks, so
// there is nothing beside them that could drift; the sum is made once in a term.
type Space struct {
	ns      string
	share   task.Share
	use     task.Amounts
	ready   int64     // tasks that could run, but for limits
	queues  int       // that the shard has a part of
	refused [3]uint64 // tasks, by the quota; of running, how often a claim found the namespace full. As task.Amounts.Each

	blocked []*Waiter // asked for tasks while the namespace ran all that it may, in that order
	freed   bool      // among the round's
}

// Waiter is a queue that may have to wait until its namespace may run more.
type Waiter struct {
	Queue   string
	blocked bool // among those of its space
}

// Open reads how a namespace stands, before any of its queues is changed.
func Open(from store.Reader, ns string) *Space {
	s := &Space{ns: ns, share: readShare(from, ns)}
	lo, hi := schema.TableBounds(ns, schema.TableCounts)
	from.Scan(lo, hi, func(_, v []byte) bool {
		c, err := schema.DecodeCounts(v)
		schema.Must(err)
		s.add(&c)
		return true
	})
	lo, hi = schema.TableBounds(ns, schema.TableQueue)
	from.Scan(lo, hi, func(_, _ []byte) bool {
		s.queues++
		return true
	})
	return s
}

func (s *Space) add(c *schema.Counts) {
	s.use.Backlog += c.Waiting() + c.Claimed
	s.use.Bytes += c.Bytes
	s.use.Running += c.Claimed
	s.ready += c.Ready[0] + c.Ready[1] + c.Ready[2]
}

func readShare(from store.Reader, ns string) task.Share {
	row, ok := from.Get(schema.Table(ns, schema.TableShare))
	if !ok {
		return task.Share{Amounts: task.Unlimited}
	}
	s, err := schema.DecodeShare(row)
	schema.Must(err)
	return s
}

// Info tells what the namespace uses.
func (s *Space) Info() task.Space {
	return task.Space{Namespace: s.ns, Share: s.share, Use: s.use, Ready: s.ready, Queues: s.queues, Refused: s.refused}
}

// SetShare replaces the namespace's share of the shard, unless the one that is there is as new. What is there stays, however small the
// share.
func (s *Space) SetShare(tx *store.Tx, to task.Share) (changed bool) {
	if s.share.Version >= to.Version {
		return false
	}
	s.share = to
	tx.Set(schema.Table(s.ns, schema.TableShare), schema.EncodeShare(to))
	return true
}

// AddQueue counts a queue that is new in the shard.
func (s *Space) AddQueue() { s.queues++ }

// DropQueue forgets a queue that is deleted.
func (s *Space) DropQueue(w *Waiter) {
	s.queues--
	if w.blocked {
		s.blocked = slices.DeleteFunc(s.blocked, func(b *Waiter) bool { return b == w })
	}
}

// Count keeps the sums in step with a queue's counters, when a task comes (+1) or goes (-1) that has not ended.
func (s *Space) Count(x *schema.Exec, n int64) {
	s.use.Backlog += n
	s.use.Bytes += n * x.Size
	switch x.State {
	case task.Claimed:
		s.use.Running += n
	case task.Ready:
		s.ready += n
	}
}

// Admit refuses tasks for which the namespace has no room. Those that make room for them go.
func (s *Space) Admit(tasks, replaced, size int64) error {
	switch {
	case tasks > 0 && s.use.Backlog+tasks-replaced > s.share.Backlog:
		s.refused[0]++
		return s.overQuota(task.QuotaBacklog, s.share.Backlog, fmt.Sprintf("it has %d tasks that have not ended", s.use.Backlog))
	case size > 0 && s.use.Bytes+size > s.share.Bytes:
		s.refused[1]++
		return s.overQuota(task.QuotaBacklogBytes, s.share.Bytes, fmt.Sprintf("its tasks that have not ended have %d bytes, and %d more are asked for", s.use.Bytes, size))
	}
	return nil
}

// overQuota refuses a task. The numbers are those of the shard: what the whole namespace may have is shared out.
func (s *Space) overQuota(q task.Quota, most int64, used string) error {
	return &task.Error{Code: task.CodeQueueFull, Reason: string(q), RetryAfter: time.Second,
		Message: fmt.Sprintf("namespace %q is full: %s in this shard, where its share of %s is %d", s.ns, used, q, most)}
}

// Full says whether the namespace runs as much as it may in this shard.
func (s *Space) Full() bool { return s.use.Running >= s.share.Running }
