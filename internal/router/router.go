package router

import (
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router/claim"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/verb"
)

// Broker is this node's broker, as far as the router needs more of it than its verbs.
type Broker interface {
	forward.Broker
	claim.Broker
}

// Local returns a broker as a Broker.
func Local(b *broker.Broker) Broker { return local{b} }

type local struct{ *broker.Broker }

func (l local) WatchClaims(lost func(broker.Lost), moved func([]broker.Hold)) claim.LocalWatch {
	return l.Broker.WatchClaims(lost, moved)
}

// Map is this node's copy of the system shard's tables. It may be out of date.
type Map interface {
	forward.Map
	enqueue.Map
}

// Peers gives access to the other nodes.
type Peers interface {
	forward.Peers
	claim.Peers
}

// Config configures a router.
type Config struct {
	Node     uint32      // this one
	Parts    *verb.Parts // run the verbs of this node; New adds those of the router
	Broker   Broker
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

// Router is the broker of the whole cluster: its embedded parts have the calls on the tasks of a shard, its fields
// those on other things. Its methods may be called from any goroutine.
type Router struct {
	*forward.Forwarder
	*claim.Claims
	*enqueue.Enqueuer
	*Keys
	*Tasks
	*AuditLog

	Queues     *enqueue.Directory
	Groups     *enqueue.Groups
	Outbox     *enqueue.Outbox
	Schedules  *Schedules
	Operations *Operations
	Workers    *Workers
	Events     *Events
	Stats      *Stats
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
	f := forward.New(forward.Config{Node: cfg.Node, Parts: cfg.Parts, Broker: cfg.Broker, Map: cfg.Map, Peers: cfg.Peers,
		NotSent: cfg.NotSent, SystemLeader: cfg.SystemLeader, Logger: cfg.Logger})
	r := &Router{Forwarder: f, Queues: enqueue.NewDirectory(f, cfg.Map), Claims: claim.New(f, cfg.Broker, cfg.Peers, cfg.Logger),
		Tasks: &Tasks{f}, AuditLog: &AuditLog{f}, Events: &Events{f}, Stats: &Stats{f}}
	r.Enqueuer, r.Groups = enqueue.New(f, r.Queues)
	r.Outbox = enqueue.NewOutbox(f, r.Enqueuer)
	r.Keys = &Keys{f, r.Queues}
	r.Schedules = &Schedules{f, r.Queues, r.Enqueuer, cfg.Logger}
	r.Operations = &Operations{f, r.Queues, cfg.Since}
	r.Workers = &Workers{f, cfg.Registry, r.WatchClaims}
	claim.Verbs.Serve(r.Claims, cfg.Parts)
	registry.Verbs.Serve(cfg.Registry, cfg.Parts)
	stats.Verbs.Serve(cfg.Stats, cfg.Parts)
	return r
}

// Draining returns a channel that is closed when this node is about to stop.
func (r *Router) Draining() <-chan struct{} { return r.Life.Draining() }

// Close ends the router's background work. Calls that look for a leader end too. No call may begin after it.
func (r *Router) Close() {
	r.Claims.Close()
	r.Forwarder.Close()
}
