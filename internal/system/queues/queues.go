package queues

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// Shards gives access to the copies of queues in the data shards.
type Shards interface {
	// CopyQueues brings a shard's copies of queue configurations to at least these versions. The namespace exists since a version.
	CopyQueues(ctx context.Context, shard uint32, ns string, since uint64, configs map[string]task.QueueConfig) error
	// DropQueue removes a shard's copy of an empty queue. It returns wrong_state if the queue has tasks, or the copy is newer than version.
	DropQueue(ctx context.Context, shard uint32, ns, name string, version uint64) error
	// KeysUntil returns when the last idempotency key of a queue in a shard expires; 0: there is none.
	KeysUntil(ctx context.Context, shard uint32, ns, name string) (store.Time, error)
	// CheckKeys refuses a queue with tasks in a shard whose keys are in different slots.
	CheckKeys(ctx context.Context, shard uint32, ns, name string) error
	// HoldsUnique reports whether a task holds a unique key of a queue for one of the slots in a shard.
	HoldsUnique(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (bool, error)
	// OnceUntil returns when the last once key of a queue for some slots in a shard expires; 0: there is none. In a shard that takes no
	// more tasks of the slots, no new ones appear.
	OnceUntil(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (store.Time, error)
}

// MaxQueues bounds the queues of all namespaces together.
const MaxQueues = 10_000

// Config configures Queues.
type Config struct {
	Shard  *system.Shard
	Shards Shards
	// EnsureShare makes sure that a shard knows its share of a namespace's quotas before it gets a queue.
	EnsureShare func(ctx context.Context, ns string, shard uint32) error
	// Divide divides the limits of a queue among its shards again, if they are divided.
	Divide func(ctx context.Context, ns, name string) error
	// Divided notes that a queue has limits that are divided, from a version of it on. whole is the shard that has had all
	// of them so far; 0: that is not known.
	Divided func(tx *store.Tx, ns, name string, version uint64, whole uint32)
	// Renew notes that only shards with the present version of a queue can say what they may use of its limits, and that nobody knows what
	// they may use of some of these.
	Renew func(tx *store.Tx, q Queue, unknown task.Quotas)
	// Undivide forgets how a queue's limits are divided.
	Undivide func(tx *store.Tx, ns, name string)
	// Room returns unavailable when the disk is too full for a queue that is created by its first use; nil: there is always room.
	Room   func() error
	Logger *slog.Logger
}

// Queues reads and changes the queues, and sends copies of their settings to the data shards that take their tasks.
type Queues struct {
	cfg   Config
	most  int // queues of all namespaces; tests change it
	shard *system.Shard
	log   *slog.Logger

	copies     *copies
	counts     system.Memory[*queueCounts]         // nil: not counted
	unfinished system.Memory[map[system.Name]bool] // queues whose parts need further work; true: slots are moving
	moves      chan struct{}                       // capacity 1: slots of a queue are moving

	events  events.Ring
	pending system.Memory[[]events.Event] // of the round in flight
}

// New returns the queues in a system shard.
func New(cfg Config) *Queues {
	copies := &copies{system: cfg.Shard, shards: cfg.Shards, ensureShare: cfg.EnsureShare, unsent: make(chan struct{}, 1)}
	return &Queues{cfg: cfg, most: MaxQueues, shard: cfg.Shard, log: cfg.Logger, copies: copies, moves: make(chan struct{}, 1)}
}

// Queue returns a queue.
func (s *Queues) Queue(ctx context.Context, ns, name string) (Queue, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (Queue, error) {
		q, _, ok, err := Get(r, ns, name)
		if err == nil && !ok {
			err = task.NotFound("queue", name)
		}
		return q, err
	})
}

// Queues returns the queues of a namespace that match a query.
func (s *Queues) Queues(ctx context.Context, ns string, of Query) ([]Queue, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (queues []Queue, err error) {
		if of.Limit <= 0 {
			return nil, nil
		}
		if of.Names != nil {
			return namedQueues(r, ns, of.Within, of.Names)
		}
		lo := append(queueKey(ns, of.After), 0)
		if of.After == "" {
			lo = queueKey(ns, "")
		}
		hi := queueKey(ns, "")
		hi[len(hi)-1]++
		name := len(hi) // where the name begins in a key
		r.Scan(lo, hi, func(k, v []byte) bool {
			if len(k) > name && !of.names(string(k[name:])) {
				return true
			}
			var q Queue
			if q, _, err = decodeQueue(k, v); err != nil {
				return false
			}
			if !of.Paused || q.Config.Paused || len(q.Config.Holds) > 0 {
				queues = append(queues, q)
			}
			return len(queues) < of.Limit
		})
		return queues, err
	})
}

