package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// System is the system shard.
type System interface {
	// Update runs fn in a round. Its refusal leaves nothing behind.
	Update(ctx context.Context, fn func(tx *store.Tx) error) error
	// View runs fn against the state as it was at some moment of the call.
	View(ctx context.Context, fn func(store.Reader) error) error
}

// Shards are the data shards, wherever they are led.
type Shards interface {
	// CopyQueues makes a shard's copies of queue configurations at least as new as these.
	CopyQueues(ctx context.Context, shard uint32, ns string, configs map[string]task.QueueConfig) error
	// DropQueue removes a shard's copy of an empty queue; it refuses when the queue has tasks.
	DropQueue(ctx context.Context, shard uint32, ns, name string) error
}

// Config is what a cluster is made of.
type Config struct {
	System     System
	Shards     Shards
	DataShards []uint32
	MaxQueues  int // default 10,000
	// Room refuses, with unavailable, when the disk is too full for a queue that appears by use; nil: there is always room.
	Room func() error
}

// DefaultMaxQueues bounds the queues of all namespaces together.
const DefaultMaxQueues = 10_000

// Queue is a queue, the shard that it lies in, and its configuration.
type Queue struct {
	Namespace string
	Name      string
	Shard     uint32
	Config    task.QueueConfig
}

type queueName struct{ ns, name string }

// Cluster is this node's view of the cluster. Its methods may be called from any goroutine.
type Cluster struct {
	cfg Config

	changing sync.Mutex // one change of the queues at a time

	mu     sync.RWMutex
	queues map[queueName]Queue
}

// Open reads the system shard's tables, and brings the data shards' copies up to date: the node may have died between a
// change and its copy.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.MaxQueues == 0 {
		cfg.MaxQueues = DefaultMaxQueues
	}
	c := &Cluster{cfg: cfg, queues: map[queueName]Queue{}}
	err := cfg.System.View(ctx, func(r store.Reader) error {
		var bad error
		r.Scan(queueTable, queueTableEnd, func(k, v []byte) bool {
			q, err := decodeQueue(k, v)
			if err != nil {
				bad = err
				return false
			}
			c.queues[queueName{q.Namespace, q.Name}] = q
			return true
		})
		return bad
	})
	if err != nil {
		return nil, fmt.Errorf("queues of the system shard: %w", err)
	}
	return c, c.copyAll(ctx)
}

func (c *Cluster) copyAll(ctx context.Context) error {
	type part struct {
		shard uint32
		ns    string
	}
	parts := map[part]map[string]task.QueueConfig{}
	for _, q := range c.queues {
		p := part{q.Shard, q.Namespace}
		if parts[p] == nil {
			parts[p] = map[string]task.QueueConfig{}
		}
		parts[p][q.Name] = q.Config
	}
	for p, configs := range parts {
		if err := c.cfg.Shards.CopyQueues(ctx, p.shard, p.ns, configs); err != nil {
			return fmt.Errorf("queues of shard %d: %w", p.shard, err)
		}
	}
	return nil
}

// Shards lists the data shards.
func (c *Cluster) Shards() []uint32 { return c.cfg.DataShards }

// Namespaces lists those that have queues.
func (c *Cluster) Namespaces() (names []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for q := range c.queues {
		if !slices.Contains(names, q.ns) {
			names = append(names, q.ns)
		}
	}
	slices.Sort(names)
	return names
}

// Queue is a queue that exists.
func (c *Cluster) Queue(ns, name string) (Queue, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	q, ok := c.queues[queueName{ns, name}]
	return q, ok
}

