package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// System is this node's replica of the system shard.
type System interface {
	// Update runs fn in a round. If fn returns an error, nothing is written. If the shard is not led here, the error says so, and fn did
	// not run. fn may run again if its round was dropped.
	Update(ctx context.Context, fn func(tx *store.Tx) error) error
	// View runs fn against the state at some moment during the call, if the shard is led here.
	View(ctx context.Context, fn func(store.Reader) error) error
}

// Shards gives access to the data shards, wherever they are led.
type Shards interface {
	// CopyQueues brings a shard's copies of queue configurations to at least these versions.
	CopyQueues(ctx context.Context, shard uint32, ns string, configs map[string]task.QueueConfig) error
	// DropQueue removes a shard's copy of an empty queue. It returns an error if the queue has tasks.
	DropQueue(ctx context.Context, shard uint32, ns, name string) error
	// Spaces returns what namespaces use in a shard, in the order of names.
	Spaces(ctx context.Context, shard uint32, names []string) ([]task.Space, error)
	// PutShare replaces a namespace's share in a shard, unless the existing one is as new, and returns what the namespace uses.
	PutShare(ctx context.Context, shard uint32, ns string, to task.Share) (task.Space, error)
	// EraseNamespace removes what a shard still has of a namespace without queues. It returns an error while tasks are in transit.
	EraseNamespace(ctx context.Context, shard uint32, ns string) error
	// KeysUntil returns when the last idempotency key of a queue in a shard expires; 0: there is none.
	KeysUntil(ctx context.Context, shard uint32, ns, name string) (store.Time, error)
	// HoldsUnique reports whether a task of one of the slots holds a unique key of a queue in a shard.
	HoldsUnique(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (bool, error)
	// OnceUntil returns when the last once key of a queue for some slots in a shard expires; 0: there is none. In a shard that takes no
	// more tasks of the slots, no new ones appear.
	OnceUntil(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (store.Time, error)
	// CopyWatches brings a shard's copies of what the webhooks of namespaces subscribe to to at least these versions.
	CopyWatches(ctx context.Context, shard uint32, watches map[string]task.Watch) error
}

// Config configures a Control.
type Config struct {
	System System
	Shards Shards
	// Own returns this node's report, and Node is its number: a node that leads the system shard need not report to itself.
	Own       func() Report
	Node      uint32
	MaxQueues int // default 10,000
	// Room returns unavailable when the disk is too full for a queue that is created by its first use; nil: there is always room.
	Room   func() error
	Logger *slog.Logger // nil: none
}

const (
	// DefaultMaxQueues bounds the queues of all namespaces together.
	DefaultMaxQueues = 10_000
	// aliveFor is how long a node counts as alive after it was last heard from: a few polls.
	aliveFor = 10 * time.Second
	// sameLeader is how short a gap between two terms must be for the nodes not to be given time to report again.
	sameLeader = time.Second
)

// Control reads and changes the system shard's tables. Every node has one. Its methods run rounds and views on this node's replica. On a
// node that does not lead the system shard, they return the shard's error, which names the leader. What it remembers beyond the rows is
// discarded when the replica stops leading.
//
// Its methods may be called from any goroutine. Elected, Dropped and Committed must be called on the system shard's loop, in the order of
// its hooks; functions that run in a round are on that loop, too.
type Control struct {
	cfg  Config
	log  *slog.Logger
	work sync.WaitGroup // repairs and moves

	dividing    chan struct{} // capacity 1: whoever holds it divides a namespace's quotas
	quotasExist chan struct{} // capacity 1: some namespace has quotas

	events  events.Ring
	lastMap atomic.Pointer[Map] // the last one read; nil: none

	mu      sync.Mutex
	leading *leading // nil: not leading
	closed  bool
	news    chan struct{} // closed when a change is committed, or leadership changes
	left    time.Time     // when leadership was last lost
	since   time.Time     // when it became leader after a gap
	heard   map[uint32]nodeReport
	starts  map[uint32]*starts // of nodes, as far as this one noticed; they outlast its leadership
	seen    map[uint32]observation

	passWanted chan chan struct{} // requests to the Reconciler, which may be in a long sleep

	moves chan struct{} // capacity 1: slots of a queue are moving

	copies  map[uint32]uint64 // up to which version nodes have reported their copies to be complete
	awaited chan struct{}     // closed when a node reports that; nil: nobody waits for it
	uses    map[auth.TokenName]store.Time

	dispatch      chan struct{} // capacity 1: something is to be sent to webhooks, or may be now
	firstHook     chan struct{} // capacity 1: the first webhook may exist now, or this node became leader
	watchVersions watchVersions
	hooksDropped  atomic.Uint64 // notices that were given up
}

// leading is what a leader remembers. It is guarded by Control.mu, except queues and seenAt.
type leading struct {
	stop  context.CancelFunc // ends the repair
	began time.Time
	doubt map[uint32]time.Time // until when shards may have voters other than those seen

	unfinished map[QueueName]bool // queues whose parts need further work; true: slots are moving

	seenAt    time.Time      // when old shard states were last forgotten; it belongs to the Dispatcher
	queues    *queueCounts   // nil: not counted. It belongs to the shard's loop
	pending   []change       // of the round in flight
	events    []events.Event // of the round in flight
	changeLog changeLog
}

// nodeReport is a node's last report.
type nodeReport struct {
	Report
	At time.Time
}

// observation is the state of a shard when it was last asked.
type observation struct {
	status  Status
	problem string    // "": none
	step    string    // what is being done about it
	at      time.Time // when it was asked
}

// NewControl returns a Control that does not lead.
func NewControl(cfg Config) *Control {
	if cfg.MaxQueues == 0 {
		cfg.MaxQueues = DefaultMaxQueues
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Control{cfg: cfg, log: cfg.Logger, news: make(chan struct{}), heard: map[uint32]nodeReport{}, starts: map[uint32]*starts{}, seen: map[uint32]observation{},
		copies: map[uint32]uint64{}, uses: map[auth.TokenName]store.Time{}, dispatch: make(chan struct{}, 1), firstHook: make(chan struct{}, 1), moves: make(chan struct{}, 1), passWanted: make(chan chan struct{}), dividing: make(chan struct{}, 1), quotasExist: make(chan struct{}, 1)}
}

// Close ends the Control's background work.
func (c *Control) Close() {
	c.Dropped(true)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}

// Elected is called when this node's replica leads the system shard and has applied everything committed before. Copies of queues that an
// earlier leader still owed to the data shards are sent in the background.
func (c *Control) Elected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	clear(c.seen)
	clear(c.copies)
	if now := time.Now(); now.Sub(c.left) > sameLeader {
		c.since = now
		clear(c.heard)
	}
	if c.leading != nil {
		c.leading.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	c.leading = &leading{stop: stop, began: time.Now(), doubt: map[uint32]time.Time{}, unfinished: map[QueueName]bool{}}
	c.wake()
	c.events.Open()
	c.pokeDispatcher()
	c.pokeWatcher()
	c.work.Go(func() { c.repair(ctx) })
	c.work.Go(func() { c.advanceMoves(ctx) })
	c.work.Go(func() { c.divideAll(ctx) })
}

// Dropped is called when a round of the system shard did not commit, or its fate is unknown, or the replica's term ended.
func (c *Control) Dropped(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading == nil {
		return
	}
	c.leading.stop()
	c.leading = nil
	if over {
		c.events.Close()
	}
	c.left = time.Now()
	c.wake()
}

// Committed is called when the round at this index of the system shard's log has been applied.
func (c *Control) Committed(at uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading == nil {
		return
	}
	happened := c.leading.events
	c.leading.events = nil
	if interest := c.events.Committed(at); interest != events.None {
		c.events.Add(at, interest, happened)
	}
	if len(c.leading.pending) == 0 {
		return
	}
	for _, ch := range c.leading.pending {
		c.leading.changeLog.add(at, ch)
	}
	c.leading.pending = nil
	c.wake()
}

// wake wakes everyone who waits for news.
func (c *Control) wake() {
	close(c.news)
	c.news = make(chan struct{})
}

// leads reports whether this node's replica leads, as far as it knows.
func (c *Control) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading != nil
}

// update runs fn in a round of the system shard. The result is valid only without an error.
func update[T any](ctx context.Context, c *Control, fn func(tx *store.Tx) (T, error)) (T, error) {
	var out T
	err := c.cfg.System.Update(ctx, func(tx *store.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	if err != nil {
		var zero T // the loop may still be writing to out
		return zero, named(err)
	}
	return out, nil
}

// view runs fn against the system shard's state.
func view[T any](ctx context.Context, c *Control, fn func(store.Reader) (T, error)) (T, error) {
	var out T
	err := c.cfg.System.View(ctx, func(r store.Reader) (err error) {
		out, err = fn(r)
		return err
	})
	if err != nil {
		var zero T
		return zero, named(err)
	}
	return out, nil
}

// named adds the origin to an error that is not a refusal. The wrapped error is unchanged.
func named(err error) error {
	if _, refused := task.AsError(err); refused {
		return err
	}
	return fmt.Errorf("system shard: %w", err)
}

// Map returns nodes, shards and settings. It is called all the time, while nothing changes for days: so the last decoded map is returned as
// long as it is as new as the tables, whose every change updates the row newestKey.
func (c *Control) Map(ctx context.Context) (*Map, error) {
	return view(ctx, c, func(r store.Reader) (*Map, error) {
		if m := c.lastMap.Load(); m != nil && m.Version == getNumber(r, newestKey) {
			return m, nil
		}
		m, err := readMap(r)
		if err == nil {
			c.lastMap.Store(m)
		}
		return m, err
	})
}

// set writes a row of nodes, shards or settings.
func (c *Control) set(tx *store.Tx, key, value []byte) {
	tx.Set(key, value)
	c.note(tx, change{})
}

// note records a change of the round in flight for those who wait for news.
func (c *Control) note(tx *store.Tx, ch change) {
	tx.Set(newestKey, encodeNumber(tx.Index()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading != nil {
		c.leading.pending = append(c.leading.pending, ch)
	}
}

// silent returns how long a node has not been heard from. A new leader counts from the start of its leadership.
func (c *Control) silent(number uint32) time.Duration {
	if c.isOwn(number) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.since
	if h, ok := c.heard[number]; ok && h.At.After(last) {
		last = h.At
	}
	return time.Since(last)
}

// isOwn reports whether a node is this one, which leads the system shard or is about to be refused.
func (c *Control) isOwn(number uint32) bool { return c.cfg.Own != nil && number == c.cfg.Node }

// fitness returns what keeps a node from leading.
func (c *Control) fitness(number uint32) fitness {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fitnessOf(number, time.Now())
}

func conflict(format string, args ...any) error {
	return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

func wrongState(format string, args ...any) error {
	return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf(format, args...)}
}