// Query selects queues. They are returned in the order of their names.
type Query struct {
	After   string
	Limit   int
	Within  task.Scope
	Pattern string   // as in a scope; "": all
	Paused  bool     // only those that are paused, or have a paused type or key
	Names   []string // if set, only these, in their order, as far as they exist: of the other conditions only Within applies
}

func (q *Query) names(name string) bool {
	return q.Within.Sees(name) && (q.Pattern == "" || task.Matches(q.Pattern, name))
}

func namedQueues(r store.Reader, ns string, within task.Scope, names []string) (queues []Queue, err error) {
	for _, name := range names {
		q, _, ok, err := Get(r, ns, name)
		if err != nil {
			return nil, err
		}
		if ok && within.Sees(name) {
			queues = append(queues, q)
		}
	}
	return queues, nil
}

// Place returns a queue. If it does not exist, it is created, provided that the disk has room.
func (s *Queues) Place(ctx context.Context, ns, name string) (Queue, error) {
	if q, err := s.Queue(ctx, ns, name); err == nil || !errors.Is(err, task.ErrNotFound) {
		return q, err
	}
	if s.cfg.Room != nil {
		if err := s.cfg.Room(); err != nil {
			return Queue{}, err
		}
	}
	return s.PutQueue(ctx, auditlog.Action{}, ns, name, unchanged)
}

func unchanged(*task.QueueConfig) error { return nil }

