package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Config is what a broker is made of.
type Config struct {
	Limits  task.Limits
	Archive Archive
	// Namespaces lists those that exist.
	Namespaces func() []string
	// AuditKeep says how long entries of the audit are kept; nil: as by default.
	AuditKeep func() time.Duration
	// EnsureQueue makes sure that a shard has its copy of a queue's configuration. If the queue lies in others it is an error,
	// which the caller of the broker gets as it is.
	EnsureQueue func(ctx context.Context, shard uint32, ns, queue string) error
	// SendOutbox brings messages to the shards that they are for, each answered by itself: what the sender of an outbox does.
	SendOutbox func(ctx context.Context, ns string, messages []*OutboxMessage) []Enqueued
	// Operate does a step of an operation in a shard, wherever that is led: OperateSome there.
	Operate func(ctx context.Context, shard uint32, ns string, c StepCall) (StepAnswer, error)
	// HasShard says whether there is a data shard of this number, by the word of the system shard: a node's own copy may be behind.
	HasShard func(ctx context.Context, shard uint32) (bool, error)
	// Workers tells what the nodes know of the workers that take tasks of some queues, in their order; nil: nothing.
	Workers func(ctx context.Context, queues []QueueName) []task.QueueWorkers
	// Room refuses, with unavailable, when the disk is too full to take more tasks; nil: there is always room.
	Room func() error
	// Tracer begins the traces of ticks; nil: they belong to none.
	Tracer trace.Tracer
	// Stats is told what happened in the shards while this node leads them; nil: nobody counts.
	Stats  *stats.Book
	Logger *slog.Logger
	// LogHeaders names the headers that the log line of a dead letter has, as ParseLogHeaders gives them.
	LogHeaders []string
}

// Broker runs the shards of a node. Its methods may be called from any goroutine.
type Broker struct {
	cfg         Config
	draining    chan struct{}
	drain       sync.Once
	statusCache statusCache

	mu       sync.RWMutex
	replicas map[uint32]*replica
	started  bool

	work     sync.WaitGroup // of the broker's own goroutines
	stop     context.CancelFunc
	stopping context.Context
}

// New makes a broker without shards.
func New(cfg Config) *Broker {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, draining: make(chan struct{}), replicas: map[uint32]*replica{}}
	b.stopping, b.stop = context.WithCancel(context.Background())
	return b
}

// Add starts a replica of a data shard with the broker's hooks, before Start or after it.
func (b *Broker) Add(id uint32, start func(shard.Hooks) (*shard.Shard, error)) error {
	if _, err := b.replica(id); err == nil {
		return fmt.Errorf("shard %d: it is on this node already", id)
	}
	r := newReplica(b, id)
	s, err := start(r.hooks())
	if err != nil {
		return fmt.Errorf("shard %d: %w", id, err)
	}
	r.shard = s
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas[id] = r
	if b.started {
		r.begin()
	}
	return nil
}

// Remove forgets a data shard. On return nothing of the broker's runs for it, and who waited in it was told *Elsewhere. The
// shard itself is stopped by whoever started it, before or after.
func (b *Broker) Remove(id uint32) {
	b.mu.Lock()
	r := b.replicas[id]
	delete(b.replicas, id)
	b.mu.Unlock()
	if r != nil {
		close(r.gone)
		r.end()
		r.watches.giveAway(true)
	}
}

// Start lets time pass in the shards.
func (b *Broker) Start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started = true
	for _, r := range b.replicas {
		r.begin()
	}
}

// Drain tells streams and long polls that the node is about to stop.
func (b *Broker) Drain() { b.drain.Do(func() { close(b.draining) }) }

// Draining is closed once Drain was called.
func (b *Broker) Draining() <-chan struct{} { return b.draining }

// Stop ends the broker's own work. The shards are stopped by whoever started them, after this.
func (b *Broker) Stop() {
	b.Drain()
	b.stop()
	b.mu.RLock()
	replicas := slices.Collect(maps.Values(b.replicas))
	b.mu.RUnlock()
	for _, r := range replicas {
		r.end()
	}
	b.work.Wait()
}

// Leader tells which node leads a shard of this node: 0 if none is known to, or this node has no such shard.
func (b *Broker) Leader(id uint32) (node, term, index uint64) {
	b.mu.RLock()
	r := b.replicas[id]
	b.mu.RUnlock()
	if r == nil {
		return 0, 0, 0
	}
	leader, term := r.shard.Leader()
	return uint64(nodeOf(leader)), term, r.applied.Load()
}

