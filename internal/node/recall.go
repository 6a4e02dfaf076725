package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/store"
)

// The map that a node saves is only a help, since the system shard has everything in it too. But without it a member knows nobody
// to ask.

// recallMap finds the other nodes when the saved map is lost: in this node's replica of the system shard, or else by asking at the
// addresses of --join.
func (n *Node) recallMap(ctx context.Context) (err error) {
	if n.known != nil || n.cfg.InMemory {
		return nil
	}
	h, holds := n.identity.read().Replicas[systemShard]
	switch {
	case holds && !n.replicas.log.Has(systemShard): // it is new
		return nil
	case holds:
		n.known, err = n.storedMap(h)
		return err
	case len(n.cfg.Join) == 0:
		return fmt.Errorf("%s is lost or damaged, so this node knows no others: give it the address of one that runs with --join (Join)", n.path(mapFile))
	}
	return n.askForMap(ctx)
}

// storedMap reads the map from this node's replica of the system shard; nil if it has none yet.
func (n *Node) storedMap(h holding) (*cluster.Map, error) {
	state, err := store.Open(n.replicas.storeConfig(systemShard, h))
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
func (n *Node) askForMap(ctx context.Context) error {
	for {
		for _, address := range n.cfg.Join {
			if m := n.mapOf(ctx, address); m != nil {
				n.known = m
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

func (n *Node) mapOf(ctx context.Context, address string) *cluster.Map {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, answer, err := n.transport.CallAddress(ctx, address, methodMap, nil)
	if err != nil {
		n.cfg.Logger.Warn("a node did not return a map of the cluster", "address", address, "error", err)
		return nil
	}
	m, err := cluster.DecodeMap(answer)
	if err != nil || len(m.Members()) == 0 {
		return nil
	}
	return m
}
