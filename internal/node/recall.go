package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/store"
)

// The map that a node saves is only a help, since the system shard has everything in it too. But without it a member knows nobody
// to ask.

// recallMap finds the other nodes when the saved map is lost: in this node's replica of the system shard, or else by asking at the
// addresses of --join.
func (b *bootstrap) recallMap(ctx context.Context, here *replicas) (err error) {
	if b.known != nil || b.cfg.InMemory {
		return nil
	}
	h, holds := b.dir.Identity.Read().Replicas[systemShard]
	switch {
	case holds && !here.log.Has(systemShard): // it is new
		return nil
	case holds:
		b.known, err = storedMap(here, h)
		return err
	case len(b.cfg.Join) == 0:
		return fmt.Errorf("%s is lost or damaged, so this node knows no others: give it the address of one that runs with --join (Join)", b.dir.File(datadir.MapFile))
	}
	return b.askForMap(ctx)
}

// storedMap reads the map from this node's replica of the system shard; nil if it has none yet.
func storedMap(here *replicas, h datadir.Holding) (*cluster.Map, error) {
	state, err := store.Open(here.storeConfig(systemShard, h))
	if err != nil {
		return nil, err
	}
	m, err := cluster.StoredMap(state)
	if err == nil && len(m.Nodes) == 0 {
		m = nil
	}
	return m, errors.Join(err, state.Close())
}

// methodMap asks a member for its map.
const methodMap = "map"

// askForMap asks at the addresses of --join until a member answers with its map.
func (b *bootstrap) askForMap(ctx context.Context) error {
	for {
		for _, address := range b.cfg.Join {
			if m := b.mapOf(ctx, address); m != nil {
				b.known = m
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no other node of the cluster was found at the addresses of --join: %w", ctx.Err())
		case <-time.After(joinPause):
		}
	}
}

func (b *bootstrap) mapOf(ctx context.Context, address string) *cluster.Map {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, answer, err := b.transport.CallAddress(ctx, address, methodMap, nil)
	if err != nil {
		b.cfg.Logger.Warn("a node did not return a map of the cluster", "address", address, "error", err)
		return nil
	}
	m, err := cluster.DecodeMap(answer)
	if err != nil || len(m.Members()) == 0 {
		return nil
	}
	return m
}
