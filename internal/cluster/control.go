package cluster

import (
	"context"
	"log/slog"
	"sync"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/markers"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/system/quotas"
	"github.com/pawlq/pawl/internal/system/schedules"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/system/workers"
	"github.com/pawlq/pawl/internal/task"
)

// Shards gives access to the data shards, wherever they are led.
type Shards interface {
	queues.Shards
	quotas.Shards
	// EraseNamespace removes what a shard still has of a namespace without queues that was removed in a version. It returns an error while
	// tasks are in transit, or if the shard has something of a newer namespace of that name.
	EraseNamespace(ctx context.Context, shard uint32, ns string, removed uint64) error
	// CopyWatches brings a shard's copies of what the webhooks of namespaces subscribe to to at least these versions.
	CopyWatches(ctx context.Context, shard uint32, watches map[string]task.Watch) error
}

// Config configures a Control.
type Config struct {
	System system.Replica
	Shards Shards
	// Own returns this node's report, and Node is its number: a node that leads the system shard need not report to itself.
	Own  func() Report
	Node uint32
	// Room returns unavailable when the disk is too full for a queue that is created by its first use; nil: there is always room.
	Room   func() error
	Logger *slog.Logger // nil: none
}

// Control is the control plane: it reads and changes the system shard's tables. Every node has one. The methods of its parts run rounds and
// views on this node's replica. On a node that does not lead the system shard, they return the shard's error, which names the leader. What
// they remember beyond the rows is discarded when the replica stops leading.
//
// They may be called from any goroutine. Elected, Dropped and Committed must be called on the system shard's loop, in the order of its
// hooks; functions that run in a round are on that loop, too.
type Control struct {
	Placement  *Placement
	Copies     *Copies
	Queues     *queues.Queues
	Quotas     *quotas.Divider
	Namespaces *namespaces.Namespaces
	Tokens     *tokens.Tokens
	Workers    *workers.Workers
	Schedules  *schedules.Names
	Webhooks   *webhooks.Webhooks
	Markers    *markers.Markers
	Audit      *auditlog.Log

	shard *system.Shard
	log   *slog.Logger

	mu     sync.Mutex // held while leadership changes
	closed bool
	work   sync.WaitGroup // of the leader
}

// NewControl returns a Control that does not lead.
func NewControl(cfg Config) *Control {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	shard := system.NewShard(cfg.System)
	c := &Control{shard: shard, log: cfg.Logger, Placement: NewPlacement(shard, cfg.Own, cfg.Node), Quotas: quotas.New(shard, cfg.Shards,
		cfg.Logger), Tokens: tokens.New(shard),
		Workers: workers.New(shard), Schedules: schedules.New(shard), Webhooks: webhooks.New(shard, cfg.Shards.CopyWatches, cfg.Logger),
		Markers: markers.New(shard), Audit: auditlog.New(shard)}
	c.Copies = NewCopies(shard, c.Placement, c.Tokens.NoteUses)
	shard.Confirm = c.Copies.Confirm
	c.Queues = queues.New(queues.Config{Shard: shard, Shards: cfg.Shards, EnsureShare: c.Quotas.EnsureShare, Divide: c.Quotas.DivideQueue,
		Divided: quotas.Divided, Renew: quotas.Renew, Undivide: quotas.ForgetQueue, Room: cfg.Room, Logger: cfg.Logger})
	c.Namespaces = namespaces.New(namespaces.Config{Shard: shard, Divide: c.Quotas.Divide, Undivide: quotas.Forget,
		Erase: cfg.Shards.EraseNamespace, Forget: []func(tx *store.Tx, ns string){schedules.Forget, webhooks.Forget, markers.Forget,
			c.Workers.Forget}})
	return c
}

// Close ends the Control's background work.
func (c *Control) Close() {
	c.mu.Lock()
	c.closed = true // from here on it is not elected
	c.mu.Unlock()
	c.Dropped(true)
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
	c.Copies.Elected()
	c.Placement.Elected()
	ctx := c.shard.Elected()
	c.Queues.Elected()
	c.Webhooks.Elected()
	c.work.Go(func() { c.Queues.Repair(ctx) })
	c.work.Go(func() { c.Queues.AdvanceMoves(ctx, c.minutely) })
	c.work.Go(func() { c.Quotas.Run(ctx) })
}

// minutely does what a leader does about every minute.
func (c *Control) minutely(ctx context.Context) {
	if err := c.Tokens.WriteUses(ctx); err != nil && ctx.Err() == nil {
		c.log.Info("when tokens were last used is not noted", "error", err)
	}
	if err := c.Audit.Expire(ctx); err != nil && ctx.Err() == nil {
		c.log.Info("old entries of the audit wait", "error", err)
	}
}

// Dropped is called when a round of the system shard did not commit, or its outcome is unknown, or the replica's term ended.
func (c *Control) Dropped(over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shard.Dropped() {
		return
	}
	c.Placement.Dropped()
	if over {
		c.Queues.Dropped()
	}
}

// Committed is called when the round at this index of the system shard's log has been applied.
func (c *Control) Committed(at uint64) {
	c.Queues.Committed(at)
	c.shard.Committed(at)
}
