package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// QueueStatus is the status of a queue in one shard, in numbers.
type QueueStatus struct {
	Namespace, Queue                                    string
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	NewDead                                             int64 // recent dead letters that still exist
	MoreNewDead                                         bool  // there are more than were counted
	Paused                                              bool
	Idle                                                bool // it has ready tasks and no worker, and was not examined
	// Set by Examine, for the queues with the most ready tasks:
	Examined    bool
	OldestReady time.Duration
	MaxWait     time.Duration // from the queue's settings
	Blocked     []Blocked     // ready tasks that wait for something other than their turn and a free slot
}

// Blocked counts the ready tasks that wait for one reason. A task that waits for several is counted at each.
type Blocked struct {
	Why   task.Why
	Tasks int64
}

// MaxExamined is how many queues of QueueStatuses should be examined: each costs as much as Queue.
const MaxExamined = 200

// newDeadEach bounds the new dead letters counted per queue, and newDeadAll those of all queues, but at least one per queue is counted.
const newDeadEach, newDeadAll = 10_000, 50_000

// QueueStatuses returns the status of all queues that ever had a task. Dead letters that ended at since or later count
// as new. Ready are the queues with ready tasks, those with the most first; the caller should examine the first
// MaxExamined of them. It reads only the state.
func QueueStatuses(from store.Reader, since store.Time) (all []*QueueStatus, ready []*QueueStatus, err error) {
	var bad error
	from.Scan([]byte{schema.TableCounts}, []byte{schema.TableCounts + 1}, func(k, v []byte) bool {
		names := strings.Split(string(k[1:]), "\x00")
		c, err := schema.DecodeCounts(v)
		if err != nil || len(names) != 3 {
			bad = cmp.Or(err, fmt.Errorf("counts row %q: unknown format", k))
			return false
		}
		s := &QueueStatus{Namespace: names[0], Queue: names[1], Scheduled: c.Scheduled, Ready: c.Ready[0] + c.Ready[1] + c.Ready[2],
			Claimed: c.Claimed, Retrying: c.Retrying, Dead: c.Dead, Poisoned: c.Poisoned}
		all = append(all, s)
		if s.Ready > 0 {
			ready = append(ready, s)
		}
		return true
	})
	slices.SortStableFunc(ready, func(a, b *QueueStatus) int { return cmp.Compare(b.Ready, a.Ready) })
	left := int64(newDeadAll)
	for _, s := range all {
		if s.Dead > 0 {
			s.countNewDead(from, since, max(min(left, newDeadEach), 1))
			left -= s.NewDead
		}
	}
	return all, ready, bad
}

// countNewDead counts the dead letters that ended at since or later, at most that many. Those that have since been
// replayed or discarded have no row.
func (s *QueueStatus) countNewDead(from store.Reader, since store.Time, most int64) {
	prefix := schema.StatePrefix(s.Namespace, schema.TableDead, s.Queue, task.Dead)
	from.Scan(schema.TimedKey(slices.Clone(prefix), since, task.ID{}), schema.After(prefix), func(_, _ []byte) bool {
		if s.NewDead == most {
			s.MoreNewDead = true
			return false
		}
		s.NewDead++
		return true
	})
}

// IsIdle reports whether a queue with ready tasks has no worker, and whether the queue is paused. It looks only at the leader's memory.
func IsIdle(r *engine.Round, ns, name string, workers Workers) (idle, paused bool) {
	q := r.Queue(ns, name)
	if q == nil {
		return false, false
	}
	c := q.Counts()
	if c.Ready[0]+c.Ready[1]+c.Ready[2] == 0 {
		return false, false
	}
	return workers.code(workers.of(name, nil, r.Now()), c.Claimed) == task.WhyNoWorker, q.Config().Paused
}

// Examine adds details about a queue. The copy of the leader's memory may be slightly older or newer than the state.
func (s *QueueStatus) Examine(from store.Reader, m *Memory) error {
	e, err := Queue(from, s.Namespace, s.Queue, m)
	if err != nil {
		return err
	}
	s.Examined, s.MaxWait = true, e.MaxWait
	if e.OldestReady != 0 {
		s.OldestReady = max(m.Now.Sub(e.OldestReady), 0)
	}
	counts := map[task.Why]int64{}
	for i := range e.Reasons {
		why := &e.Reasons[i]
		counts[why.Code] += why.Count
		s.Paused = s.Paused || why.Code == task.WhyQueuePaused
	}
	for _, why := range task.Whys {
		if n := counts[why]; n > 0 && why != task.WhyWorkersBusy {
			s.Blocked = append(s.Blocked, Blocked{why, n})
		}
	}
	return nil
}

// Count returns the number of tasks in a state; 0: of those that have not ended.
func (s *QueueStatus) Count(of task.State) int64 {
	switch of {
	case task.Ready:
		return s.Ready
	case task.Dead:
		return s.Dead
	case task.Poisoned:
		return s.Poisoned
	}
	return s.Scheduled + s.Ready + s.Claimed + s.Retrying
}

// Waits returns how many ready tasks wait for a reason.
func (s *QueueStatus) Waits(why task.Why) int64 {
	for _, b := range s.Blocked {
		if b.Why == why {
			return b.Tasks
		}
	}
	return 0
}

// NoWorker reports whether the queue has ready tasks but no worker.
func (s *QueueStatus) NoWorker() bool { return s.Idle || s.Waits(task.WhyNoWorker) > 0 }

// Add adds the status of another part of the queue.
func (s *QueueStatus) Add(o *QueueStatus) {
	s.Idle = (s.Idle || s.Ready == 0) && (o.Idle || o.Ready == 0) && (s.Idle || o.Idle)
	s.Scheduled, s.Ready, s.Claimed = s.Scheduled+o.Scheduled, s.Ready+o.Ready, s.Claimed+o.Claimed
	s.Retrying, s.Dead, s.Poisoned = s.Retrying+o.Retrying, s.Dead+o.Dead, s.Poisoned+o.Poisoned
	s.NewDead, s.MoreNewDead = s.NewDead+o.NewDead, s.MoreNewDead || o.MoreNewDead
	s.Paused, s.Examined = s.Paused || o.Paused, s.Examined || o.Examined
	s.OldestReady, s.MaxWait = max(s.OldestReady, o.OldestReady), max(s.MaxWait, o.MaxWait)
	for _, b := range o.Blocked {
		if at := slices.IndexFunc(s.Blocked, func(c Blocked) bool { return c.Why == b.Why }); at >= 0 {
			s.Blocked[at].Tasks += b.Tasks
		} else {
			s.Blocked = append(s.Blocked, b)
		}
	}
}
