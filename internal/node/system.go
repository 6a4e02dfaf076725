package node

import (
	"context"

	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
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
