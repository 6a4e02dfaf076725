package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/transport"
)

// mapFile holds the map of the cluster as this node last knew it: where the others are, after a restart.
const mapFile = "cluster.map"

// agentRetry is the pause before the agent retries what failed.
const agentRetry = time.Second

// agent brings this node into the state that the map of the cluster says, until ctx ends: it keeps the addresses of the others,
// runs the replicas that belong here, and deletes those that don't.
func (n *Node) agent(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	saved := n.copy.Map()
	for {
		changed := n.copy.Changed()
		m := n.copy.Map()
		n.transport.SetPeers(addresses(m))
		if m != saved {
			if err := n.saveMap(m); err != nil {
				n.cfg.Logger.Warn("the map of the cluster was not saved", "error", err)
			}
			saved = m
		}
		retry.Reset(time.Hour)
		if !n.settle(ctx) {
			retry.Reset(agentRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry.C:
		}
	}
}

func addresses(m *cluster.Map) map[uint32]transport.Address {
	all := map[uint32]transport.Address{}
	if m == nil {
		return all
	}
	for _, node := range m.Members() {
		if node.PeerAddress != "" {
			all[node.Number] = transport.Address{Address: node.PeerAddress, Name: node.Name}
		}
	}
	return all
}

// settle starts and deletes replicas. It does nothing on a map from before the restart, which may be old.
func (n *Node) settle(ctx context.Context) (done bool) {
	if n.copy.Version() == 0 {
		return true // there will be another
	}
	book := n.identity.read()
	left, here := book.compare(n.copy.Map())
	done = true
	for _, id := range left {
		done = n.try(ctx, "delete a replica that has left", id, book.Replicas[id].Replica, func() error { return n.dropReplica(id) }) && done
	}
	for id, h := range here {
		if n.replicas.get(id) == nil {
			done = n.try(ctx, "start a replica", id, h.Replica, func() error { return n.startReplica(id, h) }) && done
		}
	}
	return done
}

// compare returns the shards whose replicas have left this directory according to the map, and those that should run here. A shard
// that the map doesn't have has not left: an outdated or empty map must not cost any data.
func (i identity) compare(m *cluster.Map) (left []uint32, here map[uint32]holding) {
	here = map[uint32]holding{}
	for id, h := range i.Replicas {
		if row, ok := m.Shard(id); ok && row.Gone(h.Replica) {
			left = append(left, id)
		}
	}
	for _, row := range m.Shards {
		if r, ok := row.On(i.Node); ok {
			here[row.ID] = holding{Replica: r.ID, Founder: r.Founder}
		}
	}
	return left, here
}

func (n *Node) try(ctx context.Context, what string, id uint32, replica uint64, do func() error) bool {
	err := do()
	if errors.Is(err, ErrDamaged) { // it stays so: only a restart repairs it
		n.fail(err)
	}
	if err != nil && ctx.Err() == nil {
		n.cfg.Logger.Error("could not "+what, "shard", id, "replica", shard.ReplicaName(id, replica), "error", err)
		return false
	}
	if err == nil {
		n.cfg.Logger.Info(what, "shard", id, "replica", shard.ReplicaName(id, replica))
	}
	return true
}

// startReplica runs a replica and passes it to the layer above.
func (n *Node) startReplica(id uint32, h holding) error {
	if id == systemShard {
		_, err := n.replicas.start(id, h, n.systemHooks())
		return err
	}
	return n.broker.Add(id, func(hooks shard.Hooks) (*shard.Shard, error) { return n.replicas.start(id, h, hooks) })
}

func (n *Node) dropReplica(id uint32) error {
	if id != systemShard {
		n.broker.Remove(id)
	}
	return n.replicas.drop(id)
}

// systemHooks notify the controller of the system shard.
func (n *Node) systemHooks() shard.Hooks {
	return shard.Hooks{
		Elected:   func(shard.LeaderTerm) { n.control.Elected(); n.reconciler.Poke() },
		Committed: func(_ *store.Tx, at shard.Stamp) { n.control.Committed(at.Index); n.reconciler.Poke() },
		Dropped:   n.control.Dropped,
	}
}

func (n *Node) saveMap(m *cluster.Map) error {
	if n.cfg.InMemory {
		return nil
	}
	return replaceFile(filepath.Join(n.cfg.Dir, mapFile), m.Encode())
}

// readMap reads the map saved before the restart; nil if there is none or it is unreadable. Nothing depends on it.
func readMap(dir string) *cluster.Map {
	b, err := os.ReadFile(filepath.Join(dir, mapFile))
	if err != nil {
		return nil
	}
	m, err := cluster.DecodeMap(b)
	if err != nil {
		return nil
	}
	return m
}

// report returns the node's report on itself.
func (n *Node) report() cluster.Report {
	r := cluster.Report{Node: n.identity.read().Node, APIAddress: n.cfg.APIAddress, Version: n.cfg.Version, ClockOffset: time.Duration(n.offset.Load()), Barred: n.barred.Load(),
		SlowDisk: n.slow.Load(), DiskShort: n.diskFull(), Up: time.Since(n.began)}
	if !n.cfg.InMemory {
		r.MinFree = n.cfg.MinFree
		r.DiskFree, r.DiskTotal, _ = n.cfg.diskBytes(n.cfg.Dir)
	}
	for _, id := range n.replicas.all() {
		rep := n.replicas.get(id)
		if rep == nil {
			continue
		}
		leader, term := rep.shard.Leader()
		r.Shards = append(r.Shards, cluster.ShardReport{Shard: id, Applied: rep.state.Applied().Index, Leads: leader == rep.id, Term: term})
	}
	return r
}
