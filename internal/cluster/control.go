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
	// Update runs fn in a round. Its refusal leaves nothing behind. Where the shard is not led the error says so, and fn
	// did not run. Fn may run again if its round was dropped.
	Update(ctx context.Context, fn func(tx *store.Tx) error) error
	// View runs fn against the state as it was at some moment of the call, where the shard is led.
	View(ctx context.Context, fn func(store.Reader) error) error
}

// Shards are the data shards, wherever they are led.
type Shards interface {
	// CopyQueues makes a shard's copies of queue configurations at least as new as these.
	CopyQueues(ctx context.Context, shard uint32, ns string, configs map[string]task.QueueConfig) error
	// DropQueue removes a shard's copy of an empty queue; it refuses when the queue has tasks.
	DropQueue(ctx context.Context, shard uint32, ns, name string) error
	// Spaces tells what namespaces use of a shard, in their order.
	Spaces(ctx context.Context, shard uint32, names []string) ([]task.Space, error)
	// PutShare replaces a namespace's share of a shard, unless the one that is there is as new, and tells what it uses.
	PutShare(ctx context.Context, shard uint32, ns string, to task.Share) (task.Space, error)
	// EraseNamespace removes what a shard still has of a namespace without queues. It refuses while tasks are on their way.
	EraseNamespace(ctx context.Context, shard uint32, ns string) error
	// KeysUntil is when the last idempotency key ends that a queue has in a shard; 0: it has none.
	KeysUntil(ctx context.Context, shard uint32, ns, name string) (store.Time, error)
	// HoldsUnique says whether a unique key of a queue is held in a shard by a task of one of the slots.
	HoldsUnique(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (bool, error)
	// OnceUntil is when the last once key of some slots ends that a queue has in a shard; 0: it has none. What has ended in a shard
	// that takes no more of the slots can't begin anew.
	OnceUntil(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (store.Time, error)
	// CopyWatches makes a shard's copies of what the webhooks of namespaces want to hear of at least as new as these.
	CopyWatches(ctx context.Context, shard uint32, watches map[string]task.Watch) error
}

// Config is what a Control is made of.
type Config struct {
	System System
	Shards Shards
	// Own is what this node tells of itself, and Node its number: where it leads the system shard it need not tell that to itself.
	Own       func() Report
	Node      uint32
	MaxQueues int // default 10,000
	// Room refuses, with unavailable, when the disk is too full for a queue that appears by use; nil: there is always room.
	Room   func() error
	Logger *slog.Logger // nil: none
}

const (
	// DefaultMaxQueues bounds the queues of all namespaces together.
	DefaultMaxQueues = 10_000
	// aliveFor is how long a node counts as running after it was heard of: a few polls.
	aliveFor = 10 * time.Second
	// sameLeader is how short a gap between two terms may be without the nodes being given time to report again.
	sameLeader = time.Second
)

// Control reads and changes the system shard's tables. Every node has one. Its methods run rounds and views of this
// node's replica, so that on a node that does not lead the system shard they return the shard's error, which says who
// does. What it remembers beyond the rows is thrown away when the replica no longer leads.
//
// Its methods may be called from any goroutine. Elected, Dropped and Committed belong to the system shard's loop, in the
// order in which its hooks are called; functions that run in a round are on that loop, too.
type Control struct {
	cfg  Config
	log  *slog.Logger
	work sync.WaitGroup // repairs and moves

	dividing chan struct{} // one place: who has it shares out a namespace's quotas
	divided  chan struct{} // one place: some namespace has quotas

	events  events.Ring
	lastMap atomic.Pointer[Map] // that was read last; nil: none

	mu      sync.Mutex
	leading *leading // nil: not leading
	closed  bool
	news    chan struct{} // closed when a change is committed, or leadership changes
	left    time.Time     // when leadership was lost last
	since   time.Time     // when it became leader, after a gap
	heard   map[uint32]nodeReport
	starts  map[uint32]*starts // of nodes, as far as this one noticed; they outlast its leadership
	seen    map[uint32]sight

	lookWanted chan chan struct{} // for the Reconciler, while it sleeps long

	moves chan struct{} // one place: slots of a queue are on their way

	copies  map[uint32]uint64 // up to which version nodes have said that their copies are complete
	awaited chan struct{}     // closed when one says so; nil: nobody waits for that
	uses    map[auth.TokenName]store.Time

	post         chan struct{} // one place: something is to be sent to webhooks, or may be now
	hooked       chan struct{} // one place: there may be the first webhook, or it became leader
	told         told
	hooksDropped atomic.Uint64 // notices that were not delivered, and never will be
}

// leading is what a leader remembers of its rounds. It is guarded by Control.mu, except queues and seenAt.
type leading struct {
	stop  context.CancelFunc // ends the repair
	began time.Time
	doubt map[uint32]time.Time // until when shards may have other voters than were seen

	unfinished map[QueueName]bool // queues whose slots have moved; true: they are on their way

	seenAt  time.Time      // when what shards told long ago was forgotten last; it belongs to the Dispatcher
	queues  *queueCounts   // nil: not counted. It belongs to the shard's loop
	pending []change       // of the round in flight
	happens []events.Event // by the round in flight
	ring    ring
}

// nodeReport is what a node last told.
type nodeReport struct {
	Report
	At time.Time
}

// sight is how a shard looked when it was last asked.
type sight struct {
	status  Status
	problem string    // "": none
	step    string    // what is being done about it
	at      time.Time // when it was asked
}

// NewControl makes a Control that is not leading.
func NewControl(cfg Config) *Control {
	if cfg.MaxQueues == 0 {
		cfg.MaxQueues = DefaultMaxQueues
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Control{cfg: cfg, log: cfg.Logger, news: make(chan struct{}), heard: map[uint32]nodeReport{}, starts: map[uint32]*starts{}, seen: map[uint32]sight{},
		copies: map[uint32]uint64{}, uses: map[auth.TokenName]store.Time{}, post: make(chan struct{}, 1), hooked: make(chan struct{}, 1), moves: make(chan struct{}, 1), lookWanted: make(chan chan struct{}), dividing: make(chan struct{}, 1), divided: make(chan struct{}, 1)}
}

// Close ends the Control's own work.
func (c *Control) Close() {
	c.Dropped(true)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}

// Elected: this node's replica leads the system shard, and has applied all that was committed before. Copies of queues
// that a leader before it owed to the data shards are made good in the background.
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
	c.pokePost()
	c.pokeHooks()
	c.work.Go(func() { c.repair(ctx) })
	c.work.Go(func() { c.tend(ctx) })
	c.work.Go(func() { c.divideAll(ctx) })
}

// Dropped: a round of the system shard did not commit, or nobody knows, or the replica's term ended.
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

// Committed: the round at this index of the system shard's log is applied.
func (c *Control) Committed(at uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading == nil {
		return
	}
	happened := c.leading.happens
	c.leading.happens = nil
	if interest := c.events.Passed(at); interest != events.None {
		c.events.Add(at, interest, happened)
	}
	if len(c.leading.pending) == 0 {
		return
	}
	for _, ch := range c.leading.pending {
		c.leading.ring.add(at, ch)
	}
	c.leading.pending = nil
	c.wake()
}

// wake tells those who wait that there is something to look at.
func (c *Control) wake() {
	close(c.news)
	c.news = make(chan struct{})
}

// leads says whether this node's replica leads, as far as it knows.
func (c *Control) leads() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leading != nil
}

// update runs fn in a round of the system shard. What fn returns is worth something only without an error.
func update[T any](ctx context.Context, c *Control, fn func(tx *store.Tx) (T, error)) (T, error) {
	var out T
	err := c.cfg.System.Update(ctx, func(tx *store.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	if err != nil {
		var zero T // out may be the loop's still
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

// named says where an error comes from that is no refusal. Who is asked for it finds it as it was.
func named(err error) error {
	if _, refused := task.AsError(err); refused {
		return err
	}
	return fmt.Errorf("system shard: %w", err)
}

// Map reads nodes, shards and settings. It is asked for all the time, where nothing changes for days: what was decoded last is given
// again while it is as new as the tables, which each change of theirs tells in the row newestKey.
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

// note remembers a change of the round in flight, for those who wait for news.
func (c *Control) note(tx *store.Tx, ch change) {
	tx.Set(newestKey, encodeNumber(tx.Index()))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leading != nil {
		c.leading.pending = append(c.leading.pending, ch)
	}
}

// silent is how long nothing was heard of a node. A new leader has not had time to hear.
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

// isOwn says whether a node is this one, which leads the system shard, or asks in vain.
func (c *Control) isOwn(number uint32) bool { return c.cfg.Own != nil && number == c.cfg.Node }

// fitness says what keeps leadership from a node.
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
