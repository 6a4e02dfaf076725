package engine

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/cache"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/order"
	"github.com/pawlq/pawl/internal/engine/quota"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// LeaderTerm says since when and under which conditions a leader serves.
type LeaderTerm struct {
	Epoch  uint64     // of the shard: part of every claim token
	Began  store.Time // the shard's time when this leader began
	Before store.Time // the shard's last time before that
}

// Leader is what the leader of a shard remembers between rounds: settings, counters, the heads of lanes and the shares of
// weighted claims. All of it can be read again from the state. It changes while a round runs, so it must be thrown away
// when a round does not commit. It belongs to the shard's loop.
type Leader struct {
	term   LeaderTerm
	limits task.Limits
	queues map[queueName]*Queue
	orders order.Memory
	shares map[string][]int // credit of weighted sets of queues
	hot    *cache.Tasks
	ids    map[string]*cache.IDs   // by namespace
	spaces map[string]*quota.Space // the same
	zones  map[string]*zonemap.Map // the same

	timelines [len(schema.Timelines)]timeline
	reading   []*Queue // of which lanes are still to be read

	transitions []Transition // of the last round: its space is used again
	row         []byte       // space for an envelope or a state, which is copied when it is set
	points      *points
	memory      map[any]any // of policies, by the types of what they remember
}

type queueName struct{ ns, name string }

// NewLeader starts the memory of a leader, with policies in the order in which they act.
func NewLeader(o LeaderTerm, l task.Limits, policies ...Policy) *Leader {
	return &Leader{term: o, limits: l, points: pointsOf(policies), queues: map[queueName]*Queue{}, shares: map[string][]int{},
		hot: cache.NewTasks(), ids: map[string]*cache.IDs{}, spaces: map[string]*quota.Space{}, zones: map[string]*zonemap.Map{}}
}

// Queue is the leader's memory of one queue.
type Queue struct {
	queueName
	config   task.QueueConfig
	space    *quota.Space
	waits    quota.Waiter
	counts   schema.Counts
	lanes    *lanes.Set
	limits   limit.Set
	breakers *breaker.Set // nil: there is no rule
	order    order.Set
	credit   [3]int // smooth weighted round robin over the priorities
	dirty    bool
	starved  bool // a claim found nothing while lanes were unread
}

