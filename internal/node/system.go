package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// tables adapts this node's replica of the system shard to the cluster package's interface. On a node without one every call fails.
type tables struct{ of *replicas }

func (t tables) shard() (*shard.Shard, error) {
	if rep := t.of.get(systemShard); rep != nil {
		return rep.shard, nil
	}
	return nil, &shard.NotLeader{}
}

// Update implements cluster.System.
func (t tables) Update(ctx context.Context, fn func(tx *store.Tx) error) error {
	s, err := t.shard()
	if err == nil {
		_, _, err = shard.Update(ctx, s, func(tx *store.Tx) (struct{}, error) { return struct{}{}, fn(tx) })
	}
	return err
}

// View implements cluster.System.
func (t tables) View(ctx context.Context, fn func(store.Reader) error) error {
	s, err := t.shard()
	if err == nil {
		_, _, err = shard.View(ctx, s, func(r store.Reader) (struct{}, error) { return struct{}{}, fn(r) })
	}
	return err
}

// system has the calls that run where the system shard is led.
type system struct {
	join     func(context.Context, cluster.JoinRequest) (cluster.Joined, error)
	announce func(context.Context, cluster.Presence) (cluster.Node, error)
	changes  func(context.Context, changesArgs) (cluster.Delta, error)
	shards   func(context.Context, countArgs) (struct{}, error)
}

// addShards raises the number of data shards to total.
func (s *system) addShards(ctx context.Context, by task.Author, total int) error {
	_, err := s.shards(ctx, countArgs{total, by})
	return err
}

// callChanges is the name of the call by which other nodes ask for changes.
const callChanges = "shard.changes"

// changesArgs are the arguments of Control.Changes.
type changesArgs struct {
	After  uint64
	Report cluster.Report
	Wait   time.Duration
}

func newSystem(r *forward.Forwarder, c *cluster.Control) *system {
	return &system{
		join:     forward.OnSystem(r, "join", true, c.Placement.Join),
		announce: forward.OnSystem(r, "present", true, c.Placement.Hello),
		changes: forward.OnSystem(r, "changes", true, func(ctx context.Context, a changesArgs) (cluster.Delta, error) {
			return c.Copies.Changes(ctx, a.After, a.Report, a.Wait)
		}),
		shards: forward.OnSystem(r, "add-shards", true, func(ctx context.Context, a countArgs) (struct{}, error) {
			return struct{}{}, c.Placement.AddShards(ctx, a.By, a.N)
		}),
	}
}
