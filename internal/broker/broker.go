package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Config is what a broker is made of.
type Config struct {
	Limits  task.Limits
	Archive *archive.Archive
	// Namespaces lists those that exist.
	Namespaces func() []string
	// EnsureQueue makes sure that a shard has its copy of a queue's configuration.
	EnsureQueue func(ctx context.Context, shard uint32, ns, queue string) error
	// Room refuses, with unavailable, when the disk is too full to take more tasks; nil: there is always room.
	Room   func() error
	Logger *slog.Logger
}

// Broker runs the shards of a node. Its methods may be called from any goroutine.
type Broker struct {
	cfg      Config
	draining chan struct{}
	drain    sync.Once

	mu       sync.RWMutex
	replicas map[uint32]*replica

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

// Add starts a data shard with the broker's hooks. All are added before Start.
func (b *Broker) Add(id uint32, start func(shard.Hooks) (*shard.Shard, error)) error {
	r := newReplica(b, id)
	s, err := start(r.hooks())
	if err != nil {
		return fmt.Errorf("shard %d: %w", id, err)
	}
	r.shard = s
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas[id] = r
	return nil
}

// Start lets time pass in the shards.
func (b *Broker) Start() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, r := range b.replicas {
		b.work.Go(func() { r.passTime(b.stopping) })
		b.work.Go(func() { r.archiveDead(b.stopping) })
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
	b.work.Wait()
}

// Leader tells who leads a shard of this node: 0 if nobody is known to, or the node has no such shard.
func (b *Broker) Leader(id uint32) (node, term, index uint64) {
	r, err := b.replica(id)
	if err != nil {
		return 0, 0, 0
	}
	node, term = r.shard.Leader()
	return node, term, r.applied.Load()
}

func (b *Broker) replica(id uint32) (*replica, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	r := b.replicas[id]
	if r == nil {
		return nil, task.Unavailable(time.Second, "shard %d is not on this node", id)
	}
	return r, nil
}

// replicaOf finds the shard that a task's id names. A shard that nobody has is a task that nobody has.
func (b *Broker) replicaOf(id task.ID) (*replica, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	r := b.replicas[id.Shard()]
	if r == nil {
		return nil, task.NotFound("task", id.String())
	}
	return r, nil
}

// change runs a call in a round of the shard.
func change[T any](ctx context.Context, r *replica, fn func(*engine.Round) (T, error)) (T, Stamp, error) {
	out, at, err := shard.Update(ctx, r.shard, func(tx *store.Tx) (T, error) { return fn(r.round(tx)) })
	return out, at, r.refusal(err)
}

// read runs a call against the state as it was at some moment of the call.
func read[T any](ctx context.Context, r *replica, fn func(store.Reader) (T, error)) (T, Stamp, error) {
	out, at, err := shard.View(ctx, r.shard, fn)
	return out, at, r.refusal(err)
}

// refusal puts what can go wrong around a round into the words of the API.
func (r *replica) refusal(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := task.AsError(err); ok {
		return err
	}
	var elsewhere *shard.NotLeader
	switch {
	case errors.As(err, &elsewhere):
		return task.Unavailable(200*time.Millisecond, "shard %d: this node does not lead it, node %d may", r.id, elsewhere.Leader)
	case errors.Is(err, shard.ErrStopped):
		return task.Unavailable(time.Second, "shard %d: the node is stopping", r.id)
	case errors.Is(err, shard.ErrUnknown):
		return task.Unavailable(200*time.Millisecond, "shard %d: the outcome is not known; repeat the call with the same request_id, key or token", r.id)
	}
	return err
}
