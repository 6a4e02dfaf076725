package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// replicas are the replicas on this node: their states on disk, and the shards that run on them.
type replicas struct {
	cfg      Config
	identity *datadir.IdentityStore
	fs       vfs.FS
	cache    *pebble.Cache
	log      *raftlog.Log
	path     func(name string) string
	link     func(shard uint32) shard.Transport
	fatal    func(error)
	// nodeName names the node of a replica.
	nodeName func(replica uint64) string
	// observe returns an observer of how long things take in a shard.
	observe func(shard uint32) shard.Observer

	mu      sync.RWMutex
	running map[uint32]*replica
}

// replica is a running replica.
type replica struct {
	id    uint64
	state *store.Store
	shard *shard.Shard
}

// callBytes holds the largest request, 16 MiB, and the rows that it writes.
const callBytes = 24 << 20

// start runs a replica. If it is not recorded yet it is created, as the first of its shard, or empty and waiting for a leader to
// send it the state.
func (r *replicas) start(id uint32, h datadir.Holding, hooks shard.Hooks) (*shard.Shard, error) {
	have, known := r.identity.Read().Replicas[id]
	if known && have.Replica != h.Replica {
		return nil, fmt.Errorf("replica %s should run, but replica %s is here", shard.ReplicaName(id, h.Replica), shard.ReplicaName(id, have.Replica))
	}
	if !known {
		if err := r.make(id, h); err != nil {
			return nil, fmt.Errorf("shard %d: %w", id, err)
		}
	}
	rep, err := r.open(id, h, hooks)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[id] = rep
	return rep.shard, nil
}

// make records a new replica. If its log already exists it was recorded before, and may have promised something.
func (r *replicas) make(id uint32, h datadir.Holding) error {
	if r.log.Has(id) {
		return &DamageError{What: "identity", File: r.path(datadir.IdentityFile), Reason: fmt.Sprintf("it does not name the replica of shard %d whose log is there", id)}
	}
	return r.identity.Hold(id, &h)
}

func (r *replicas) open(id uint32, h datadir.Holding, hooks shard.Hooks) (*replica, error) {
	state, err := store.Open(r.storeConfig(id, h))
	if err != nil {
		return nil, err
	}
	cfg := shard.Config{ID: id, Replica: h.Replica, Log: r.log, State: state, Hooks: hooks, Transport: r.link(id),
		Time: r.cfg.Time, Node: r.nodeName, Logger: r.cfg.Logger, Fatal: r.fatal, Limits: shard.Limits{CallBytes: callBytes}, Observe: r.observe(id)}
	if h.Founder {
		cfg.Voters = []uint64{h.Replica}
	}
	s, err := shard.Start(cfg)
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	return &replica{id: h.Replica, state: state, shard: s}, nil
}

// storeConfig returns the configuration of a replica's store. If its log exists the state must exist too: starting over would be
// forgetting what the replica promised.
func (r *replicas) storeConfig(id uint32, h datadir.Holding) store.Config {
	return store.Config{Dir: r.path(datadir.StateDir(id, h.Replica)), FS: r.fs,
		Identity:  store.Identity{Cluster: datadir.DecodeID(r.identity.Read().Cluster), Replica: h.Replica, Shard: id},
		MustExist: r.log.Has(id) && !r.cfg.AcceptDataLoss, Cache: r.cache, Logger: r.cfg.Logger, Fatal: r.fatal}
}

// get returns the running replica of a shard; nil if there is none.
func (r *replicas) get(id uint32) *replica {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.running[id]
}

// all returns the shards that run here, in order.
func (r *replicas) all() []uint32 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.running))
}

// stop ends a replica that will run again later.
func (r *replicas) stop(id uint32) error {
	r.mu.Lock()
	rep := r.running[id]
	delete(r.running, id)
	r.mu.Unlock()
	if rep == nil {
		return nil
	}
	rep.shard.Stop()
	return rep.state.Close()
}

// close ends all replicas.
func (r *replicas) close() (err error) {
	for _, id := range r.all() {
		err = errors.Join(err, r.stop(id))
	}
	return err
}

// drop deletes a replica for good. finishLeaving deletes what a crash in between leaves.
func (r *replicas) drop(id uint32) error {
	h, known := r.identity.Read().Replicas[id]
	if !known {
		return nil
	}
	h.Leaving = true
	if err := errors.Join(r.identity.Hold(id, &h), r.stop(id)); err != nil {
		return err
	}
	return r.erase(id, h)
}

// erase deletes what remains of a replica that is leaving.
func (r *replicas) erase(id uint32, h datadir.Holding) error {
	dir := r.path(datadir.StateDir(id, h.Replica))
	for _, name := range []string{dir, dir + ".staged", dir + ".ready"} {
		if err := r.fs.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := r.log.Remove(id); err != nil {
		return err
	}
	return r.identity.Hold(id, nil)
}

// finishLeaving deletes what a crash has left of replicas that were being deleted.
func (r *replicas) finishLeaving() error {
	for id, h := range r.identity.Read().Replicas {
		if h.Leaving {
			if err := r.erase(id, h); err != nil {
				return err
			}
		}
	}
	return nil
}

// untilLed waits until this node's replica of a shard serves.
func (r *replicas) untilLed(ctx context.Context, id uint32) error {
	for {
		if rep := r.get(id); rep != nil {
			if rep.shard.Leads() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("shard %d: no leader yet: %w", id, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// systemLeader returns the node that leads the system shard according to this node's replica; 0: none, or no replica here.
func (r *replicas) systemLeader() uint32 {
	rep := r.get(systemShard)
	if rep == nil {
		return 0
	}
	leader, _ := rep.shard.Leader()
	return nodeOf(leader)
}

// hash answers methodHash.
func (r *replicas) hash(request []byte) ([]byte, error) {
	var a hashArgs
	if err := cbor.Unmarshal(request, &a); err != nil {
		return nil, err
	}
	var out hashAnswer
	if rep := r.get(a.Shard); rep != nil {
		out.Hash, out.Known = rep.shard.Hash(a.Index)
	}
	return cbor.Marshal(out)
}