// nodeOf is the node of a replica: the low half of its Raft id.
func nodeOf(replica uint64) uint32 { return uint32(replica) }

func (b *Broker) replica(id uint32) (*replica, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	r := b.replicas[id]
	if r == nil {
		return nil, &Elsewhere{Shard: id}
	}
	return r, nil
}

// replicaWithRoom is replica for calls that make something: they are refused when the disk is too full for that.
func (b *Broker) replicaWithRoom(id uint32) (*replica, error) {
	r, err := b.replica(id)
	if err == nil {
		err = b.room()
	}
	return r, err
}

func (b *Broker) room() error {
	if b.cfg.Room == nil {
		return nil
	}
	return b.cfg.Room()
}

// change runs a call in a round of the shard.
func change[T any](ctx context.Context, r *replica, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	return changeOf(ctx, r, "", fn)
}

// changeOf is change for a namespace: those that call much take turns with those that call little.
func changeOf[T any](ctx context.Context, r *replica, ns string, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	out, at, err := shard.UpdateOf(ctx, r.shard, ns, func(tx *store.Tx) (T, error) { return fn(r.round(tx)) })
	return out, at, r.refusal(err)
}

// read runs a call against the state as it was at some moment of the call.
func read[T any](ctx context.Context, r *replica, fn func(store.Reader) (T, error)) (T, Stamp, error) {
	out, at, err := shard.View(ctx, r.shard, fn)
	return out, at, r.refusal(err)
}

// refusal puts what can go wrong around a round into the words of the API.
func (r *replica) refusal(err error) error { return Refusal(r.id, err) }

// Refusal puts what can go wrong around a round of a shard into words that its callers know: *Elsewhere if the call did not
// run since another replica must be asked, an error that is ErrUnknown, or a refusal. What is not one of that stays as it is.
func Refusal(id uint32, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := task.AsError(err); ok {
		return err
	}
	var elsewhere *shard.NotLeader
	switch {
	case errors.As(err, &elsewhere):
		return &Elsewhere{Shard: id, Node: nodeOf(elsewhere.Leader)}
	case errors.Is(err, shard.ErrStopped):
		return &Elsewhere{Shard: id}
	case errors.Is(err, shard.ErrUnknown):
		return Unknown("shard %d", id)
	case errors.Is(err, shard.ErrBusy):
		return task.Unavailable(busyRest, "shard %d: too many calls wait for it", id)
	}
	return err
}

// When callers may do better who are told that an outcome is unknown, or that a shard has too much to do.
const (
	unknownRest = 200 * time.Millisecond
	busyRest    = 500 * time.Millisecond
)

// Elsewhere says that a call certainly did not run: another node leads the shard.
type Elsewhere struct {
	Shard uint32
	Node  uint32 // that leads it, as far as known here; 0: unknown
}

func (e *Elsewhere) Error() string {
	if e.Node == 0 {
		return fmt.Sprintf("shard %d is not led here, and its leader is not known", e.Shard)
	}
	return fmt.Sprintf("shard %d is led by node %d", e.Shard, e.Node)
}

// ErrSlotMoved refuses a task whose slot lies in another shard: this one has not made it.
var ErrSlotMoved = engine.ErrSlotMoved

// ErrUnknown is what a refusal is, in the sense of errors.Is, after which a call may have taken effect or not.
var ErrUnknown = errors.New("outcome unknown")

// Unknown refuses a call that may have taken effect; the words say where its answer was lost.
func Unknown(format string, args ...any) error {
	return &UnknownError{task.Unavailable(unknownRest, "%s: the outcome is not known; repeat the call with the same request_id, key or token", fmt.Sprintf(format, args...))}
}

// UnknownError is a refusal that is ErrUnknown.
type UnknownError struct{ Refusal *task.Error }

func (e *UnknownError) Error() string   { return e.Refusal.Message }
func (e *UnknownError) Unwrap() []error { return []error{e.Refusal, ErrUnknown} }

// halfway is what ends a call of many rounds: once some of it was done it is wrong to say that it did not run.
func halfway(err error, done int64) error {
	var elsewhere *Elsewhere
	if done > 0 && errors.As(err, &elsewhere) {
		return task.Unavailable(unknownRest, "%v: the leader changed when %d tasks were done; repeat the call for the rest", elsewhere, done)
	}
	return err
}
