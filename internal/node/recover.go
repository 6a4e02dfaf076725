package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
)

// Recovery is what Recover has done, or would do.
type Recovery struct {
	Cluster string // the id of the new cluster
	Node    string
	Shards  []RecoveredShard
	Lost    []uint32 // shards that start over empty
}

// RecoveredShard is how far a replica's log reaches.
type RecoveredShard struct {
	Shard       uint32
	Index, Term uint64
}

// RecoverConfig says which directory to recover, and how.
type RecoverConfig struct {
	Dir string
	fs  vfs.FS // for tests; nil: the operating system's
	// DryRun changes nothing. It reports how far the replicas are, so that the survivors can be compared.
	DryRun bool
	// AbandonShards lets shards of which the directory has no replica start over empty.
	AbandonShards bool
}

// Recover turns the data directory of a stopped node into a cluster of its own, when a majority of the others is lost for good. It
// keeps all its data, under a new cluster id and a new epoch, so that no node or claim token of the old cluster is accepted by the
// new one. The other nodes join again, with empty directories. Recover may be repeated.
func Recover(cfg RecoverConfig) (rec Recovery, err error) {
	if cfg.fs == nil {
		cfg.fs = vfs.Default
	}
	lock, err := datadir.Lock(cfg.fs, cfg.Dir)
	if err != nil {
		return rec, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	me, err := readMemberIdentity(cfg.fs, cfg.Dir)
	if err != nil {
		return rec, err
	}
	r := recovery{cfg: cfg, me: me, Recovery: Recovery{Cluster: successor(me.Cluster), Node: me.Name}}
	err = r.run()
	return r.Recovery, err
}

// readMemberIdentity reads the identity of a directory that must have one.
func readMemberIdentity(fs vfs.FS, dir string) (datadir.Identity, error) {
	id, err := datadir.LoadIdentity(fs, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return id, err
	}
	if !id.Member() {
		return id, fmt.Errorf("%s belongs to no cluster: there is nothing to recover", dir)
	}
	if id.Aside != "" {
		return id, fmt.Errorf("the data in %s was damaged, and is being moved to %s: recover from another node", dir, id.Aside)
	}
	if id.Format == 1 {
		id = id.Upgraded(DefaultName)
	}
	return id, nil
}

// successor returns the id of the cluster that recovering another produces. It is deterministic, so that an interrupted recovery
// can be repeated.
func successor(id string) string {
	sum := sha256.Sum256([]byte("recovered from " + id))
	return hex.EncodeToString(sum[:datadir.NonceLen])
}

type recovery struct {
	cfg RecoverConfig
	me  datadir.Identity
	Recovery

	queues []queues.Queue // that the data shards have copies of
}

func (r *recovery) path(name string) string { return r.cfg.fs.PathJoin(r.cfg.Dir, name) }

// run recovers all replicas from the logs, then deletes the logs, and gives everything its new identity; node.json is last, so that
// a repeat finds what remains to be done.
func (r *recovery) run() (err error) {
	b := datadir.NewIdentityStore(r.cfg.fs, r.cfg.Dir, r.me)
	if err := r.fromLog(b); err != nil || r.cfg.DryRun {
		return err
	}
	if err := r.cfg.fs.RemoveAll(r.path(datadir.LogDir)); err != nil {
		return err
	}
	log, err := r.openLog(r.Cluster)
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		return err
	}
	for _, id := range r.shards() {
		if err := r.rename(id); err != nil {
			return err
		}
	}
	if err := r.cfg.fs.Remove(r.path(datadir.MapFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return b.Update(func(i *datadir.Identity) {
		i.Recovering, i.Cluster, i.Others, i.Replicas = false, r.Cluster, false, i.NotRun()
	})
}

// fromLog applies the logs to the states.
func (r *recovery) fromLog(b *datadir.IdentityStore) (err error) {
	log, err := r.openLog(r.me.Cluster)
	if errors.Is(err, raftlog.ErrIdentity) { // a repeat: the old logs are gone
		log, err = r.openLog(r.Cluster)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := r.check(log); err != nil {
		return err
	}
	if !r.cfg.DryRun {
		if err := b.Update(func(i *datadir.Identity) { i.Recovering = true }); err != nil {
			return err
		}
	}
	for _, id := range r.shards() {
		if err := r.recover(log, id); err != nil {
			return err
		}
	}
	return nil
}

// checkDir is where a copy of the system shard is inspected.
const checkDir = "recovery-check"

// check refuses, before anything is changed, what would otherwise be refused halfway. Which shards exist may be recorded in the log
// only.
func (r *recovery) check(log *raftlog.Log) (err error) {
	h, ok := r.me.Replicas[systemShard]
	if !ok {
		return fmt.Errorf("%s has no replica of the system shard: recover from a node that has one", r.cfg.Dir)
	}
	copied := r.path(checkDir)
	defer func() { err = errors.Join(err, r.cfg.fs.RemoveAll(copied)) }()
	if err := r.cfg.fs.RemoveAll(copied); err != nil {
		return err
	}
	if _, err := vfs.Clone(r.cfg.fs, r.cfg.fs, r.path(datadir.StateDir(systemShard, h.Replica)), copied); err != nil {
		return err
	}
	state, _, err := r.open(systemShard, copied)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	if err := shard.Replay(log, state, systemShard); err != nil {
		return err
	}
	if r.Lost, err = cluster.Missing(state, r.held()); err != nil {
		return err
	}
	if len(r.Lost) > 0 && !r.cfg.AbandonShards && !r.cfg.DryRun {
		return fmt.Errorf("%s has no replica of the shards %d: recover from a node that has, or their tasks are lost", r.cfg.Dir, r.Lost)
	}
	return nil
}

func (r *recovery) stateOf(id uint32) string {
	return r.path(datadir.StateDir(id, r.me.Replicas[id].Replica))
}

// held returns the replicas by shard.
func (r *recovery) held() map[uint32]uint64 {
	held := map[uint32]uint64{}
	for id, h := range r.me.Replicas {
		if !h.Leaving {
			held[id] = h.Replica
		}
	}
	return held
}

// shards returns the shards in the directory, the system shard last: it decides whether all are there.
func (r *recovery) shards() (ids []uint32) {
	for id, h := range r.me.Replicas {
		if !h.Leaving {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids
}

func (r *recovery) openLog(cluster string) (*raftlog.Log, error) {
	return raftlog.Open(raftlog.Config{Dir: r.path(datadir.LogDir), FS: r.cfg.fs, SegmentSize: segmentSize, Identity: raftlog.Identity{Cluster: datadir.DecodeID(cluster), Node: uint64(r.me.Node)}})
}

// open opens the state of a replica, under the old identity or, in a repeat, the new one.
func (r *recovery) open(id uint32, dir string) (state *store.Store, renamed bool, err error) {
	for _, c := range []string{r.me.Cluster, r.Cluster} {
		state, err = store.Open(store.Config{Dir: dir, FS: r.cfg.fs,
			Identity: store.Identity{Cluster: datadir.DecodeID(c), Replica: r.me.Replicas[id].Replica, Shard: id}})
		if !errors.Is(err, store.ErrIdentity) {
			return state, c == r.Cluster, err
		}
	}
	return nil, false, err
}

func (r *recovery) recover(log *raftlog.Log, id uint32) (err error) {
	state, renamed, err := r.open(id, r.stateOf(id))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	at := state.Applied()
	switch {
	case r.cfg.DryRun:
		at, err = shard.Reach(log, state, id)
	case !renamed:
		var edit func(*store.Tx) error
		if id == systemShard {
			edit = r.editSystem
		}
		at, err = shard.Recover(log, state, id, r.me.Replicas[id].Replica, edit)
	}
	if err == nil && id != systemShard {
		err = addCopies(&r.queues, state, id)
	}
	r.Shards = append(r.Shards, RecoveredShard{id, at.Index, at.Term})
	return err
}

func (r *recovery) editSystem(tx *store.Tx) error {
	return cluster.Recovered(tx, r.me.Node, r.held(), r.queues)
}

func (r *recovery) rename(id uint32) (err error) {
	state, renamed, err := r.open(id, r.stateOf(id))
	if err != nil {
		return err
	}
	if !renamed {
		err = state.SetIdentity(store.Identity{Cluster: datadir.DecodeID(r.Cluster), Replica: r.me.Replicas[id].Replica, Shard: id})
	}
	return errors.Join(err, state.Close())
}

// addCopies appends the queues that a data shard has copies of.
func addCopies(to *[]queues.Queue, state *store.Store, id uint32) error {
	copied, err := broker.CopiedQueues(state)
	for _, q := range copied {
		*to = append(*to, queues.Queue{Namespace: q.Namespace, Name: q.Name, Shard: id, Config: q.Config})
	}
	return err
}
