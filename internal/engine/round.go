package engine

import (
	"fmt"

	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/quota"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Round is one round of a leader: the state as it will be, and what its verbs have brought about. Verbs run one after
// another. Seal must be called once after the last.
type Round struct {
	tx       *store.Tx
	l        *Leader
	now      store.Time
	seqs     uint64 // numbers given by NextSeq
	born     int    // ticks that fired in it, as a measure of its work
	queues   []*Queue
	lanes    lanes.Round
	breakers []dirtyBreaker
	deaths   int      // of tasks that became dead letters or poisoned
	operated operated // what an operation changes at the moment
	quotas   quota.Round
	zones    []*zonemap.Map // to be sealed
	memory   map[any]any    // of policies, by the types of what they remember
	shared   sharedRows
	Effects
}

// Begin starts a round over tx.
func (l *Leader) Begin(tx *store.Tx) *Round {
	r := &Round{tx: tx, l: l, now: tx.Now(), Effects: Effects{Transitions: l.noTransitions()}}
	r.lanes = lanes.Begin(tx, func(ns string, next []schema.ReadyTask) { l.hot.Warm(tx, ns, next) })
	return r
}

// Now is the shard's time of the round.
func (r *Round) Now() store.Time { return r.now }

// Deaths is how many tasks became dead letters or poisoned in the round.
func (r *Round) Deaths() int { return r.deaths }

// Tx takes what a verb writes, and reads the state as it will be after the round.
func (r *Round) Tx() *store.Tx { return r.tx }

// Leader is the memory of the leader whose round it is.
func (r *Round) Leader() *Leader { return r.l }

// Limits are those of the shard.
func (r *Round) Limits() task.Limits { return r.l.limits }

// CountBirth counts a task that is born in the shard, as a measure of the round's work: with BirthLimit of them the next deadlines wait
// for the next round.
func (r *Round) CountBirth() { r.born++ }

// YieldTurn lets the next deadlines wait for the next round.
func (r *Round) YieldTurn() { r.born = BirthLimit }

// DeletesFrom is when retention may delete, if the clock of a new leader is in doubt. Until then nothing is deleted.
func (r *Round) DeletesFrom() (at store.Time, doubted bool) {
	at, doubted = r.l.term.Doubted()
	return at, doubted && r.now < at
}

// Rewrite writes the row of a task outside of a move: nothing may change in it by which the task is counted, ordered or found.
func (r *Round) Rewrite(ns string, id task.ID, x *schema.Exec) {
	r.setExec(ns, id, x)
	r.l.hot.Drop(id)
}

func (r *Round) setExec(ns string, id task.ID, x *schema.Exec) {
	r.l.row = x.AppendTo(r.l.row[:0])
	r.tx.Set(schema.IDKey(ns, schema.TableExec, id), r.l.row)
}

// ChangedBy names the operation that changes a task, as long as do runs. What else changes by it, such as the next task with its unique
// key, is not the operation's.
func (r *Round) ChangedBy(operation, id task.ID, do func() error) error {
	r.operated = operated{id, operation}
	defer func() { r.operated = operated{} }()
	return do()
}

type operated struct{ id, by task.ID }

// State is the state as it will be after the round, to be read until the round ends.
func (r *Round) State() store.Reader { return r.tx }

// Written is how many bytes the round has written so far.
func (r *Round) Written() int { return r.tx.Size() }

// seqBits leaves room for a million numbers in one round: tasks that become ready, and rows of deadlines that they share.
const seqBits = 20

// NextSeq is a number that the shard gives once, greater than all before: rounds are ordered by their index in the log. A task that becomes
// ready has its place by it.
func (r *Round) NextSeq() uint64 {
	r.seqs++
	if r.seqs >= 1<<seqBits {
		panic(fmt.Sprintf("one round took over %d sequence numbers", 1<<seqBits))
	}
	return r.tx.Index()<<seqBits | r.seqs
}

// Seal writes the counters, lanes, breakers and shared deadlines that the round changed.
func (r *Round) Seal() {
	for _, q := range r.queues {
		q.dirty = false
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
	r.shared.seal(r)
	r.l.transitions = r.Transitions
}

// Queue returns the memory of a queue, reading it if need be; nil if the shard has no such queue.
func (r *Round) Queue(ns, name string) *Queue {
	qn := queueName{ns, name}
	if q := r.l.queues[qn]; q != nil {
		return q
	}
	row, ok := r.tx.Get(schema.QueueKey(ns, schema.TableQueue, name))
	if !ok {
		return nil
	}
	config, err := task.DecodeQueueConfig(row)
	schema.Must(err)
	q := r.l.newQueue(qn, r.spaceOf(ns))
	q.config = config
	if row, ok = r.tx.Get(schema.QueueKey(ns, schema.TableCounts, name)); ok {
		q.counts, err = schema.DecodeCounts(row)
		schema.Must(err)
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

// Exec reads where a task is. The row must not be changed: verbs work on a copy.
func (r *Round) Exec(ns string, id task.ID) (*schema.Exec, error) {
	if x := r.l.hot.Exec(ns, id); x != nil {
		return x, nil
	}
	return schema.ReadExec(r.tx, ns, id)
}

// execOf is where a task is that must be there.
func (r *Round) execOf(ns string, id task.ID) *schema.Exec {
	x, err := r.Exec(ns, id)
	schema.Must(err)
	return x
}

func (r *Round) Envelope(ns string, id task.ID) *schema.Envelope {
	if e := r.l.hot.Envelope(ns, id); e != nil {
		return e
	}
	return schema.ReadEnvelope(r.tx, ns, id)
}

// Checkpoint is what a task last said of how far it is.
func (r *Round) Checkpoint(ns string, id task.ID, x *schema.Exec) (b []byte) {
	if x.Checkpointed {
		b, _ = r.tx.Get(schema.IDKey(ns, schema.TableCheckpoint, id))
	}
	return b
}

// QueueOf is the queue of a task, which must be there.
func (r *Round) QueueOf(ns string, x *schema.Exec) *Queue {
	q := r.Queue(ns, x.Queue)
	if q == nil {
		schema.Must(fmt.Errorf("a task lies in queue %q, which the shard does not have", x.Queue))
	}
	return q
}

// zonesOf is the zone map of a namespace.
func (r *Round) zonesOf(ns string) *zonemap.Map {
	zs := r.l.zones[ns]
	if zs == nil {
		zs = zonemap.Open(r.tx, ns)
		r.l.zones[ns] = zs
	}
	return zs
}

// idsOf tells which ids of a namespace are new.
func (r *Round) idsOf(ns string) *cache.IDs {
	n := r.l.ids[ns]
	if n == nil {
		n = &cache.IDs{}
		n.Load(r.tx, ns)
		r.l.ids[ns] = n
	}
	return n
}
