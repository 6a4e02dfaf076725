package webhooks

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var bg = context.Background()

// world is a system shard, with data shards that only record the watches that they receive.
type world struct {
	*systemtest.World
	leader *systemReplica

	mu      sync.Mutex
	fails   map[uint32]error                 // of all calls to a shard
	watches map[uint32]map[string]task.Watch // by shard and namespace
}

// systemReplica is a node's replica of the system shard.
type systemReplica struct {
	*systemtest.Replica
	*world
	control *control
}

// control is the part of the control plane that webhooks need.
type control struct {
	shard      *system.Shard
	Namespaces *namespaces.Namespaces
	Webhooks   *Webhooks
}

func (c *control) Elected() {
	c.shard.Elected()
	c.Webhooks.Elected()
}

func (c *control) Dropped(bool) { c.shard.Dropped() }

func (c *control) Committed(at uint64) { c.shard.Committed(at) }

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		fn(t, &world{World: systemtest.NewWorld(t), fails: map[uint32]error{}, watches: map[uint32]map[string]task.Watch{}})
	})
}

// seeds returns how many seeds a model tries: a third with -short.
func seeds(many uint64) uint64 {
	if testing.Short() {
		return (many + 2) / 3
	}
	return many
}

// pass lets fake time pass in the test's bubble.
func pass(d time.Duration) { time.Sleep(d) }

// newReplica returns the replica of another node, which doesn't lead yet.
func (w *world) newReplica() *systemReplica {
	s := &systemReplica{Replica: w.NewReplica(), world: w}
	shard := system.NewShard(s.Replica)
	s.control = &control{shard, namespaces.New(namespaces.Config{Shard: shard}), New(shard, w.copyWatches, slog.New(slog.DiscardHandler))}
	s.Leader = s.control
	return s
}

// lead makes this replica the leader.
func (s *systemReplica) lead() {
	s.world.leader = s
	s.Lead()
}

// open creates a cluster with the given number of data shards, and returns the leader's control.
func (w *world) open(shards int) *control {
	w.T.Helper()
	s := w.newReplica()
	s.lead()
	if err := s.Update(bg, func(tx *store.Tx) error {
		tx.Set(system.SettingsKey, system.EncodeRow(system.Settings{Replication: 3, Level: 1, NextNode: 2, DataShards: shards}))
		return nil
	}); err != nil {
		w.T.Fatal(err)
	}
	synctest.Wait()
	return s.control
}

// cut makes all calls to a shard fail.
func (w *world) cut(shard uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails[shard] = err
}

func (w *world) copyWatches(_ context.Context, shard uint32, watches map[string]task.Watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails[shard]; err != nil {
		return err
	}
	if w.watches[shard] == nil {
		w.watches[shard] = map[string]task.Watch{}
	}
	maps.Copy(w.watches[shard], watches)
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var is = systemtest.IsRefusal
