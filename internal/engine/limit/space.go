package limit

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Space is the leader's memory of a namespace. Its usage is the sum of its queues' counters, which change with the
// tasks, so nothing can drift; the sum is computed once per term.
type Space struct {
	ns      string
	share   task.Share
	use     task.Amounts
	ready   int64     // tasks that could run if there were no limits
	queues  int       // queues with a partition in the shard
	refused [3]uint64 // tasks refused, by quota; for running, how often a claim found the namespace full. Ordered as in task.Amounts.Each

	blocked []*Waiter // queues claimed from while the namespace was at its running limit, in that order
	freed   bool      // listed in QuotaRound.spaces
}

// Waiter is a queue that may have to wait until its namespace may run more tasks.
type Waiter struct {
	Queue   string
	blocked bool // listed in Space.blocked
}

// OpenSpace reads the usage of a namespace. It must be called before any of its queues is changed.
func OpenSpace(from store.Reader, ns string) *Space {
	s := &Space{ns: ns, share: readShare(from, ns)}
	lo, hi := schema.TableBounds(ns, schema.TableCounts)
	from.Scan(lo, hi, func(k, v []byte) bool {
		c, err := schema.DecodeCounts(v)
		c = schema.MustRow(k, c, err)
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
	key := schema.Table(ns, schema.TableShare)
	row, ok := from.Get(key)
	if !ok {
		return task.Share{Amounts: task.Unlimited}
	}
	share, err := schema.DecodeShare(row)
	return schema.MustRow(key, share, err)
}

// Info returns what the namespace uses.
func (s *Space) Info() task.Space {
	return task.Space{Namespace: s.ns, Share: s.share, Use: s.use, Ready: s.ready, Queues: s.queues, Refused: s.refused}
}

// SetShare replaces the namespace's share in the shard, unless the present one is as new. Existing tasks stay, however small the share.
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

// DropQueue removes a queue that is deleted.
func (s *Space) DropQueue(w *Waiter) {
	s.queues--
	if w.blocked {
		s.blocked = slices.DeleteFunc(s.blocked, func(b *Waiter) bool { return b == w })
	}
}

// Count keeps the sums in step with a queue's counters: n is +1 when an unended task enters a state, and -1 when it leaves it.
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

// Admit returns an error if the namespace has no room for so many more tasks and bytes. What a call replaces counts against what it adds.
func (s *Space) Admit(tasks, size int64) error {
	switch {
	case tasks > 0 && s.use.Backlog+tasks > s.share.Backlog:
		s.refused[0]++
		return s.overQuota(task.QuotaBacklog, s.share.Backlog, fmt.Sprintf("it has %d unfinished tasks", s.use.Backlog))
	case size > 0 && s.use.Bytes+size > s.share.Bytes:
		s.refused[1]++
		return s.overQuota(task.QuotaBacklogBytes, s.share.Bytes,
			fmt.Sprintf("its unfinished tasks have %d bytes, and this call would add %d",
				s.use.Bytes, size))
	}
	return nil
}

// overQuota returns the error of a refused task. The numbers are those of the shard, since the namespace's quota is divided among shards.
func (s *Space) overQuota(q task.Quota, most int64, used string) error {
	return &task.Error{Code: task.CodeQueueFull, Reason: string(q), RetryAfter: time.Second,
		Message: fmt.Sprintf("namespace %q is full: %s in this shard, where its share of %s is %d", s.ns, used, q, most)}
}

// Full reports whether the namespace has reached its running limit in this shard.
func (s *Space) Full() bool { return s.use.Running >= s.share.Running }
