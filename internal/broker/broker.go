package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Config configures a Broker.
type Config struct {
	Limits  task.Limits
	Archive Archive
	// Namespaces lists the existing namespaces.
	Namespaces func() []string
	// AuditKeep returns how long audit entries are kept; nil: the default.
	AuditKeep func() time.Duration
	// EnsureQueue makes sure that a shard has its copy of a queue's configuration. If the queue is in other shards it returns an error,
	// which is passed on unchanged to the broker's caller.
	EnsureQueue func(ctx context.Context, shard uint32, ns, queue string) error
	// SendOutbox delivers messages to their shards and returns a result for each. The outbox sender calls it.
	SendOutbox func(ctx context.Context, ns string, messages []*OutboxMessage) []Enqueued
	// ShardOf returns the shard to which SendOutbox delivers the tasks of a queue's slot, as far as this node knows
	// without asking; 0: it does not.
	ShardOf func(ns, queue string, slot int) uint32
	// RunStep runs a step of an operation in a shard, wherever it is led, by calling the verb RunStep there.
	RunStep func(ctx context.Context, shard uint32, ns string, c StepCall) (StepAnswer, error)
	// HasShard reports whether there is a data shard of this number, according to the system shard: a node's own copy may be behind.
	HasShard func(ctx context.Context, shard uint32) (bool, error)
	// Workers returns what the nodes know about the workers of the given queues, in the same order; nil: nothing.
	Workers func(ctx context.Context, queues []QueueName) []task.QueueWorkers
	// Room returns unavailable when the disk is too full to take more tasks; nil: there is always room.
	Room func() error
	// Tracer starts the traces of ticks; nil: they belong to none.
	Tracer trace.Tracer
	// Stats records what happens in the shards that this node leads; nil: nothing is recorded.
	Stats  *stats.Recorder
	Logger *slog.Logger
	// LogHeaders names the headers included in a dead letter's log line, as returned by tasklog.Parse.
	LogHeaders []string
}

// Broker runs the shards of a node. Its methods are safe for concurrent use.
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

// New returns a broker without shards.
func New(cfg Config) *Broker {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, draining: make(chan struct{}), replicas: map[uint32]*replica{}}
	b.stopping, b.stop = context.WithCancel(context.Background())
	return b
}

