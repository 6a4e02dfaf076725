package limit

import (
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// QueueLimits is the leader's memory of how many tasks of a queue may run and wait in the shard: as many as the queue's
// settings say or, if these limits are divided among several shards, as the shard's share of them says. A shard that
// has no share yet may use nothing.
type QueueLimits struct {
	ns, queue string
	config    *task.QueueConfig
	counts    *schema.Counts
	share     task.Share
	refused   uint64 // tasks refused because of the maximum length
}

// NewQueueLimits returns the limits of a queue that is new in the shard. It reads settings and counters through the
// pointers, so it sees later changes.
func NewQueueLimits(ns, queue string, config *task.QueueConfig, counts *schema.Counts) QueueLimits {
	return QueueLimits{ns: ns, queue: queue, config: config, counts: counts}
}

func (l *QueueLimits) key() []byte { return schema.QueueKey(l.ns, schema.TableShare, l.queue) }

// Read reads the shard's share, if the limits are divided.
func (l *QueueLimits) Read(from store.Reader) {
	if !l.config.Divided {
		return
	}
	if row, ok := from.Get(l.key()); ok {
		share, err := schema.DecodeShare(row)
		l.share = schema.MustRow(l.key(), share, err)
	}
}

// Follow follows a copy of the queue that has replaced another; the zero QueueConfig: there was none. If the limits are
// divided from now on, the shard begins with a share of all, since it has had the whole queue so far. A copy of an
// earlier queue of that name, which came late, leaves nothing.
func (l *QueueLimits) Follow(tx *store.Tx, was *task.QueueConfig) {
	same := was.CreatedAt.Equal(l.config.CreatedAt)
	switch {
	case was.Divided && !same:
		tx.Delete(l.key())
		l.share = task.Share{}
	case l.config.Divided && !was.Divided && was.Version != 0 && same:
		l.set(tx, task.Share{Amounts: l.config.Settings.Limits().Whole()})
	}
}

// SetShare replaces the shard's share, unless the present one is as new, or the limits are not divided. Slots have not
// moved since the share was made: otherwise the shard may have dropped the queue meanwhile, and its part of a later
// queue begins with nothing.
func (l *QueueLimits) SetShare(tx *store.Tx, to task.Share) (changed bool) {
	if !l.config.Divided || l.share.Version >= to.Version || l.config.Moved > to.Moved {
		return false
	}
	l.set(tx, to)
	return true
}

func (l *QueueLimits) set(tx *store.Tx, to task.Share) {
	to.Moved = 0
	l.share = to
	tx.Set(l.key(), schema.EncodeShare(to))
}

// Drop removes what is stored.
func (l *QueueLimits) Drop(tx *store.Tx) {
	if l.config.Divided {
		tx.Delete(l.key())
	}
}

// Info returns what the queue uses, of which ready tasks held may not run anyway. A queue that is not divided may use
// all of its limits, and one without a limit what it likes, whatever its share says.
func (l *QueueLimits) Info(held int64) task.Space {
	c := l.counts
	use := task.Amounts{Backlog: c.Waiting(), Running: c.Claimed}
	s := task.Space{Namespace: l.ns, Queues: 1, Copy: l.config.Version, Share: l.share, Use: use, Refused: [3]uint64{l.refused}}
	whole := l.config.Settings.Limits().Whole()
	for f, share := range s.Share.Each() {
		if all := *whole.Each()[f]; !l.config.Divided || all == task.NoLimit {
			*share = all
		}
	}
	if !l.config.Paused {
		s.Ready = max(c.Ready[0]+c.Ready[1]+c.Ready[2]-held, 0)
	}
	return s
}

// MaxRunning returns how many tasks of the queue may run in this shard at a time.
func (l *QueueLimits) MaxRunning() int64 {
	return l.part(int64(l.config.Settings.MaxRunning), l.share.Running)
}

// part returns what of a limit applies in this shard. A limit of 0 is none.
func (l *QueueLimits) part(whole, share int64) int64 {
	switch {
	case whole == 0:
		return task.NoLimit
	case l.config.Divided:
		return min(whole, share)
	}
	return whole
}

// Full reports whether as many tasks run in this shard as may.
func (l *QueueLimits) Full() bool { return l.counts.Claimed >= l.MaxRunning() }

// Admit returns an error if the queue has no room for so many more tasks. Problem words it, with the queue's name and its length.
func (l *QueueLimits) Admit(tasks int64, problem string) error {
	most := l.part(l.config.Settings.MaxLength, l.share.Backlog)
	if tasks <= 0 || l.counts.Waiting()+tasks <= most {
		return nil
	}
	l.refused++
	limit := "max_length is"
	if l.config.Divided {
		limit = fmt.Sprintf("and this shard's share of max_length, which is %d, is", l.config.Settings.MaxLength)
	}
	return &task.Error{Code: task.CodeQueueFull, RetryAfter: time.Second, Message: fmt.Sprintf(problem+", %s %d", l.queue,
		l.counts.Waiting(), limit, most)}
}

// Same reports whether the shard's share is the same in two memories.
func (l *QueueLimits) Same(o *QueueLimits) bool { return l.share == o.share }
