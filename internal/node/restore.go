package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/backup"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/queues"
)

// RestoreConfig says which backup to restore into which data directory.
type RestoreConfig struct {
	File string
	Key  string // of an encrypted backup
	// Dir is created, or must be empty or left by an unfinished Restore.
	Dir     string
	fs      vfs.FS // of Dir; for tests; nil: the operating system's
	Name    string // of the node; "": n1
	Version string // of the program
	// Progress, if not nil, is called with the number of bytes of the backup read so far, and the total: it is read twice.
	Progress func(read, of int64)
}

// Restored is what Restore has done.
type Restored struct {
	Backup  Backup
	Cluster string // the id of the new cluster
	Node    string
	Lost    []uint32 // shards that start over empty: they were added during the backup
}

// Restore creates a data directory from a backup: that of the only node of a cluster, with a new id and a new epoch, so that no
// node or claim token of the old cluster is accepted by the new one. The whole backup is checked before anything is written. A
// directory with an unfinished Restore can't be started; Restore may be repeated there.
func Restore(ctx context.Context, cfg RestoreConfig) (res Restored, err error) {
	if cfg.fs == nil {
		cfg.fs = ondisk.OS
	}
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if err := cluster.CheckName(cfg.Name); err != nil {
		return res, err
	}
	if cfg.Progress == nil {
		cfg.Progress = func(int64, int64) {}
	}
	found, err := readBackup(ctx, cfg.File, cfg.Key, func(read, of int64) { cfg.Progress(read, 2*of) }, checkPart)
	if err != nil {
		return res, err
	}
	if err := ondisk.MakeDir(cfg.fs, cfg.Dir); err != nil {
		return res, err
	}
	lock, err := datadir.Lock(cfg.fs, cfg.Dir)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	r := newRestore(cfg, found)
	err = r.run(ctx)
	return r.Restored, err
}

// restore is one run of Restore.
type restore struct {
	cfg    RestoreConfig
	disk   *ondisk.FailStop
	now    func() time.Time
	number uint32 // of the new node
	level  int    // of the cluster
	Restored
}

func newRestore(cfg RestoreConfig, found Backup) *restore {
	return &restore{cfg: cfg, disk: ondisk.NewFailStop(cfg.fs), now: time.Now,
		Restored: Restored{Backup: found, Cluster: datadir.NewNonce(), Node: cfg.Name}}
}

func (r *restore) run(ctx context.Context) error {
	if err := r.begin(); err != nil {
		return err
	}
	if err := r.fill(ctx); err != nil {
		return errors.Join(err, r.clear()) // but the mark stays: a failed restore must not be started as an empty node
	}
	return r.end()
}