func (l *Leader) newQueue(name queueName, s *quota.Space) *Queue {
	q := &Queue{queueName: name, space: s, waits: quota.Waiter{Queue: name.name}, order: l.orders.NewSet(name.ns, name.name)}
	q.limits = limit.NewSet(name.ns, name.name, &q.config.Settings, q)
	q.lanes = lanes.New(name.ns, name.name, q)
	return q
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Config is the shard's copy of the queue's configuration, which must not be changed.
func (q *Queue) Config() *task.QueueConfig { return &q.config }

// Round is one round of a leader: the state as it will be, and what its verbs have brought about. Verbs run one after
// another. Seal must be called once after the last.
type Round struct {
	tx       *store.Tx
	l        *Leader
	now      store.Time
	ready    uint64 // tasks made ready in this round
	born     int    // ticks that fired in it, as a measure of its work
	queues   []*Queue
	lanes    lanes.Round
	breakers []dirtyBreaker
	deaths   int      // of tasks that became dead letters or poisoned
	operated operated // what an operation changes at the moment
	quotas   quota.Round
	zones    []*zonemap.Map // to be sealed
	memory   map[any]any    // of policies, by the types of what they remember
	Effects
}

// Effects are what others want to know of a round once it is committed.
type Effects struct {
	// Transitions are what became of tasks, in the order in which it did.
	Transitions []Transition

	Woken    []Woken          // queues that got ready tasks, and may be named more than once
	Ended    []Ended          // tasks that came to an end
	Dead     []DeadLetter     // those among them that want a log line
	Lost     []Lost           // claims that ended without their holder's doing
	Breakers []breaker.Change // those that opened or closed
	Ticked   []Ticked         // ticks of schedules that were decided
	// ToArchive says that dead letters wait for the archive.
	ToArchive bool
	// ToSend says that messages wait for the sender.
	ToSend bool
	// ToOperate says that an operation was started or steered, Rested which have stopped or ended.
	ToOperate bool
	Rested    []task.ID
	// Happened is what operations and schedules did beside that.
	Happened []Happened
}

// Woken names a queue with new ready tasks.
type Woken struct{ Namespace, Queue string }

// Ended names a task that came to an end.
type Ended struct {
	ID    task.ID
	State task.State
}

// Lost names a claim that ended without its holder's doing.
type Lost struct {
	ID     task.ID
	Token  task.Token
	Reason string // as of a stale claim
}

// DeadLetter is what is logged of a task that became a dead letter.
type DeadLetter struct {
	Namespace string
	ID        task.ID
	Exec      schema.Exec
	Failure   schema.Failure // of the last attempt
	Headers   map[string]string
}

// Ticked is an entry that was added to the ledger of a schedule.
type Ticked struct {
	Namespace, Schedule string
	// Trace is the traceparent of the task that the tick made; "": it belongs to no trace, or there is no task.
	Trace string
	schema.LedgerEntry
}

// Happened is something that a round did to an operation or a schedule, in the words of the events.
type Happened struct {
	What      string // such as operation.done
	Namespace string
	Name      string // of a schedule; of an operation its id
	Queue     string // of the tasks that it is about, if it is one
	Type      string // of a schedule's task
	Reason    string
	Count     int // of a missed schedule, its ticks
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

// Uncache drops what memory has of a task whose rows a policy has written.
func (r *Round) Uncache(id task.ID) { r.l.hot.Drop(id) }

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

// seqBits leaves room for a million tasks that become ready in one round.
const seqBits = 20

// NextSeq gives a task that becomes ready its place: rounds are ordered by their index in the log.
func (r *Round) NextSeq() uint64 {
	r.ready++
	if r.ready >= 1<<seqBits {
		panic(fmt.Sprintf("over %d tasks became ready in one round", 1<<seqBits))
	}
	return r.tx.Index()<<seqBits | r.ready
}

// Seal writes the counters, lanes and breakers that the round changed.
func (r *Round) Seal() {
	for _, q := range r.queues {
		q.dirty = false
		r.tx.Set(schema.QueueKey(q.ns, schema.TableCounts, q.name), q.counts.Encode())
	}
	r.queues = nil
	r.quotas.Seal()
	r.lanes.Seal()
	r.sealBreakers()
	for _, zs := range r.zones {
		zs.Seal(r.tx)
	}
	r.zones = nil
	for _, seal := range r.l.points.seal {
		seal(r)
	}
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
	r.readClaims(q)
	r.readBreakers(q)
	r.lanes.Open(q.lanes)
	r.readLater(q)
	r.holdAll(q)
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

// Move takes a task from one place in its life to another: it keeps counters, lanes and deadlines in step with the row,
// so that no verb has to. From is the row as it was, nil for a new task; to is the row as it shall be.
func (r *Round) Move(ns string, id task.ID, q *Queue, from, to *schema.Exec) {
	if from == nil {
		r.tx.Set(schema.ListedKey(ns, q.name, id), nil)
	} else if !from.State.CanBecome(to.State) {
		panic(fmt.Sprintf("task %s: %s can't become %s", id, from.State, to.State))
	}
	var heir task.ID
	if to.Unique != nil {
		heir = unique.Pass(r, ns, id, from, to)
	}
	var next task.ID
	if to.Order != 0 || q.strict() {
		next = q.order.Keep(r, id, q.strict(), from, to)
	}
	if from != nil {
		r.leave(ns, id, q, from)
		if from.State == task.Claimed && to.State != task.Claimed {
			r.end(q, id, from)
			to.Claim.Counted = false
		}
	}
	if to.State == task.Claimed && from.State != task.Claimed {
		r.begin(q, id, to)
	}
	r.enter(ns, id, q, to)
	if from != nil && from.State == task.Ready && !from.Parked() {
		q.lanes.ForgetIdle(from.Key)
	}
	if id == r.operated.id {
		to.Operation = r.operated.by
	}
	if zs := r.zonesOf(ns); zs.Note(r.tx, id, from, to) {
		r.zones = append(r.zones, zs)
	}
	r.SetExec(ns, id, to)
	r.l.hot.Keep(ns, id, to, q.counts.Ready[to.Priority-task.High])
	r.noteTransition(ns, id, from, to)
	if dies(from, to) {
		r.deaths++
	}
	if heir != (task.ID{}) {
		r.inherit(ns, heir, q)
	}
	if next != (task.ID{}) {
		r.comeFirst(ns, next, q)
	}
}

// inherit makes the task that was next the holder of its unique key. The key's row says so already.
func (r *Round) inherit(ns string, id task.ID, q *Queue) {
	from := r.execOf(ns, id)
	to := *from
	to.Role = schema.RoleHolder
	r.Move(ns, id, q, from, &to)
}

// comeFirst brings a ready task into its lane that has become the first of its key.
func (r *Round) comeFirst(ns string, id task.ID, q *Queue) {
	from := r.execOf(ns, id)
	to := *from
	to.Behind = false
	r.MakeReady(&to)
	r.Move(ns, id, q, from, &to)
}

func (r *Round) SetExec(ns string, id task.ID, x *schema.Exec) {
	r.l.row = x.AppendTo(r.l.row[:0])
	r.tx.Set(schema.IDKey(ns, schema.TableExec, id), r.l.row)
}

func (r *Round) leave(ns string, id task.ID, q *Queue, x *schema.Exec) {
	r.count(q, x, -1)
	switch {
	case x.Parked() || x.State == task.Scheduled || x.State == task.Retrying:
		r.tx.Delete(schema.WaitKey(ns, q.name, x.State, x.RunAt, id))
	case x.State == task.Ready:
		r.lanes.Leave(q.lanes, x)
	case x.State == task.Dead || x.State == task.Poisoned:
		r.tx.Delete(schema.DeadKey(ns, q.name, x.State, x.EndedAt, id))
		if x.KeptUntil <= r.now {
			r.tx.Delete(schema.ArchiveKey(ns, x.EndedAt, id))
		}
	}
	if at, kind := x.Deadline(); kind != 0 {
		r.tx.Delete(schema.DeadlineKey(at, kind, ns, id[:]))
	}
	if x.AwaitsStart() {
		r.tx.Delete(schema.DeadlineKey(x.ExpiresAt, schema.OnExpiry, ns, id[:]))
	}
}

func (r *Round) enter(ns string, id task.ID, q *Queue, x *schema.Exec) {
	r.count(q, x, +1)
	switch {
	case x.Parked() || x.State == task.Scheduled || x.State == task.Retrying:
		r.tx.Set(schema.WaitKey(ns, q.name, x.State, x.RunAt, id), nil)
	case x.State == task.Ready:
		r.lanes.Enter(q.lanes, id, x)
		if n := len(r.Woken); n == 0 || r.Woken[n-1] != (Woken{ns, q.name}) { // many come at once, and who waits looks for all
			r.wake(q)
		}
	case x.State == task.Dead || x.State == task.Poisoned:
		r.tx.Set(schema.DeadKey(ns, q.name, x.State, x.EndedAt, id), x.EncodeDead())
	}
	if at, kind := x.Deadline(); kind != 0 {
		r.SetDeadline(at, kind, ns, id[:])
	}
	if x.AwaitsStart() {
		r.SetDeadline(x.ExpiresAt, schema.OnExpiry, ns, id[:])
	}
}

// SetDeadline sets a deadline.
func (r *Round) SetDeadline(at store.Time, kind schema.DeadlineKind, ns string, rest []byte) {
	r.tx.Set(schema.DeadlineKey(at, kind, ns, rest), nil)
	if t := &r.l.timelines[schema.TimelineOf(kind)]; at <= t.next {
		*t = timeline{next: at}
	}
}

func (r *Round) count(q *Queue, x *schema.Exec, n int64) {
	if c := q.counts.Of(x.State, x.Priority); c != nil {
		*c += n
		if x.Parked() {
			q.counts.Parked += n
			if x.Role != schema.RoleNext {
				q.counts.Behind += n
			}
		}
		if !x.State.Ended() {
			q.counts.Bytes += n * x.Size
			q.space.Count(x, n)
		}
		r.touch(q)
	}
}

func (r *Round) touch(q *Queue) {
	if !q.dirty {
		q.dirty = true
		r.queues = append(r.queues, q)
	}
}

// Chance is a number from 0 to 1 drawn from a task and a step of its life, the same on every try.
func Chance(id task.ID, step uint64) float64 {
	return float64(Mix(binary.BigEndian.Uint64(id[8:])^Mix(step))>>11) / (1 << 53)
}

// Mix scatters the bits of a number (the finaliser of splitmix64).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// strict says whether new tasks of the queue have a place in the order of their keys.
func (q *Queue) strict() bool { return q.config.Settings.KeyOrder == task.KeyOrderStrict }

// retryOf, timeoutOf and maxAttempts: a task's own rule goes before its queue's.
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

// LastAttempt is the number of the attempt that would be the last one: what is shown beside the number of the current one.
func (q *Queue) LastAttempt(x *schema.Exec) int { return x.Exhausted + q.maxAttempts(x) }
