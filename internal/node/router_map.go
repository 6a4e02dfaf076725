package node

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// routerMap adapts this node's copy of the map to the router's interface.
type routerMap struct {
	*cluster.Copy
	heartbeat *heartbeat
}

// Replicas implements router.Map.
func (a routerMap) Replicas(shard uint32) (nodes []uint32) {
	row, ok := a.Shard(shard)
	if !ok {
		return nil
	}
	for _, r := range row.Replicas {
		nodes = append(nodes, r.Node)
	}
	return nodes
}

// Nodes implements router.Map.
func (a routerMap) Nodes() (nodes []forward.Node) {
	m := a.Map()
	if m == nil {
		return nil
	}
	for _, node := range m.Members() {
		nodes = append(nodes, forward.Node{Number: node.Number, Name: node.Name})
	}
	return nodes
}

// Age implements router.Map.
func (a routerMap) Age() time.Duration { return a.heartbeat.age() }

// routerShards gives the control access to the data shards through the router. The two depend on each other, so it looks the router up
// when called.
type routerShards struct{ n *Node }

// CopyQueues implements cluster.Shards.
func (l routerShards) CopyQueues(ctx context.Context, shard uint32, ns string, since uint64, configs map[string]task.QueueConfig) error {
	_, err := broker.CopyQueues.Call(ctx, l.n.router, broker.QueueCopies{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
		Since: since, Configs: configs})
	return err
}

// Spaces implements cluster.Shards.
func (l routerShards) Spaces(ctx context.Context, shard uint32, names []task.SpaceName) ([]task.Space, error) {
	return broker.Spaces.Call(ctx, l.n.router, broker.OnSpaces{Shard: shard, Names: names})
}

// PutShare implements cluster.Shards.
func (l routerShards) PutShare(ctx context.Context, shard uint32, name task.SpaceName, to task.Share) (task.Space, error) {
	on := broker.OnSpaces{Shard: shard, Names: []task.SpaceName{name}}
	return broker.PutShare.Call(ctx, l.n.router, broker.NewShare{OnSpaces: on, Share: to})
}

// EraseNamespace implements cluster.Shards.
func (l routerShards) EraseNamespace(ctx context.Context, shard uint32, ns string, removed uint64) error {
	_, err := broker.EraseNamespace.Call(ctx, l.n.router, broker.Removal{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
		Version: removed})
	return err
}

// DropQueue implements cluster.Shards.
func (l routerShards) DropQueue(ctx context.Context, shard uint32, ns, name string, version uint64) error {
	_, err := broker.DropCopy.Call(ctx, l.n.router, broker.CopyOf{OnQueue: onQueue(shard, ns, name), Version: version})
	return err
}

// KeysUntil implements cluster.Shards.
func (l routerShards) KeysUntil(ctx context.Context, shard uint32, ns, name string) (store.Time, error) {
	return broker.KeysUntil.Call(ctx, l.n.router, onQueue(shard, ns, name))
}

// CheckKeys implements cluster.Shards.
func (l routerShards) CheckKeys(ctx context.Context, shard uint32, ns, name string) error {
	_, err := broker.CheckKeys.Call(ctx, l.n.router, onQueue(shard, ns, name))
	return err
}

// HoldsUnique implements cluster.Shards.
func (l routerShards) HoldsUnique(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (bool, error) {
	return broker.HoldsUnique.Call(ctx, l.n.router, broker.OnSlots{OnQueue: onQueue(shard, ns, name), Slots: slots})
}

// CopyWatches implements cluster.Shards.
func (l routerShards) CopyWatches(ctx context.Context, shard uint32, watches map[string]task.Watch) error {
	_, err := router.PutWatches.Call(ctx, l.n.router, router.WatchCopies{Shard: shard, Watches: watches})
	return err
}

// OnceUntil implements cluster.Shards.
func (l routerShards) OnceUntil(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (store.Time, error) {
	return broker.OnceUntil.Call(ctx, l.n.router, broker.OnSlots{OnQueue: onQueue(shard, ns, name), Slots: slots})
}

func onQueue(shard uint32, ns, name string) broker.OnQueue {
	return broker.OnQueue{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Queue: name}
}
