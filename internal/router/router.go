package router

import (
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router/claims"
	"github.com/pawlq/pawl/internal/router/directory"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/once"
	"github.com/pawlq/pawl/internal/router/operations"
	"github.com/pawlq/pawl/internal/router/query"
	"github.com/pawlq/pawl/internal/router/schedules"
	"github.com/pawlq/pawl/internal/router/workers"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/verb"
)

// Broker is this node's broker, as the parts need it. For shards that it does not lead, calls return *broker.NotLeader.
type Broker interface {
	forward.Broker
	claims.Broker
	enqueue.Broker
	once.Broker
	query.Broker
}

// Local returns a broker as a Broker.
func Local(b *broker.Broker) Broker { return local{b} }

type local struct{ *broker.Broker }

func (l local) WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) claims.LocalWatch {
	return l.Broker.WatchClaims(lost, moved)
}

// Control changes and reads the system shard where that is led, as the parts need it; elsewhere it returns the shard's error.
type Control interface {
	enqueue.Control
	query.Control
	directory.Control
	schedules.Control
	workers.Control
}

// Map is this node's copy of the system shard's tables. It may be out of date.
type Map interface {
	forward.Map
	directory.Map
}

// Peers gives access to the other nodes.
type Peers interface {
	forward.Peers
	claims.Peers
}

// Config configures a router.
type Config struct {
	Node     uint32      // this one
	Parts    *verb.Parts // run the verbs of this node; New adds those of the router
	Broker   Broker
	Control  Control
	Map      Map
	Registry *registry.Registry // the workers of this node
	Peers    Peers
	NotSent  func(error) bool
	Stats    *stats.Recorder // nil: an empty one
	// SystemLeader returns the node that leads the system shard as far as this node's replica of it knows; 0: none.
	SystemLeader func() uint32
	// Since returns the version since which a namespace exists; nil: all have always existed.
	Since  func(ns string) uint64
	Logger *slog.Logger // nil: none
}

// Router is the broker of the whole cluster: its embedded parts have the calls on the tasks of a shard, its fields those on other things. Its
// methods may be called from any goroutine.
type Router struct {
	*forward.Forwarder
	*claims.Claims
	*enqueue.Enqueuer
	*once.Keys
	*query.Tasks
	*query.AuditLog

	Queues     *directory.Directory
	Groups     *enqueue.Groups
	Outbox     *enqueue.Outbox
	Schedules  *schedules.Schedules
	Operations *operations.Operations
	Workers    *workers.Workers
	Events     *query.Events
	Stats      *query.Stats
}

// New returns a router. Close ends it.
func New(cfg Config) *Router {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Stats == nil {
		cfg.Stats = stats.New(time.Now())
	}
	if cfg.Since == nil {
		cfg.Since = func(string) uint64 { return 0 }
	}
	f := forward.New(forward.Config{Node: cfg.Node, Parts: cfg.Parts, Broker: cfg.Broker, Map: cfg.Map, Peers: cfg.Peers, NotSent: cfg.NotSent,
		SystemLeader: cfg.SystemLeader, Logger: cfg.Logger})
	r := &Router{Forwarder: f, Queues: directory.New(f, cfg.Control, cfg.Map), Claims: claims.New(f, cfg.Broker, cfg.Peers, cfg.Logger),
		Tasks: query.NewTasks(f, cfg.Broker), AuditLog: query.NewAuditLog(f, cfg.Broker, cfg.Control),
		Events: query.NewEvents(f, cfg.Broker, cfg.Control), Stats: query.NewStats(f, cfg.Broker, cfg.Stats)}
	r.Enqueuer, r.Groups = enqueue.New(f, cfg.Broker, r.Queues, r.Tasks)
	r.Outbox = enqueue.NewOutbox(f, cfg.Control, r.Enqueuer)
	r.Keys = once.New(f, cfg.Broker, r.Queues)
	r.Schedules = schedules.New(f, cfg.Control, r.Queues, r.Enqueuer, cfg.Logger)
	r.Operations = operations.New(f, r.Queues, cfg.Since)
	r.Workers = workers.New(f, cfg.Control, cfg.Registry, r.WatchClaims)
	return r
}

// Draining returns a channel that is closed when this node is about to stop.
func (r *Router) Draining() <-chan struct{} { return r.Life.Draining() }

// Close ends the router's background work. Calls that look for a leader end too. No call may begin after it.
func (r *Router) Close() {
	r.Claims.Close()
	r.Forwarder.Close()
}
