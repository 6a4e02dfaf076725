package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// replicas are the replicas on this node: their states on disk, and the shards that run on them.
type replicas struct {
	cfg      Config
	dir      *datadir.Dir
	identity *datadir.IdentityStore // of dir
	cache    *pebble.Cache
	log      *raftlog.Log
	checked  map[uint32]checked // how far the replicas reach, according to check
	link     func(shard uint32) shard.Transport
	fatal    func(error)
	// nodeName names the node of a replica.
	nodeName func(replica uint64) string
	// observe returns an observer of how long things take in a shard.
	observe func(shard uint32) shard.Observer

	mu      sync.RWMutex
	running map[uint32]*replica
}

// checked is how far a replica reaches: the last entry that its state has durably, and the last one in log or state.
type checked struct{ applied, last uint64 }

// replica is a running replica.
type replica struct {
	id    uint64
	state *store.Store
	shard *shard.Shard

	differing members.Differing // replicas that differ, while this one leads
}

// callBytes holds the largest request, 16 MiB, and the rows that it writes.
const callBytes = 24 << 20

// check compares the log of every replica with its mark and its state, before anything is changed on disk. Nothing of a replica that
// has run may be missing: starting over would be forgetting what it promised.
func (r *replicas) check() error {
	held := r.identity.Read().Replicas
	for _, id := range r.log.Shards() {
		if _, ok := held[id]; !ok {
			return r.unnamed(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(held)) {
		h := held[id]
		if h.Leaving {
			continue
		}
		cfg := r.shardConfig(id, h)
		var c checked
		check := func(state *store.Store) error {
			if cfg.State = state; state != nil {
				c.applied = state.Applied().Index
			}
			return shard.Check(cfg)
		}
		found, err := store.Peek(r.storeConfig(id, h), check)
		if !found && err == nil {
			err = check(nil)
		}
		if errors.Is(err, raftlog.ErrStateBehind) {
			err = &DamageError{What: "state", File: r.dir.File(datadir.StateDir(id, h.Replica)), Reason: err.Error()}
		}
		if err != nil {
			return err
		}
		c.last = max(c.applied, r.log.Last(id))
		r.checked[id] = c
	}
	return nil
}

// unnamed returns the error for a log of a replica that the identity doesn't name: the identity is older.
func (r *replicas) unnamed(id uint32) error {
	return &DamageError{What: "identity", File: r.dir.File(datadir.IdentityFile),
		Reason: fmt.Sprintf("it does not name the replica of shard %d whose log is there", id)}
}

// begin makes the logs writable.
func (r *replicas) begin() error {
	if err := r.log.Begin(); err != nil {
		return err
	}
	return r.finishLeaving()
}

// start runs a replica. If it is not recorded yet it is created, as the first of its shard, or empty and waiting for a leader to
// send it the state.
func (r *replicas) start(id uint32, h datadir.Holding, hooks shard.Hooks) (*shard.Shard, error) {
	have, known := r.identity.Read().Replicas[id]
	if known && have.Replica != h.Replica {
		return nil, fmt.Errorf("replica %s should run, but replica %s is here", shard.ReplicaName(id, h.Replica),
			shard.ReplicaName(id, have.Replica))
	}
	if !known {
		if err := r.make(id, h); err != nil {
			return nil, fmt.Errorf("shard %d: %w", id, err)
		}
	}
	rep, err := r.open(id, r.identity.Read().Replicas[id], hooks)
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
		return r.unnamed(id)
	}
	return r.identity.Hold(id, &h)
}

func (r *replicas) open(id uint32, h datadir.Holding, hooks shard.Hooks) (*replica, error) {
	state, err := store.Open(r.storeConfig(id, h))
	if err != nil {
		return nil, err
	}
	cfg := r.shardConfig(id, h)
	cfg.State, cfg.Hooks, cfg.Transport = state, hooks, r.link(id)
	cfg.Time, cfg.Node, cfg.Observe = r.cfg.Time, r.nodeName, r.observe(id)
	if !h.Ran {
		err = errors.Join(r.log.Create(id), r.identity.NoteRun(id))
	}
	var s *shard.Shard
	if err == nil {
		s, err = shard.Start(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	return &replica{id: h.Replica, state: state, shard: s}, nil
}

// shardConfig returns the part of a replica's configuration that is known before anything runs.
func (r *replicas) shardConfig(id uint32, h datadir.Holding) shard.Config {
	cfg := shard.Config{ID: id, Replica: h.Replica, Ran: h.Ran, Log: r.log, Logger: r.cfg.Logger, Fatal: r.fatal,
		Limits: shard.Limits{CallBytes: callBytes}}
	if h.Founder {
		cfg.Voters = []uint64{h.Replica}
	}
	return cfg
}

// storeConfig returns the configuration of a replica's store. The state of a replica that has run must exist; if the loss of a log is
// accepted, what remains of it may replace the state.
func (r *replicas) storeConfig(id uint32, h datadir.Holding) store.Config {
	cfg, logged := stateConfig(r.dir, id, h), r.log.Holds(id)
	cfg.MustExist = (h.Ran || logged) && !(r.cfg.AcceptDataLoss && logged)
	cfg.Cache, cfg.Fatal = r.cache, r.fatal
	return cfg
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
	dir := r.dir.File(datadir.StateDir(id, h.Replica))
	for _, name := range []string{dir, dir + ".staged", dir + ".ready"} {
		if err := r.dir.FS.RemoveAll(name); err != nil {
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
		if pause(ctx, briefly) != nil {
			return fmt.Errorf("shard %d: no leader yet: %w", id, ctx.Err())
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

// compared returns the replicas, for the comparer.
func (r *replicas) compared() (all []members.Replica) {
	for _, id := range r.all() {
		if rep := r.get(id); rep != nil {
			all = append(all, members.Replica{ID: id, Shard: rep.shard, Differing: &rep.differing})
		}
	}
	return all
}
