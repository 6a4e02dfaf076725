package node

import (
	"context"
	"fmt"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/transport"
)

// The map that a node saves is only a help, since the system shard has everything in it too. But without it a member knows nobody
// to ask.

// recallMap reads the map in this node's replica of the system shard, if the saved one is lost or older. It changes nothing. What is
// damaged there is found later.
func (b *bootstrap) recallMap() {
	me := b.dir.Identity.Read()
	h, holds := me.Replicas[systemShard]
	if !holds || b.cfg.InMemory {
		return
	}
	_, _ = store.Peek(stateConfig(b.dir, systemShard, h), func(state *store.Store) error {
		m, err := cluster.StoredMap(state)
		if err == nil && len(m.Nodes) > 0 && (b.known.Load() == nil || b.known.Load().Version < m.Version) {
			b.known.Store(m)
		}
		return err
	})
}

// stateConfig says where the state of a replica is, and whose.
func stateConfig(d *datadir.Dir, id uint32, h datadir.Holding) store.Config {
	return store.Config{Dir: d.File(datadir.StateDir(id, h.Replica)), FS: d.FS, Logger: d.Logger,
		Identity: store.Identity{Cluster: datadir.DecodeID(d.Identity.Read().Cluster), Replica: h.Replica, Shard: id}}
}

// findMap asks for the map at the addresses of --join, if it is lost and nothing here has it.
func (b *bootstrap) findMap(ctx context.Context) error {
	_, holds := b.dir.Identity.Read().Replicas[systemShard]
	switch {
	case b.known.Load() != nil || b.cfg.InMemory || holds: // the system shard's replica here will have it
		return nil
	case len(b.cfg.Join) == 0:
		return fmt.Errorf("%s is lost or damaged, and no other node is known: start this one with --join (Join) and the address of a "+
			"node that runs",
			b.dir.File(datadir.MapFile))
	}
	b.waits.set("the node waits for a node of its cluster to answer")
	for !b.askForMap(ctx) {
		if pause(ctx, joinPause) != nil {
			return fmt.Errorf("no other node of the cluster was found at the addresses of --join: %w", ctx.Err())
		}
	}
	return nil
}

// methodMap asks a member for its map.
const methodMap = "map"

// refreshMap looks for a newer map whenever an unknown node calls while no leader answers.
func (n *Node) refreshMap(ctx context.Context) {
	n.refresher.Run(ctx, members.Sources{Self: n.cfg.Name, Copy: n.copy, Age: n.heartbeat.age, Join: n.cfg.Join, Logger: n.cfg.Logger,
		At: func(ctx context.Context, address string) *cluster.Map {
			return n.bootstrap.mapOf(ctx, n.copy.Map(), address)
		},
		Member: func(ctx context.Context, number uint32) ([]byte, error) {
			return n.transport.Call(ctx, number, methodMap, nil)
		}})
}

// askForMap asks each address of --join for the map, until a member answers.
func (b *bootstrap) askForMap(ctx context.Context) bool {
	for _, address := range b.cfg.Join {
		if m := b.mapOf(ctx, b.known.Load(), address); m != nil {
			b.known.Store(m)
			return true
		}
	}
	return false
}

func (b *bootstrap) mapOf(ctx context.Context, known *cluster.Map, address string) *cluster.Map {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	_, answer, err := b.callAddress(ctx, known, address, methodMap, nil)
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

// callAddress calls the node at an address, and refuses the answer of one that was removed according to a map.
func (b *bootstrap) callAddress(ctx context.Context, known *cluster.Map, address, method string, request []byte) (transport.Peer, []byte,
	error) {
	who, answer, err := b.transport.CallAddress(ctx, address, method, request)
	if err == nil {
		err = members.CheckAnswer(known, who.Number, who.Name)
	}
	return who, answer, err
}