// PutQueue changes the configuration of a queue, which is created if need be, and returns when its shards have the new
// one. change must only modify its argument: it may run more than once. After unavailable the change may have been
// made, and then shards that lack it get it as soon as they can be reached; the error names them. Repeat the call to
// wait for them. action is recorded, as the creation of a queue if there was none.
func (s *Queues) PutQueue(ctx context.Context, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (Queue,
	error) {
	q, err := system.Update(ctx, s.shard, func(tx *store.Tx) (Queue, error) { return s.changed(tx, action, ns, name, change) })
	if err != nil {
		return Queue{}, err
	}
	if err = s.copies.send(ctx, q); err == nil {
		err = s.cfg.divide(ctx, q)
	}
	if err != nil {
		return Queue{}, err
	}
	return q, nil
}

// divide divides the queue's limits among its shards again, if they are divided. The shards must have their copies.
func (c *Config) divide(ctx context.Context, q Queue) error {
	if q.Limits() == (task.Quotas{}) {
		return nil
	}
	return c.Divide(ctx, q.Namespace, q.Name)
}

// changed writes the next version of a queue's row. A change that changes nothing writes nothing, unless the queue was about to be deleted:
// using it keeps it, and the new version tells whoever is deleting it.
func (s *Queues) changed(tx *store.Tx, action auditlog.Action, ns, name string, change func(*task.QueueConfig) error) (Queue, error) {
	q, dropping, exists, err := Get(tx, ns, name)
	if err != nil {
		return Queue{}, err
	}
	if !exists {
		if q, err = s.newQueue(tx, ns, name); err != nil {
			return Queue{}, err
		}
	}
	before, was := q.Config, any(factsOf(q))
	if err := change(&q.Config); err != nil {
		return Queue{}, err
	}
	if exists && !dropping && q.Config.Equal(before) {
		return q, nil
	}
	if err := mayOrder(q, before); err != nil {
		return Queue{}, err
	}
	q.Config.Version = before.Version + 1
	if !exists {
		q.Config.Version += system.GetNumber(tx, system.FloorKey)
		action.Action, was = task.QueueCreated, nil
	}
	q.useAgain(dropping) // the shards may have tasks, so they must get the change
	if err := onQueue(tx, action, q, was, factsOf(q)); err != nil {
		return q, err
	}
	if !exists {
		s.count(ns, +1)
	}
	s.setQueue(tx, q)
	s.addQueueEvent(tx, q, exists, before)
	return q, nil
}

// mayOrder returns an error for a strict order of keys while new tasks of a key may go to either of two shards.
func mayOrder(q Queue, before task.QueueConfig) error {
	strict := q.Config.Settings.KeyOrder == task.KeyOrderStrict && before.Settings.KeyOrder != task.KeyOrderStrict
	if strict && q.moving() {
		return task.Unavailable(time.Second, "queue %q: its slots are moving; a strict order of keys can be had afterwards", q.Name)
	}
	return nil
}

// newQueue returns a queue with the default configuration, if there is room for another.
func (s *Queues) newQueue(tx *store.Tx, ns, name string) (Queue, error) {
	settings, founded, err := system.GetRow[system.Settings](tx, system.SettingsKey)
	if err != nil {
		return Queue{}, err
	}
	if !founded || settings.DataShards == 0 {
		return Queue{}, task.Unavailable(time.Second, "queue %q: there is no data shard yet", name)
	}
	of, err := namespaces.Get(tx, ns)
	if err != nil {
		return Queue{}, err
	}
	known, err := s.countQueues(tx)
	if err != nil {
		return Queue{}, err
	}
	if known.queues >= s.most {
		return Queue{}, task.Invalid("queue", "%q would exceed the limit of %d queues", name, s.most)
	}
	if err := of.MayHaveOneMore(task.QuotaQueues, "queue", name, known.of[ns]); err != nil {
		return Queue{}, err
	}
	return Queue{Namespace: ns, Name: name, Shard: home(ns, name, known.owners.free(settings.DataShards)),
		Config: task.QueueConfig{Settings: task.DefaultSettings(), CreatedAt: tx.Now().Time()}}, nil
}

// queueCounts is what has to be known of all queues to create another.
type queueCounts struct {
	queues int
	of     map[string]int // by namespace
	owners owners
}

// countQueues counts the queues, once per leadership. It runs on the shard's loop.
func (s *Queues) countQueues(r store.Reader) (counts *queueCounts, err error) {
	s.counts.In(s.shard, func(known **queueCounts) {
		if *known == nil {
			*known, err = readCounts(r)
		}
		counts = *known
	})
	if counts == nil && err == nil { // this node no longer leads: the round will not commit
		return readCounts(r)
	}
	return counts, err
}

func readCounts(r store.Reader) (*queueCounts, error) {
	found := &queueCounts{of: map[string]int{}, owners: owners{}}
	err := Scan(r, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(q Queue, _ bool) bool {
		found.queues++
		found.of[q.Namespace]++
		found.owners.add(q)
		return true
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// count adds n to the number of queues. It runs on the shard's loop; if the round is dropped, so are the counts.
func (s *Queues) count(ns string, n int) {
	s.counts.In(s.shard, func(known **queueCounts) {
		if *known != nil {
			(*known).queues += n
			(*known).of[ns] += n
		}
	})
}

// recount has the next creation of a queue count again, since the owners of shards have changed. It runs on the shard's loop.
func (s *Queues) recount() {
	s.counts.In(s.shard, func(known **queueCounts) { *known = nil })
}

// setQueue writes the row of a queue that is not being deleted. The caller has read it, unless the queue is new.
func (s *Queues) setQueue(tx *store.Tx, q Queue) {
	was, dropping, existed, _ := Get(tx, q.Namespace, q.Name)
	tx.Set(queueKey(q.Namespace, q.Name), encodeQueue(q, false))
	s.shard.Note(tx, system.Change{Kind: system.QueueChanged, Name: q.FullName()})
	s.trackMoves(q)
	none := task.Quotas{}
	if was.Limits() != none && q.Limits() == none {
		s.cfg.Undivide(tx, q.Namespace, q.Name)
	}
	if q.Limits() == none {
		return
	}
	whole := uint32(0)
	if existed && !was.divided() {
		whole = was.Shards()[0]
	}
	s.cfg.Divided(tx, q.Namespace, q.Name, q.Config.Version, whole)
	unknown := newLimits(was.Limits(), q.Limits())
	if dropping { // a shard that has dropped its copy may get an earlier one with an earlier share
		unknown = q.Limits()
	}
	if was.divided() && (unknown != none || q.Moved != was.Moved) {
		s.cfg.Renew(tx, q, unknown)
	}
}

// newLimits returns those of a queue's limits that it did not have before. Shards use what they like of them, until they have the copies
// that set them.
func newLimits(before, now task.Quotas) task.Quotas {
	for _, name := range []task.Quota{task.QuotaBacklog, task.QuotaRunning} {
		if *before.Of(name) != 0 {
			*now.Of(name) = 0
		}
	}
	return now
}

// home chooses the shard of a new queue among those that may take it.
func home(ns, name string, shards []uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(ns + "\x00" + name))
	return shards[h.Sum32()%uint32(len(shards))] // #nosec G115 -- at most MaxDataShards
}

// EnsureQueue makes sure that a shard has its copy of a queue's configuration, if the shard has a part of the queue: see Queue.In. The
// queue is created if it was deleted meanwhile.
func (s *Queues) EnsureQueue(ctx context.Context, shard uint32, ns, name string) (Queue, error) {
	q, err := system.Update(ctx, s.shard, func(tx *store.Tx) (Queue, error) {
		q, err := s.changed(tx, auditlog.Action{}, ns, name, unchanged)
		if p := q.part(shard); err == nil && p != nil && p.Retiring != 0 {
			q.Config.Version++
			q.useAgain(false)
			s.setQueue(tx, q)
		}
		return q, err
	})
	if err == nil && q.In(shard) {
		err = s.copies.sendTo(ctx, q, shard)
	}
	if err == nil && len(s.copies.lacking([]Queue{q})) > 0 {
		s.copies.resend() // it was deleted, or had a part that retired: the others get the new version
	}
	if err != nil || !q.In(shard) {
		return q, err
	}
	if err := s.cfg.divide(ctx, q); err != nil { // another shard may be silent, and this one have its share
		s.log.Info("a queue's limits are not divided yet", "queue", name, "error", err)
	}
	return q, nil
}

// DropQueue removes an empty queue. Its row is marked, its shards drop it or refuse, then the row is deleted if the mark is still there:
// using the queue in between clears the mark, and the queue stays. The mark records who deletes the queue, for the audit log, whoever
// finishes.
func (s *Queues) DropQueue(ctx context.Context, by task.Author, ns, name string) error {
	q, err := system.Update(ctx, s.shard, func(tx *store.Tx) (Queue, error) {
		q, dropping, ok, err := Get(tx, ns, name)
		switch {
		case err != nil:
			return q, err
		case !ok:
			return q, task.NotFound("queue", name)
		case !dropping:
			tx.Set(queueKey(ns, name), encodeDropping(q, by))
			s.copies.forget(q)
			s.shard.Note(tx, system.Change{Kind: system.QueueChanged, Name: q.FullName()})
		}
		return q, nil
	})
	if err != nil {
		return err
	}
	return s.finishDrop(ctx, q, lateTime)
}

// finishDrop completes or undoes the deletion of a marked queue. It can be repeated, also by another leader. Each shard of a spread queue
// gets patience to answer. They are asked in turn: one that refuses spares those after it from dropping what they need again.
func (s *Queues) finishDrop(ctx context.Context, q Queue, patience time.Duration) (err error) {
	defer func() {
		if err != nil { // if another call keeps the queue, or finds it kept, shards that have dropped it meanwhile need their copies again
			s.copies.forget(q)
			s.copies.resend() // Repair finishes it
		}
	}()
	for _, shard := range q.Shards() {
		if err := s.dropIn(ctx, q, shard, patience); err != nil {
			if _, refused := task.AsError(err); !refused || errors.Is(err, task.ErrUnavailable) {
				return err // it may have been dropped
			}
			return errors.Join(err, s.keep(ctx, q))
		}
	}
	_, err = system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		now, dropping, ok, err := Get(tx, q.Namespace, q.Name)
		switch {
		case err != nil || !ok: // gone already
			return struct{}{}, err
		case !dropping || now.Config.Version != q.Config.Version:
			return struct{}{}, system.WrongState("delete queue %q: it was used meanwhile", q.Name)
		}
		by, err := dropper(tx, q)
		if err != nil {
			return struct{}{}, err
		}
		if err := onQueue(tx, auditlog.Action{By: by, Action: task.QueueDeleted}, now, factsOf(now), nil); err != nil {
			return struct{}{}, err
		}
		tx.Delete(queueKey(q.Namespace, q.Name))
		tx.Set(system.FloorKey, system.EncodeNumber(max(system.GetNumber(tx, system.FloorKey), q.Config.Version)))
		s.shard.Note(tx, system.Change{Kind: system.QueueChanged, Name: q.FullName()})
		s.count(q.Namespace, -1)
		s.copies.forget(q)
		s.cfg.Undivide(tx, q.Namespace, q.Name)
		if now.Own {
			s.recount()
		}
		s.addEvent(tx, now, events.Event{Kind: events.QueueDeleted})
		return struct{}{}, nil
	})
	return err
}

// dropIn has a shard drop its part of a queue. The caller of a queue in one shard has no other to wait for.
func (s *Queues) dropIn(ctx context.Context, q Queue, shard uint32, patience time.Duration) error {
	soon := ctx
	if len(q.Shards()) > 1 {
		var cancel context.CancelFunc
		soon, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	err := s.cfg.Shards.DropQueue(soon, shard, q.Namespace, q.Name, q.Config.Version)
	if err != nil && soon.Err() != nil && ctx.Err() == nil {
		return task.Unavailable(time.Second,
			"queue %q: it is being deleted, but shard %d of the %d that hold it has not answered in time, and is asked again",
			q.Name, shard, len(q.Shards()))
	}
	return err
}

// keep clears the mark of a queue that a shard refused to drop. Shards that did drop it get their copies again, in a version that a call of
// this deletion does not drop if it comes late.
func (s *Queues) keep(ctx context.Context, q Queue) error {
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		now, dropping, ok, err := Get(tx, q.Namespace, q.Name)
		if err == nil && ok && dropping && now.Config.Version == q.Config.Version {
			now.Config.Version++
			now.useAgain(true)
			s.setQueue(tx, now)
		}
		return struct{}{}, err
	})
	return err
}
