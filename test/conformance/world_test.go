package conformance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/gateway"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

const (
	namespace   = "default"
	systemShard = 0
	// dataShard is the only data shard, unless a story needs more.
	dataShard = 1
	// pipeBuffer is the buffer of each direction of an in-memory connection, in bytes.
	pipeBuffer = 256 << 10
	// segmentSize is the size of log segments in memory. Segments are zero-filled from the start: with the size used on
	// disk they would cost more than a story.
	segmentSize = 256 << 10
)

// testNode is a node in memory, in the fake time of the bubble in which it was built: a system shard, data shards, the
// broker and the gateway. Package node would assemble the same, but does not expose the broker, which the direct API
// needs.
type testNode struct {
	broker     *broker.Broker
	control    *cluster.Control
	copy       *cluster.Copy
	registry   *registry.Registry
	router     *router.Router
	systemCopy *cluster.Copy       // copy of the system shard's tables, as a node has it
	authn      *auth.Authenticator // admits every caller, and knows the namespaces
	hooks      onlyHooks
	receiver   *receiver // of notices
	pipe       *bufconn.Listener
	slept      atomic.Int64 // how long the machine has slept, in nanoseconds
	audits     []string     // positions of the entries that a test has read
}

// time returns the time of the node's clocks, awake or asleep.
func (h *testNode) time() time.Time { return time.Now().Add(time.Duration(h.slept.Load())) }

// build starts a node that ends with its test. The archive needs a real directory.
func build(t *testing.T, shards int, archiveDir string) *testNode {
	t.Helper()
	h := &testNode{pipe: bufconn.Listen(pipeBuffer), registry: registry.New(), systemCopy: cluster.NewCopy(nil),
		authn: auth.NewAuthenticator(auth.Config{Mode: auth.Never})}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	fatal := func(err error) { t.Errorf("fatal error of the node: %v", err) }
	fs := vfs.NewMem()

	logs, err := raftlog.Open(raftlog.Config{Dir: "raft", FS: fs, SegmentSize: segmentSize, Logger: log, Fatal: fatal})
	must(t, err)
	closeAtEnd(t, logs)
	began := h.time()
	clock := store.TimeSource{Wall: h.time, Elapsed: func() time.Duration { return h.time().Sub(began) }}
	start := func(id uint32, hooks shard.Hooks) (*shard.Shard, error) {
		return startShard(t, store.Config{Dir: fmt.Sprintf("shard-%d", id), FS: fs, Identity: store.Identity{Replica: 1, Shard: id},
			Logger: log, Fatal: fatal},
			shard.Config{ID: id, Replica: 1, Voters: []uint64{1}, Log: logs, Hooks: hooks, Time: clock, Logger: log, Fatal: fatal})
	}
	dead, err := archive.Open(archive.Config{Dir: archiveDir})
	must(t, err)
	closeAtEnd(t, dead)

	recorder := stats.New(time.Now())
	h.broker = broker.New(broker.Config{Limits: task.DefaultLimits(), Archive: dead, Logger: log, Stats: recorder,
		Namespaces: h.authn.Namespaces,
		AuditKeep:  h.systemCopy.AuditKeep,
		EnsureQueue: func(ctx context.Context, id uint32, ns, q string) error {
			return h.router.Queues.EnsureQueue(ctx, id, ns, q)
		},
		SendOutbox: func(ctx context.Context, ns string, messages []*broker.OutboxMessage) []broker.Enqueued {
			return h.router.Outbox.Send(ctx, ns, messages)
		},
		ShardOf:  func(ns, queue string, slot int) uint32 { return h.router.Enqueuer.ShardOf(ns, queue, slot) },
		HasShard: func(ctx context.Context, id uint32) (bool, error) { return h.router.HasShard(ctx, id) },
		RunStep: func(ctx context.Context, id uint32, ns string, c broker.StepCall) (broker.StepAnswer, error) {
			return h.router.Operations.RunStep(ctx, id, ns, c)
		}})
	h.copy = cluster.NewCopy(nil)
	var system lateSystem
	h.control = cluster.NewControl(cluster.Config{System: &system, Shards: lateShards{h}, Logger: log})
	t.Cleanup(h.control.Close)
	leads, err := start(systemShard, shard.Hooks{Elected: func(shard.LeaderTerm) { h.control.Elected() }, Dropped: h.control.Dropped,
		Committed: func(_ *store.Tx, at shard.Stamp) { h.control.Committed(at.Index) }})
	must(t, err)
	system.shard.Store(leads)
	var data []uint32
	for id := uint32(dataShard); id < dataShard+uint32(shards); id++ {
		must(t, h.broker.Add(id, func(hooks shard.Hooks) (*shard.Shard, error) { return start(id, hooks) }))
		data = append(data, id)
	}
	t.Cleanup(h.broker.Stop)
	parts := &verb.Parts{}
	router.Serve(h.broker, parts)
	h.control.Serve(parts)
	h.router = router.New(router.Config{Node: 1, Parts: parts, Broker: router.Local(h.broker), Map: onlyMap{h.copy, data},
		Registry: h.registry, Stats: recorder, Logger: log, SystemLeader: func() uint32 { return 1 }})
	t.Cleanup(h.router.Close)
	must(t, h.control.Placement.Found(t.Context(), cluster.FirstNode{Name: "n1", Version: "test", MinLevel: 1, MaxLevel: 3}, shards))
	h.broker.Start()
	h.hear(t)
	h.openPost(t, log, parts)

	g := gateway.New(gateway.Config{Broker: h.router, Cluster: h.router.Queues, Schedules: h.router.Schedules, Groups: h.router.Groups,
		Operations: h.router.Operations, Workers: h.router.Workers, Events: h.router.Events, Registry: h.registry, Stats: h.router.Stats,
		Webhooks: h.hooks, Auth: h.authn, Ready: h.router.Ready, Limits: task.DefaultLimits(), Logger: log, Node: "n1", SQS: true})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := g.Serve(h.pipe); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	synctest.Wait() // a Serve that begins after Shutdown returns an error
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		h.broker.Drain()
		g.Shutdown(ctx)
		serving.Wait()
	})
	return h
}