// fill creates everything of a node.
func (r *restore) fill(ctx context.Context) error {
	for _, step := range []func() error{func() error { return r.stage(ctx) }, r.found, r.identify} {
		err := step()
		if failed := r.disk.Err(); failed != nil {
			err = fmt.Errorf("%w: repeat the restore once this is mended", failed)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin takes possession of the directory: from here on no node starts in it.
func (r *restore) begin() error {
	again, err := datadir.Restoring(r.cfg.fs, r.cfg.Dir)
	if err != nil {
		return err
	}
	if err := datadir.MustBeEmpty(r.cfg.fs, r.cfg.Dir); err != nil && !again {
		if errors.Is(err, ErrDamaged) {
			err = fmt.Errorf("%s is not empty: it holds data of a node", r.cfg.Dir)
		}
		return fmt.Errorf("a backup is restored into an empty directory: %w", err)
	}
	if again {
		if err := r.clear(); err != nil {
			return err
		}
	}
	if err := r.mustFit(); err != nil {
		return err
	}
	mark, err := r.cfg.fs.Create(r.path(datadir.RestoringFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	return errors.Join(mark.Sync(), mark.Close(), ondisk.SyncDir(r.cfg.fs, r.cfg.Dir))
}

func (r *restore) path(name string) string { return r.cfg.fs.PathJoin(r.cfg.Dir, name) }

// clear deletes what an earlier Restore, or this one, has created.
func (r *restore) clear() (err error) {
	names, err := r.cfg.fs.List(r.cfg.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == datadir.LogDir || strings.HasPrefix(name, "shard-") || strings.HasPrefix(name, datadir.IdentityFile) {
			err = errors.Join(err, r.cfg.fs.RemoveAll(r.path(name)))
		}
	}
	return err
}

// mustFit returns an error if the disk has too little space for the states, whose rows the backup holds as they are, plus what the
// server needs to accept tasks afterwards.
func (r *restore) mustFit() error {
	need := int64(DefaultMinFree)
	for _, p := range r.Backup.Parts {
		need += p.Bytes
	}
	disk, err := r.cfg.fs.GetDiskUsage(r.cfg.Dir)
	if free := int64(disk.AvailBytes); err == nil && free < need {
		err = fmt.Errorf("%s has %d MiB free, and %d MiB are needed", r.cfg.Dir, free>>20, need>>20)
	}
	return err
}

// stage writes the states as they were in the backup, still as those of the old cluster.
func (r *restore) stage(ctx context.Context) (err error) {
	defer store.Catch(&err)
	progress := func(read, of int64) { r.cfg.Progress(of+read, 2*of) }
	_, err = readBackup(ctx, r.cfg.File, r.cfg.Key, progress, func(h backup.Head, id uint32, image io.Reader) (p BackupPart, err error) {
		state, err := r.open(h.Cluster, id)
		if err != nil {
			return p, err
		}
		defer func() { err = errors.Join(err, state.Close()) }()
		at, err := state.Stage(image)
		if err == nil {
			err = state.Switch()
		}
		if err == nil && id == systemShard {
			r.number, r.level, err = cluster.NextNode(state)
		}
		return BackupPart{Index: at.Index, Term: at.Term}, err
	})
	if err == nil && (r.level < minLevel || r.level > maxLevel) {
		err = levelError(r.level)
	}
	return err
}

// stagedReplica is the replica id of a state until the number of the new node is known.
const stagedReplica = 1

// open opens a state as that of the old cluster. The first replica of a shard in a directory has the plain name.
func (r *restore) open(cluster string, id uint32) (*store.Store, error) {
	return store.Open(store.Config{Dir: r.path(datadir.StateDir(id, stagedReplica)), FS: r.disk,
		Identity: store.Identity{Cluster: datadir.DecodeID(cluster), Replica: stagedReplica, Shard: id}})
}

// found makes the states those of the new cluster, each with the new node as its only replica.
func (r *restore) found() (err error) {
	defer store.Catch(&err)
	log, err := raftlog.Open(raftlog.Config{Dir: r.path(datadir.LogDir), FS: r.disk, Identity: raftlog.Identity{
		Cluster: datadir.DecodeID(r.Cluster), Node: uint64(r.number)},
		SegmentSize: segmentSize})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	var queues []queues.Queue
	for _, p := range r.Backup.Parts { // the system shard is last: it learns the others' queues
		edit := broker.Restored
		if p.Shard == systemShard {
			edit = func(tx *store.Tx) error { return r.editSystem(tx, queues) }
		}
		if err := r.adopt(log, p.Shard, edit, &queues); err != nil {
			return fmt.Errorf("shard %d: %w", p.Shard, err)
		}
	}
	return nil
}

// adopt makes a state that of the new cluster.
func (r *restore) adopt(log *raftlog.Log, id uint32, edit func(*store.Tx) error, queues *[]queues.Queue) (err error) {
	state, err := r.open(r.Backup.Cluster, id)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	if id == systemShard {
		if r.Lost, err = cluster.Missing(state, r.held()); err != nil {
			return err
		}
	} else if err := addCopies(queues, state, id); err != nil {
		return err
	}
	replica := r.held()[id]
	if _, err := shard.Recover(log, state, id, replica, edit); err != nil {
		return err
	}
	if err := r.raiseEpoch(state); err != nil {
		return err
	}
	return state.SetIdentity(store.Identity{Cluster: datadir.DecodeID(r.Cluster), Replica: replica, Shard: id})
}

// raiseEpoch sets an epoch that no cluster descended from the same states ever had. The next epoch would not do: a cluster restored
// earlier from this backup would have it too, as would the old cluster after a recovery. Fences grow with the epoch, so it must grow even
// if the clock is wrong.
func (r *restore) raiseEpoch(state *store.Store) error {
	epoch, err := state.Epoch()
	if err != nil {
		return err
	}
	return state.SetEpoch(max(epoch+1, uint64(r.now().Unix())))
}

// held returns the replicas of the new node by shard. Its number is unused, so these ids are new, too.
func (r *restore) held() map[uint32]uint64 {
	held := map[uint32]uint64{}
	for _, p := range r.Backup.Parts {
		held[p.Shard] = cluster.ReplicaID(0, r.number)
	}
	return held
}

func (r *restore) editSystem(tx *store.Tx, queues []queues.Queue) error {
	return cluster.Restored(tx, cluster.Restoration{Number: r.number, Held: r.held(), Queues: queues,
		Node: cluster.FirstNode{Name: r.cfg.Name, Version: r.cfg.Version, MinLevel: minLevel, MaxLevel: maxLevel}})
}

// identify records whose directory it is, and what it holds.
func (r *restore) identify() error {
	replicas := map[uint32]datadir.Holding{}
	for id, replica := range r.held() {
		replicas[id] = datadir.Holding{Replica: replica}
	}
	b := datadir.NewIdentityStore(r.disk, r.cfg.Dir, datadir.Identity{Format: datadir.IdentityFormat, Cluster: r.Cluster, Node: r.number,
		Name: r.cfg.Name, Nonce: datadir.NewNonce(), Replicas: replicas})
	return b.Save()
}

// end makes the directory that of a node.
func (r *restore) end() error {
	return errors.Join(r.cfg.fs.Remove(r.path(datadir.RestoringFile)), ondisk.SyncDir(r.cfg.fs, r.cfg.Dir))
}
