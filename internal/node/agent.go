package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/transport"
)

// agentRetry is the pause before the agent retries what failed.
const agentRetry = time.Second

// agent makes this node match the map of the cluster: it keeps the addresses of the others, runs the replicas that belong here, and
// deletes those that don't.
type agent struct {
	dir        *datadir.Dir
	transport  *transport.Transport
	replicas   *replicas
	copy       *cluster.Copy
	broker     *broker.Broker
	control    *cluster.Control
	reconciler *cluster.Reconciler
	logger     *slog.Logger
	fail       func(error)
}

// run follows the map until ctx ends.
func (a *agent) run(ctx context.Context) {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	saved := a.copy.Map()
	for {
		changed := a.copy.Changed()
		m := a.copy.Map()
		a.transport.SetPeers(addresses(m))
		if m != saved && a.save(m) {
			saved = m
		}
		retry.Reset(time.Hour)
		if done := a.settle(ctx); !done || m != saved {
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

// save saves the map, and whether the cluster has other nodes.
func (a *agent) save(m *cluster.Map) bool {
	err := errors.Join(a.dir.Identity.NoteOthers(len(m.Members()) > 1), members.Save(a.dir, a.dir.Identity.Read().Cluster, m))
	if err != nil {
		a.logger.Warn("the map of the cluster was not saved", "error", err)
	}
	return err == nil
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
func (a *agent) settle(ctx context.Context) (done bool) {
	if a.copy.Version() == 0 {
		return true // there will be another
	}
	book := a.dir.Identity.Read()
	left, here := placed(book, a.copy.Map())
	done = true
	for _, id := range left {
		done = a.try(ctx, "delete a replica that has left", id, book.Replicas[id].Replica, func() error { return a.drop(id) }) && done
	}
	for id, h := range here {
		if a.replicas.get(id) == nil {
			done = a.try(ctx, "start a replica", id, h.Replica, func() error { return a.start(id, h) }) && done
		}
	}
	return done
}

// placed returns the shards whose replicas have left this directory according to the map, and those that should run here. A shard
// that the map doesn't have has not left: an outdated or empty map must not cost any data.
func placed(i datadir.Identity, m *cluster.Map) (left []uint32, here map[uint32]datadir.Holding) {
	here = map[uint32]datadir.Holding{}
	for id, h := range i.Replicas {
		if row, ok := m.Shard(id); ok && row.Gone(h.Replica) {
			left = append(left, id)
		}
	}
	for _, row := range m.Shards {
		if r, ok := row.On(i.Node); ok {
			here[row.ID] = datadir.Holding{Replica: r.ID, Founder: r.Founder}
		}
	}
	return left, here
}

func (a *agent) try(ctx context.Context, what string, id uint32, replica uint64, do func() error) bool {
	err := do()
	if errors.Is(err, ErrDamaged) { // only a restart repairs it
		a.fail(err)
	}
	if err != nil && ctx.Err() == nil {
		a.logger.Error("could not "+what, "shard", id, "replica", shard.ReplicaName(id, replica), "error", err)
		return false
	}
	if err == nil {
		a.logger.Info(what, "shard", id, "replica", shard.ReplicaName(id, replica))
	}
	return true
}

// start runs a replica and passes it to the layer above.
func (a *agent) start(id uint32, h datadir.Holding) error {
	if id == systemShard {
		_, err := a.replicas.start(id, h, a.systemHooks())
		return err
	}
	return a.broker.Add(id, func(hooks shard.Hooks) (*shard.Shard, error) { return a.replicas.start(id, h, hooks) })
}

func (a *agent) drop(id uint32) error {
	if id != systemShard {
		a.broker.Remove(id)
	}
	return a.replicas.drop(id)
}

// systemHooks notify the controller of the system shard.
func (a *agent) systemHooks() shard.Hooks {
	return shard.Hooks{
		Elected: func(shard.LeaderTerm) { a.control.Elected(); a.reconciler.Poke() },
		Committed: func(tx *store.Tx, at shard.Stamp) {
			if !tx.Empty() {
				a.control.Committed(at.Index)
				a.reconciler.Poke()
			}
		},
		Dropped: a.control.Dropped,
	}
}
