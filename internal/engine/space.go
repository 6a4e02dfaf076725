package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A namespace may use so much of each shard: its share, a row. What it uses is the sum of its queues' counters, which change with
// the tasks, so there is nothing beside them that could drift; the sum is leader memory, made once in a term.

// space is the leader's memory of a namespace.
type space struct {
	ns      string
	share   task.Share
	use     task.Amounts
	ready   int64     // tasks that could run, but for limits
	queues  int       // that the shard has a part of
	refused [3]uint64 // tasks, by the quota; of running, how often a claim found the namespace full. As task.Amounts.Each

	blocked []*Queue // asked for tasks while the namespace ran all that it may, in that order
	freed   bool     // among the round's
}

// spaceOf gives the memory of a namespace, which it reads before any of its queues is changed.
func (r *Round) spaceOf(ns string) *space {
	if s := r.l.spaces[ns]; s != nil {
		return s
	}
	s := &space{ns: ns, share: readShare(r.tx, ns)}
	scanCounts(r.tx, ns, s.add)
	lo, hi := schema.TableBounds(ns, schema.TableQueue)
	r.tx.Scan(lo, hi, func(_, _ []byte) bool {
		s.queues++
		return true
	})
	r.l.spaces[ns] = s
	return s
}

func (s *space) add(c *schema.Counts) {
	s.use.Backlog += c.Waiting() + c.Claimed
	s.use.Bytes += c.Bytes
	s.use.Running += c.Claimed
	s.ready += c.Ready[0] + c.Ready[1] + c.Ready[2]
}

// scanCounts reads the counters of a namespace's queues.
func scanCounts(from store.Reader, ns string, fn func(*schema.Counts)) {
	lo, hi := schema.TableBounds(ns, schema.TableCounts)
	from.Scan(lo, hi, func(_, v []byte) bool {
		c, err := schema.DecodeCounts(v)
		schema.Must(err)
		fn(&c)
		return true
	})
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

// counted keeps the sums in step with a queue's counters, when a task comes (+1) or goes (-1) that has not ended.
func (s *space) counted(x *schema.Exec, n int64) {
	s.use.Backlog += n
	s.use.Bytes += n * x.Size
	switch x.State {
	case task.Claimed:
		s.use.Running += n
	case task.Ready:
		s.ready += n
	}
}

// admit refuses tasks for which the namespace has no room. Those that make room for them go.
func (s *space) admit(tasks, replaced, size int64) error {
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
func (s *space) overQuota(q task.Quota, most int64, used string) error {
	return &task.Error{Code: task.CodeQueueFull, Reason: string(q), RetryAfter: time.Second,
		Message: fmt.Sprintf("namespace %q is full: %s in this shard, where its share of %s is %d", s.ns, used, q, most)}
}

// full says whether the namespace runs as much as it may in this shard.
func (s *space) full() bool { return s.use.Running >= s.share.Running }

// block remembers that a queue was asked for tasks which its namespace keeps from running.
func (s *space) block(q *Queue) {
	if !q.blocked {
		q.blocked = true
		s.refused[2]++
		s.blocked = append(s.blocked, q)
	}
}

// roomIn notes that a namespace may run more, if somebody waits for that.
func (r *Round) roomIn(s *space) {
	if len(s.blocked) > 0 && !s.full() && !s.freed {
		s.freed = true
		r.spaces = append(r.spaces, s)
	}
}

// WakeBlocked wakes the next queue of a namespace that may run more by what the round has done, and says whether there was one. A
// queue a step, so that a namespace with thousands of them costs each round what it uses.
func (r *Round) WakeBlocked() bool {
	for len(r.spaces) > 0 {
		s := r.spaces[len(r.spaces)-1]
		if len(s.blocked) > 0 && !s.full() {
			q := s.blocked[0]
			s.blocked[0] = nil
			s.blocked = s.blocked[1:]
			q.blocked = false
			r.wake(q)
			return true
		}
		s.freed = false
		r.spaces = r.spaces[:len(r.spaces)-1]
	}
	return false
}

// PutShare replaces a namespace's share of the shard, unless the one that is there is as new, and tells what it uses. What is there
// stays, however small the share.
func PutShare(r *Round, ns string, to task.Share) task.Space {
	s := r.spaceOf(ns)
	if s.share.Version < to.Version {
		s.share = to
		r.tx.Set(schema.Table(ns, schema.TableShare), schema.EncodeShare(to))
		r.roomIn(s)
	}
	return s.info()
}

// Space tells what a namespace uses.
func Space(r *Round, ns string) task.Space { return r.spaceOf(ns).info() }

func (s *space) info() task.Space {
	return task.Space{Namespace: s.ns, Share: s.share, Use: s.use, Ready: s.ready, Queues: s.queues, Refused: s.refused}
}

// dropped forgets a queue that is deleted.
func (s *space) dropped(q *Queue) {
	s.queues--
	if q.blocked {
		s.blocked = slices.DeleteFunc(s.blocked, func(b *Queue) bool { return b == q })
	}
}