// Add starts a replica of a data shard with the broker's hooks. It may be called before or after Start.
func (b *Broker) Add(id uint32, start func(shard.Hooks) (*shard.Shard, error)) error {
	if _, err := b.replica(id); err == nil {
		return fmt.Errorf("shard %d: already on this node", id)
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

// Remove forgets a data shard. When it returns, no goroutine of the broker runs for the shard, and callers that were waiting in it
// have got *NotLeader. Whoever started the shard stops it, before or after.
func (b *Broker) Remove(id uint32) {
	b.mu.Lock()
	r := b.replicas[id]
	delete(b.replicas, id)
	b.mu.Unlock()
	if r != nil {
		close(r.gone)
		r.end()
		r.watches.moveAll(true)
	}
}

// Start starts the background work of the replicas: ticks, archiving, outbox, operations, checks of claims.
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

// Draining returns a channel that is closed once Drain has been called.
func (b *Broker) Draining() <-chan struct{} { return b.draining }

// Stop ends the broker's own work. Whoever started the shards stops them, after this.
func (b *Broker) Stop() {
	b.Drain()
	b.mu.Lock()
	b.stop() // from here on, background begins nothing
	replicas := slices.Collect(maps.Values(b.replicas))
	b.mu.Unlock()
	for _, r := range replicas {
		r.end()
	}
	b.work.Wait()
}

// background runs fn on a goroutine that Stop waits for. After Stop it does nothing: a shard may still call it then.
func (b *Broker) background(fn func()) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.stopping.Err() == nil {
		b.work.Go(fn)
	}
}

// Leader returns the node that leads one of this node's shards, or 0 if no leader is known or this node doesn't have the shard.
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

// nodeOf returns the node of a replica: the low half of its Raft id.
func nodeOf(replica uint64) uint32 { return uint32(replica) }

func (b *Broker) replica(id uint32) (*replica, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	r := b.replicas[id]
	if r == nil {
		return nil, &NotLeader{Shard: id}
	}
	return r, nil
}

// replicaWithRoom is like replica, for calls that create something: they are refused when the disk is too full.
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

// changeOf is change on behalf of a namespace. Namespaces take turns, so a busy one does not crowd out the others.
func changeOf[T any](ctx context.Context, r *replica, ns string, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	for tries := 0; ; tries++ {
		out, at, err := shard.UpdateOf(ctx, r.shard, ns, func(tx *store.Tx) (T, error) { return fn(r.round(tx)) })
		if tries == maxDamages || !r.setDamageApart(ctx, err) {
			return out, at, r.refusal(err)
		}
	}
}

// read runs a call against the state at some moment during the call.
func read[T any](ctx context.Context, r *replica, fn func(store.Reader) (T, error)) (T, Stamp, error) {
	for tries := 0; ; tries++ {
		out, at, err := shard.View(ctx, r.shard, func(from store.Reader) (T, error) { return fn(schema.Limit(from, task.RoomOf(ctx))) })
		if tries == maxDamages || !r.setDamageApart(ctx, err) {
			return out, at, r.refusal(err)
		}
	}
}

// maxDamages is how many rows one call may have set apart before it fails.
const maxDamages = 10

// setDamageApart sets apart the row on which a call has failed, if others need it too: it would stop a queue, a
// namespace, or a loop. It reports whether the call may run again.
func (r *replica) setDamageApart(ctx context.Context, err error) bool {
	var damage *schema.DamageError
	if !errors.As(err, &damage) || len(damage.Key) == 0 {
		return false
	}
	_, _, err = shard.Update(ctx, r.shard, func(tx *store.Tx) (struct{}, error) {
		engine.SetRowApart(r.round(tx), damage.Key, damage.Error())
		return struct{}{}, nil
	})
	if names := strings.Split(string(damage.Key[1:]), "\x00"); err == nil && damage.Key[0] == schema.TableQueue {
		err = r.b.cfg.EnsureQueue(ctx, r.id, names[0], names[1]) // the system shard has the settings
	}
	return err == nil
}

// refusal translates an error of a round for the API.
func (r *replica) refusal(err error) error { return Refusal(r.id, err) }

// Refusal translates an error of a shard's round into one that its callers know: *NotLeader if the call did not run because another
// replica must be asked, an error that is ErrUnknown, or a refusal. Any other error is returned unchanged.
func Refusal(id uint32, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := task.AsError(err); ok {
		return err
	}
	var notLeader *shard.NotLeader
	switch {
	case errors.As(err, &notLeader):
		return &NotLeader{Shard: id, Node: nodeOf(notLeader.Leader)}
	case errors.Is(err, shard.ErrStopped):
		return &NotLeader{Shard: id}
	case errors.Is(err, shard.ErrUnknown):
		return Unknown("shard %d", id)
	case errors.Is(err, shard.ErrBusy):
		return task.Unavailable(busyRetryAfter, "shard %d: too many calls are waiting", id)
	}
	return err
}

// How long a caller should wait before retrying after an unknown outcome, or when a shard is overloaded.
const (
	unknownRetryAfter = 200 * time.Millisecond
	busyRetryAfter    = 500 * time.Millisecond
)

// NotLeader reports that a call certainly did not run: another node leads the shard.
type NotLeader struct {
	Shard uint32
	Node  uint32 // the shard's leader as far as known here; 0: unknown
}

func (e *NotLeader) Error() string {
	if e.Node == 0 {
		return fmt.Sprintf("shard %d is not led here, and its leader is not known", e.Shard)
	}
	return fmt.Sprintf("shard %d is led by node %d", e.Shard, e.Node)
}

// ErrSlotMoved refuses a task whose slot is in another shard now. This shard has not created the task.
var ErrSlotMoved = engine.ErrSlotMoved

// ErrUnknown matches, by errors.Is, every refusal after which the call may or may not have taken effect.
var ErrUnknown = errors.New("outcome unknown")

// UnknownAdvice ends the text of Unknown.
const UnknownAdvice = ": the outcome is not known; repeat the call with the same request_id, key or token"

// Unknown refuses a call that may have taken effect. The text says where its answer was lost.
func Unknown(format string, args ...any) error {
	return &UnknownError{task.Unavailable(unknownRetryAfter, "%s"+UnknownAdvice, fmt.Sprintf(format, args...))}
}

// UnknownError is a refusal that matches ErrUnknown.
type UnknownError struct{ Refusal *task.Error }

func (e *UnknownError) Error() string   { return e.Refusal.Message }
func (e *UnknownError) Unwrap() []error { return []error{e.Refusal, ErrUnknown} }

// partlyDone returns the error that ends a call of many rounds: once some of it was done, it must not claim that the call did not run.
func partlyDone(err error, done int64) error {
	var notLeader *NotLeader
	if done > 0 && errors.As(err, &notLeader) {
		return task.Unavailable(unknownRetryAfter, "%v: the leader changed when %d tasks were done; repeat the call for the rest",
			notLeader, done)
	}
	return err
}
