package engine

import (
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/deadline"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Round is one round of a leader: the state as it will be, and the effects of its verbs. Verbs run one after another.
// Seal must be called once after the last.
type Round struct {
	tx       *store.Tx
	l        *Leader
	now      store.Time
	expired  int // tasks discarded by claims
	created  int // tasks created in the shard, as a measure of work; see CreateLimit
	queues   []*Queue
	lanes    lanes.Round
	breakers []dirtyBreaker
	deaths   int      // tasks that became dead letters or poisoned
	operated operated // what an operation is changing
	quotas   limit.QuotaRound
	zones    []*zonemap.Map // to be sealed
	memory   map[any]any    // of policies, by the types of what they remember
	shared   deadline.Shared
	Effects
}

// Begin starts a round on tx.
func (l *Leader) Begin(tx *store.Tx) *Round {
	r := &Round{tx: tx, l: l, now: tx.Now(), Effects: Effects{Transitions: l.noTransitions()}}
	l.restored.Begin(tx)
	r.lanes = lanes.Begin(tx, func(ns string, next []schema.ReadyTask) { l.hot.Warm(tx, ns, next) })
	return r
}

// Now returns the shard's time in this round.
func (r *Round) Now() store.Time { return r.now }

// Deaths returns how many tasks became dead letters or poisoned in the round.
func (r *Round) Deaths() int { return r.deaths }

// Tx returns the round's transaction. It reads the state as it will be after the round.
func (r *Round) Tx() *store.Tx { return r.tx }

// Leader returns the memory of the leader that runs the round.
func (r *Round) Leader() *Leader { return r.l }

// CountCreated counts a task that the shard itself creates, as a measure of the round's work: after CreateLimit of them
// the next deadlines wait for the next round.
func (r *Round) CountCreated() { r.created++ }

// YieldTurn makes the next deadlines wait for the next round.
func (r *Round) YieldTurn() { r.created = CreateLimit }

// DeletesFrom returns when retention may delete again, and true if the clock of a new leader is in doubt. Until then nothing is deleted.
func (r *Round) DeletesFrom() (at store.Time, doubted bool) {
	at, doubted = r.l.term.Doubted()
	return at, doubted && r.now < at
}

// Rewrite writes the row of a task without a move. It must not change anything by which the task is counted, ordered or indexed.
func (r *Round) Rewrite(ns string, id task.ID, x *schema.Exec) {
	r.setExec(ns, id, x)
	r.l.hot.Drop(id)
}

func (r *Round) setExec(ns string, id task.ID, x *schema.Exec) {
	r.l.row = x.AppendTo(r.l.row[:0])
	r.tx.Set(schema.IDKey(ns, schema.TableExec, id), r.l.row)
}

// ChangedBy attributes changes of the task to an operation while do runs. Changes of other tasks that follow from it,
// such as of the next task with its unique key, are not attributed.
func (r *Round) ChangedBy(operation, id task.ID, do func() error) error {
	r.operated = operated{id, operation}
	defer func() { r.operated = operated{} }()
	return do()
}

type operated struct{ id, by task.ID }

// State returns the state as it will be after the round. It may be read until the round ends.
func (r *Round) State() store.Reader { return r.tx }

// NextSeq returns a number greater than all before it in the shard. Ready tasks are ordered by it within their lane.
func (r *Round) NextSeq() uint64 { return r.tx.NextSeq() }

// Seal writes the counters, lanes, breakers and shared deadlines that the round changed.
func (r *Round) Seal() {
	for _, q := range r.queues {
		q.dirty = false
		if r.l.queues[q.queueName] != q {
			continue // it was dropped
		}
		r.tx.Set(schema.QueueKey(q.ns, schema.TableCounts, q.name), q.counts.Encode())
	}
	r.queues = nil
	r.quotas.Seal()
	r.lanes.Seal()
	r.l.behind = append(r.l.behind, r.lanes.Behind...)
	r.sealBreakers()
	for _, zs := range r.zones {
		zs.Seal(r.tx)
	}
	r.zones = nil
	for _, seal := range r.l.points.seal {
		seal(r)
	}
	r.shared.Seal(r.tx, &r.l.timelines)
	r.l.transitions = r.Transitions
}

// Queue returns the memory of a queue, reading it if need be, or nil if the shard has no such queue.
func (r *Round) Queue(ns, name string) *Queue {
	qn := queueName{ns, name}
	if q := r.l.queues[qn]; q != nil {
		return q
	}
	key := schema.QueueKey(ns, schema.TableQueue, name)
	row, ok := r.tx.Get(key)
	if !ok {
		return nil
	}
	q := r.l.newQueue(qn, r.spaceOf(ns))
	config, err := task.DecodeQueueConfig(row)
	q.config = schema.MustRow(key, config, err)
	q.own.Read(r.tx)
	key = schema.QueueKey(ns, schema.TableCounts, name)
	if row, ok = r.tx.Get(key); ok {
		counts, err := schema.DecodeCounts(row)
		q.counts = schema.MustRow(key, counts, err)
	}
	in := q.in(r)
	in.readClaims()
	in.readBreakers()
	r.lanes.Open(q.lanes)
	in.readLater()
	in.holdAll()
	r.l.queues[qn] = q
	return q
}

// Exec returns the state of a task. It must not be changed: verbs work on a copy.
func (r *Round) Exec(ns string, id task.ID) (*schema.Exec, error) {
	if x := r.l.hot.Exec(ns, id); x != nil {
		return x, nil
	}
	return schema.ReadExec(r.tx, ns, id)
}

// Warm reads the states of tasks that the round will need, in one batch: one by one, each would cost the read of a block.
func (r *Round) Warm(ns string, ids []task.ID) { r.l.hot.WarmExecs(r.tx, ns, slices.Clone(ids)) }

// execOf returns the state of a task that must exist.
func (r *Round) execOf(ns string, id task.ID) *schema.Exec {
	return schema.Must(r.Exec(ns, id))
}

// Envelope returns the envelope of a task that must exist. It must not be changed.
func (r *Round) Envelope(ns string, id task.ID) *schema.Envelope {
	if e := r.l.hot.Envelope(ns, id); e != nil {
		return e
	}
	return schema.ReadEnvelope(r.tx, ns, id)
}

// Checkpoint returns the last checkpoint of a task.
func (r *Round) Checkpoint(ns string, id task.ID, x *schema.Exec) (b []byte) {
	if x.Checkpointed {
		b, _ = r.tx.Get(schema.IDKey(ns, schema.TableCheckpoint, id))
	}
	return b
}

// QueueOf returns the queue of a task. The queue must exist.
func (r *Round) QueueOf(ns string, x *schema.Exec) *Queue {
	q := r.Queue(ns, x.Queue)
	if q == nil {
		schema.Damaged(fmt.Errorf("a task is in queue %q, which the shard does not have", x.Queue))
	}
	return q
}

// zonesOf returns the zone map of a namespace.
func (r *Round) zonesOf(ns string) *zonemap.Map {
	zs := r.l.zones[ns]
	if zs == nil {
		zs = zonemap.Open(r.tx, ns)
		r.l.zones[ns] = zs
	}
	return zs
}

// MayUseID returns an error if a task has the id of a new group, and else records that the id is in use.
func (r *Round) MayUseID(ns string, request, id task.ID) error {
	if ids := r.idsOf(ns); ids.IsNew(id) {
		ids.Add(id)
		return nil
	}
	_, err := r.Exec(ns, id)
	if _, forgotten := r.tx.Get(schema.ForgottenKey(ns, id)); forgotten || err == nil {
		return ForeignID(request, "task", id)
	}
	return nil
}

// idsOf returns the cache that tells which ids of a namespace are new.
func (r *Round) idsOf(ns string) *cache.IDs {
	n := r.l.ids[ns]
	if n == nil {
		n = &cache.IDs{}
		n.Load(r.tx, ns)
		r.l.ids[ns] = n
	}
	return n
}