// hear tells the registry which workers are to be quiet, and the gateway which namespaces exist, as a node's copy of the tables does.
func (h *testNode) hear(t *testing.T) {
	h.systemCopy.OnQuiet(router.TellRegistry(h.registry))
	h.systemCopy.OnAccess(h.authn.Replace)
	ctx, stop := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		h.systemCopy.Follow(ctx, func(ctx context.Context, after uint64, wait time.Duration) (cluster.Delta, error) {
			return h.control.Copies.Changes(ctx, after, cluster.Report{Node: 1}, wait)
		}, func(time.Time) {})
	})
	following.Go(func() { h.router.Workers.Watch(ctx) })
	t.Cleanup(func() { stop(); following.Wait() })
}

// slowTick is enough for a single voter, which needs ticks only to be elected.
const slowTick = 10 * time.Second

// startShard opens the state of a shard, starts its only replica, and waits until it leads.
func startShard(t *testing.T, on store.Config, cfg shard.Config) (*shard.Shard, error) {
	state, err := store.Open(on)
	if err != nil {
		return nil, err
	}
	closeAtEnd(t, state)
	cfg.State, cfg.TickInterval, cfg.ElectionTicks = state, slowTick, 2
	s, err := shard.Start(cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(s.Stop)
	for {
		if _, leads := s.Now(); leads {
			return s, nil
		}
		time.Sleep(slowTick)
		synctest.Wait()
	}
}

// lateSystem is the system shard as package cluster sees it. The shard is set later.
type lateSystem struct{ shard atomic.Pointer[shard.Shard] }

func (s *lateSystem) Update(ctx context.Context, fn func(tx *store.Tx) error) error {
	leads := s.shard.Load()
	if leads == nil {
		return &shard.NotLeader{}
	}
	_, _, err := shard.Update(ctx, leads, func(tx *store.Tx) (struct{}, error) { return struct{}{}, fn(tx) })
	return err
}

func (s *lateSystem) View(ctx context.Context, fn func(store.Reader) error) error {
	leads := s.shard.Load()
	if leads == nil {
		return &shard.NotLeader{}
	}
	_, _, err := shard.View(ctx, leads, func(r store.Reader) (struct{}, error) { return struct{}{}, fn(r) })
	return err
}

func closeAtEnd(t *testing.T, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
