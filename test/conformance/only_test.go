package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// onlyMap is the map of a cluster with a single node. Its copy has the queues that were asked for.
type onlyMap struct {
	*cluster.Copy
	data []uint32
}

func (m onlyMap) Replicas(id uint32) []uint32 {
	if id != systemShard && !slices.Contains(m.data, id) {
		return nil
	}
	return []uint32{1}
}

func (m onlyMap) Shards() []uint32      { return m.data }
func (m onlyMap) Nodes() []forward.Node { return []forward.Node{{Number: 1, Name: "n1"}} }
func (m onlyMap) Age() time.Duration    { return 0 }

// lateShards gives control access to the data shards, by a router that is set later.
type lateShards struct{ h *testNode }

func (l lateShards) CopyQueues(ctx context.Context, shard uint32, ns string, since uint64, configs map[string]task.QueueConfig) error {
	_, err := broker.CopyQueues.Call(ctx, l.h.router, broker.QueueCopies{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
		Since: since, Configs: configs})
	return err
}

func (l lateShards) DropQueue(ctx context.Context, shard uint32, ns, name string, version uint64) error {
	_, err := broker.DropCopy.Call(ctx, l.h.router,
		broker.CopyOf{OnQueue: broker.OnQueue{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
			Queue: name}, Version: version})
	return err
}

func (l lateShards) CopyWatches(ctx context.Context, shard uint32, watches map[string]task.Watch) error {
	return l.h.broker.CopyWatches(ctx, shard, watches)
}

func (l lateShards) OnceUntil(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (store.Time, error) {
	return broker.OnceUntil.Call(ctx, l.h.router, broker.OnSlots{OnQueue: broker.OnQueue{OnShard: broker.OnShard{
		Shard: shard, Namespace: ns},
		Queue: name}, Slots: slots})
}

func (l lateShards) KeysUntil(ctx context.Context, shard uint32, ns, name string) (store.Time, error) {
	return broker.KeysUntil.Call(ctx, l.h.router, broker.OnQueue{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Queue: name})
}

func (l lateShards) CheckKeys(ctx context.Context, shard uint32, ns, name string) error {
	_, err := broker.CheckKeys.Call(ctx, l.h.router, broker.OnQueue{OnShard: broker.OnShard{Shard: shard, Namespace: ns}, Queue: name})
	return err
}

func (l lateShards) HoldsUnique(ctx context.Context, shard uint32, ns, name string, slots task.SlotSet) (bool, error) {
	return broker.HoldsUnique.Call(ctx, l.h.router, broker.OnSlots{OnQueue: broker.OnQueue{OnShard: broker.OnShard{Shard: shard,
		Namespace: ns}, Queue: name}, Slots: slots})
}

func (l lateShards) Spaces(ctx context.Context, shard uint32, names []task.SpaceName) ([]task.Space, error) {
	return broker.Spaces.Call(ctx, l.h.router, broker.OnSpaces{Shard: shard, Names: names})
}

func (l lateShards) PutShare(ctx context.Context, shard uint32, name task.SpaceName, to task.Share) (task.Space, error) {
	on := broker.OnSpaces{Shard: shard, Names: []task.SpaceName{name}}
	return broker.PutShare.Call(ctx, l.h.router, broker.NewShare{OnSpaces: on, Share: to})
}

func (l lateShards) EraseNamespace(ctx context.Context, shard uint32, ns string, removed uint64) error {
	_, err := broker.EraseNamespace.Call(ctx, l.h.router, broker.Removal{OnShard: broker.OnShard{Shard: shard, Namespace: ns},
		Version: removed})
	return err
}
