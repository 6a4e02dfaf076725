package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/queues"
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
	// DryRun writes nothing. It reports how far the replicas are, so that the survivors can be compared.
	DryRun bool
	// AbandonShards lets shards of which the directory has no replica start over empty.
	AbandonShards bool
}

// Recover turns the data directory of a stopped node into a cluster of its own, when a majority of the others is lost for good. It
// keeps all its data, under a new cluster id and a new epoch, so that no node or claim token of the old cluster is accepted by the
// new one. The other nodes join again, with empty directories. Recover may be repeated, and must be if it was interrupted: no node
// starts in the directory before it has completed.
func Recover(cfg RecoverConfig) (rec Recovery, err error) {
	if cfg.fs == nil {
		cfg.fs = ondisk.OS
	}
	take := datadir.Lock
	if cfg.DryRun {
		take = datadir.LockUnchanged
	}
	lock, err := take(cfg.fs, cfg.Dir)
	if err != nil {
		return rec, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	view, err := ondisk.NewOverlay(cfg.fs, cfg.Dir)
	if err != nil {
		return rec, err
	}
	r, err := newRecovery(cfg, view)
	if err == nil {
		err = r.look()
	}
	if err != nil || cfg.DryRun {
		return r.Recovery, err
	}
	disk, found := ondisk.NewFailStop(cfg.fs), r
	if r, err = newRecovery(cfg, disk); err == nil {
		r.blank, r.Lost = found.blank, found.Lost
		err = r.run()
	}
	if failed := disk.Err(); failed != nil {
		err = fmt.Errorf("%w: the recovery of %s has begun and nothing is lost; repeat it once this is mended", failed, cfg.Dir)
	}
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

// recovery is one run over a directory.
type recovery struct {
	cfg RecoverConfig
	fs  vfs.FS
	me  datadir.Identity
	// blank are the shards whose replica never received their state: it is as good as none.
	blank []uint32
	Recovery
}

func newRecovery(cfg RecoverConfig, fs vfs.FS) (r recovery, err error) {
	me, err := readMemberIdentity(fs, cfg.Dir)
	return recovery{cfg: cfg, fs: fs, me: me, Recovery: Recovery{Cluster: successor(me.Cluster), Node: me.Name}}, err
}

func (r *recovery) path(name string) string { return r.fs.PathJoin(r.cfg.Dir, name) }

// look finds out what there is, and refuses, before anything is changed, what would otherwise be refused halfway. It is done in a
// copy of the directory in memory: opening a log or a state writes to it.
func (r *recovery) look() error {
	err := r.eachState(r.lookAt)
	if _, ok := r.held()[systemShard]; !ok && err == nil {
		err = fmt.Errorf("%s has no state of the system shard: recover from a node that has one", r.cfg.Dir)
	}
	return err
}

func (r *recovery) lookAt(log *raftlog.Log, state *store.Store, id uint32) (err error) {
	at := state.Applied()
	if log != nil {
		if at, err = shard.Reach(log, state, id); err != nil {
			return err
		}
	}
	if at.Index == 0 {
		r.blank = append(r.blank, id)
		return nil
	}
	r.Shards = append(r.Shards, RecoveredShard{id, at.Index, at.Term})
	if id != systemShard {
		return nil
	}
	if log != nil { // which shards exist may be recorded there only
		if err := shard.Replay(log, state, id); err != nil {
			return err
		}
	}
	if r.Lost, err = cluster.Missing(state, r.held()); err != nil {
		return err
	}
	if len(r.Lost) > 0 && !r.cfg.AbandonShards && !r.cfg.DryRun {
		return fmt.Errorf("%s has no state of the shards %d: recover from a node that has, or their tasks are lost", r.cfg.Dir, r.Lost)
	}
	return nil
}

// run replays the logs, deletes them, and gives everything its new identity. node.json records what is done: each part can be
// repeated until the next one is recorded.
func (r *recovery) run() error {
	b := datadir.NewIdentityStore(r.fs, r.cfg.Dir, r.me)
	if !r.me.Replayed {
		if err := b.Update(func(i *datadir.Identity) { i.Recovering = true }); err != nil {
			return err
		}
		if err := r.replay(); err != nil {
			return err
		}
		if err := b.Update(func(i *datadir.Identity) { i.Replayed = true }); err != nil {
			return err
		}
		r.me = b.Read()
	}
	if err := r.startLog(); err != nil {
		return err
	}
	if err := r.eachState(r.rename); err != nil {
		return err
	}
	if err := r.fs.Remove(r.path(datadir.MapFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return b.Update(func(i *datadir.Identity) {
		i.Recovering, i.Replayed, i.Cluster, i.Others, i.Replicas = false, false, r.Cluster, false, i.NotRun()
		for _, id := range r.blank {
			h := i.Replicas[id]
			h.Leaving = true // the next start deletes it
			i.Replicas[id] = h
		}
	})
}

// replay applies the logs to the states, durably, and makes each replica the only one of its shard.
func (r *recovery) replay() error {
	var copied []queues.Queue // by the data shards
	return r.eachState(func(log *raftlog.Log, state *store.Store, id uint32) error {
		var edit func(*store.Tx) error
		if id == systemShard {
			edit = func(tx *store.Tx) error { return cluster.Recovered(tx, r.me.Node, r.held(), copied) }
		}
		if _, err := shard.Recover(log, state, id, r.me.Replicas[id].Replica, edit); err != nil || id == systemShard {
			return err
		}
		return addCopies(&copied, state, id)
	})
}

// startLog replaces the old logs by new ones, without entries.
func (r *recovery) startLog() error {
	if err := r.fs.RemoveAll(r.path(datadir.LogDir)); err != nil {
		return err
	}
	log, err := r.openLog(r.Cluster, false)
	if err != nil {
		return err
	}
	return log.Close()
}

func (r *recovery) rename(_ *raftlog.Log, state *store.Store, id uint32) error {
	at := state.Applied()
	r.Shards = append(r.Shards, RecoveredShard{id, at.Index, at.Term})
	return state.SetIdentity(store.Identity{Cluster: datadir.DecodeID(r.Cluster), Replica: r.me.Replicas[id].Replica, Shard: id})
}

// eachState calls fn with the states of all shards, the system shard last, and with the logs, unless they have been replayed.
func (r *recovery) eachState(fn func(log *raftlog.Log, state *store.Store, id uint32) error) (err error) {
	defer store.Catch(&err)
	var log *raftlog.Log
	if !r.me.Replayed {
		if log, err = r.openLog(r.me.Cluster, r.me.Ran()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
	}
	for _, id := range r.shards() {
		if log != nil && r.me.Replicas[id].Ran && !log.Has(id) {
			return &DamageError{What: "log", File: r.path(datadir.LogDir),
				Reason: fmt.Sprintf("it has none of shard %d, whose replica has run", id)}
		}
		if err := r.withState(id, func(state *store.Store) error { return fn(log, state, id) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) withState(id uint32, fn func(state *store.Store) error) (err error) {
	state, err := r.open(id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	return fn(state)
}

// open opens the state of a replica: under the old identity or, once the logs are replayed, perhaps the new one.
func (r *recovery) open(id uint32) (state *store.Store, err error) {
	h := r.me.Replicas[id]
	for _, c := range []string{r.me.Cluster, r.Cluster} {
		state, err = store.Open(store.Config{Dir: r.path(datadir.StateDir(id, h.Replica)), FS: r.fs, NoCompactions: true, MustExist: h.Ran,
			Identity: store.Identity{Cluster: datadir.DecodeID(c), Replica: h.Replica, Shard: id}})
		if !errors.Is(err, store.ErrIdentity) || !r.me.Replayed {
			return state, err
		}
	}
	return nil, err
}

func (r *recovery) openLog(cluster string, mustExist bool) (*raftlog.Log, error) {
	return raftlog.Open(raftlog.Config{Dir: r.path(datadir.LogDir), FS: r.fs, SegmentSize: segmentSize, MustExist: mustExist,
		Identity: raftlog.Identity{Cluster: datadir.DecodeID(cluster), Node: uint64(r.me.Node)}})
}

// held returns the replicas by shard.
func (r *recovery) held() map[uint32]uint64 {
	held := map[uint32]uint64{}
	for id, h := range r.me.Replicas {
		if !h.Leaving && !slices.Contains(r.blank, id) {
			held[id] = h.Replica
		}
	}
	return held
}

// shards returns the shards in the directory, the system shard last: it learns the queues of the others.
func (r *recovery) shards() []uint32 {
	ids := slices.Sorted(maps.Keys(r.held()))
	slices.Reverse(ids)
	return ids
}

// addCopies appends the queues that a data shard has copies of.
func addCopies(to *[]queues.Queue, state *store.Store, id uint32) error {
	copied, err := broker.CopiedQueues(state)
	for _, q := range copied {
		*to = append(*to, queues.Queue{Namespace: q.Namespace, Name: q.Name, Shard: id, Config: q.Config})
	}
	return err
}