// Queues lists up to limit queues of a namespace behind a name, in the order of their names.
func (c *Cluster) Queues(ns, after string, limit int) (queues []Queue) {
	c.mu.RLock()
	for _, q := range c.queues {
		if q.Namespace == ns && q.Name > after {
			queues = append(queues, q)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(queues, func(a, b Queue) int { return strings.Compare(a.Name, b.Name) })
	return queues[:min(limit, len(queues))]
}

// Place is the shard of a queue, which is created at its first use if the disk has room.
func (c *Cluster) Place(ctx context.Context, ns, name string) (uint32, error) {
	if q, ok := c.Queue(ns, name); ok {
		return q.Shard, nil
	}
	if c.cfg.Room != nil {
		if err := c.cfg.Room(); err != nil {
			return 0, err
		}
	}
	q, err := c.PutQueue(ctx, ns, name, func(*task.QueueConfig) error { return nil })
	return q.Shard, err
}

// PutQueue changes the configuration of a queue, which is created if need be, and answers when its shard has the new one.
// After unavailable the change may have been made; repeat it.
func (c *Cluster) PutQueue(ctx context.Context, ns, name string, change func(*task.QueueConfig) error) (Queue, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	var q Queue
	err := c.cfg.System.Update(ctx, func(tx *store.Tx) (err error) {
		q, err = c.changed(tx, ns, name, change)
		return err
	})
	if err != nil {
		return Queue{}, err
	}
	if err := c.copy(ctx, q); err != nil {
		return Queue{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[queueName{ns, name}] = q
	return q, nil
}

// changed writes the next version of a queue's row. A change that changes nothing writes nothing.
func (c *Cluster) changed(tx *store.Tx, ns, name string, change func(*task.QueueConfig) error) (Queue, error) {
	q := Queue{Namespace: ns, Name: name}
	key := queueKey(ns, name)
	row, exists := tx.Get(key)
	if exists {
		var err error
		if q, err = decodeQueue(key, row); err != nil {
			return Queue{}, err
		}
	} else {
		if err := c.roomForQueue(name); err != nil {
			return Queue{}, err
		}
		q.Shard = c.home(ns, name)
		q.Config = task.QueueConfig{Settings: task.DefaultSettings(), CreatedAt: tx.Now().Time()}
	}
	before := q.Config
	if err := change(&q.Config); err != nil {
		return Queue{}, err
	}
	if exists && q.Config == before {
		return q, nil
	}
	q.Config.Version = before.Version + 1
	tx.Set(key, encodeQueue(q))
	return q, nil
}

func (c *Cluster) roomForQueue(name string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if len(c.queues) >= c.cfg.MaxQueues {
		return task.Invalid("queue", "%q would be one queue more than the %d that are allowed", name, c.cfg.MaxQueues)
	}
	return nil
}

// home chooses the shard of a new queue.
func (c *Cluster) home(ns, name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(ns + "\x00" + name))
	return c.cfg.DataShards[h.Sum32()%uint32(len(c.cfg.DataShards))]
}

func (c *Cluster) copy(ctx context.Context, q Queue) error {
	return c.cfg.Shards.CopyQueues(ctx, q.Shard, q.Namespace, map[string]task.QueueConfig{q.Name: q.Config})
}

// EnsureQueue makes sure that a queue's shard has its copy of the configuration. The queue is created if it was deleted
// meanwhile.
func (c *Cluster) EnsureQueue(ctx context.Context, shard uint32, ns, name string) error {
	if _, err := c.PutQueue(ctx, ns, name, func(*task.QueueConfig) error { return nil }); err != nil {
		return err
	}
	if q, ok := c.Queue(ns, name); ok && q.Shard != shard {
		return task.Unavailable(100*time.Millisecond, "queue %q lies in shard %d by now", name, q.Shard)
	}
	return nil
}

// DropQueue removes an empty queue.
func (c *Cluster) DropQueue(ctx context.Context, ns, name string) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	q, ok := c.Queue(ns, name)
	if !ok {
		return task.NotFound("queue", name)
	}
	// The shard goes first: it may refuse. If this stops in between, the next use of the queue brings the copy back.
	if err := c.cfg.Shards.DropQueue(ctx, q.Shard, ns, name); err != nil {
		return err
	}
	err := c.cfg.System.Update(ctx, func(tx *store.Tx) error {
		tx.Delete(queueKey(ns, name))
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, queueName{ns, name})
	return nil
}

// The system shard's table of queues: q ns 0 name → version, shard and configuration.
var (
	queueTable    = []byte{'q'}
	queueTableEnd = []byte{'r'}
)

func queueKey(ns, name string) []byte {
	return append(append(append(slices.Clone(queueTable), ns...), 0), name...)
}

const queueVersion = 1

type queueRow struct {
	Shard  uint32 `json:"shard"`
	Config []byte `json:"config"`
}

func encodeQueue(q Queue) []byte {
	b, err := json.Marshal(queueRow{q.Shard, q.Config.Encode()})
	if err != nil {
		panic(err) // a number and bytes always have a form
	}
	return append([]byte{queueVersion}, b...)
}

func decodeQueue(key, value []byte) (Queue, error) {
	ns, name, ok := strings.Cut(string(key[len(queueTable):]), "\x00")
	if !ok || len(value) == 0 || value[0] != queueVersion {
		return Queue{}, fmt.Errorf("queue row %q: unknown form", key)
	}
	var row queueRow
	if err := json.Unmarshal(value[1:], &row); err != nil {
		return Queue{}, fmt.Errorf("queue row %q: %w", key, err)
	}
	config, err := task.DecodeQueueConfig(row.Config)
	return Queue{Namespace: ns, Name: name, Shard: row.Shard, Config: config}, err
}
