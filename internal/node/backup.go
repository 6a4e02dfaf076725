package node

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/pawlq/pawl/internal/backup"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/task"
)

// A backup holds the state of each shard after one of its entries. The data shards come first, the system shard last: so every
// queue that a data shard may have a task of is in the backup of the system shard, unless it was deleted meanwhile (Restore makes
// up for that), and its settings there are never older than a data shard's copy.

const (
	// backupTries is how often to look for the leader of a shard that changes its leader while it is read. Each lookup takes a
	// while itself.
	backupTries = 5
	// backupRetryAfter is when a caller may retry.
	backupRetryAfter = 5 * time.Second
)

// Backup implements gateway.Admin.
func (a *clusterAdmin) Backup(ctx context.Context, by task.Author, w io.Writer, progress func(done, total int) error) error {
	if !a.images.backup.TryLock() {
		return task.Unavailable(backupRetryAfter, "this node is making another backup: wait until it ends, or ask another node")
	}
	defer a.images.backup.Unlock()
	o, err := cluster.GetOverview.Call(ctx, a.router, cluster.Nothing{})
	if err != nil {
		return err
	}
	shards := make([]uint32, 0, o.Settings.DataShards+1)
	for id := range uint32(o.Settings.DataShards) {
		shards = append(shards, id+1)
	}
	shards = append(shards, systemShard)
	me := a.identity.Read()
	b, err := backup.NewWriter(w, backup.Head{Cluster: me.Cluster, Node: me.Name, Program: a.cfg.Version, Level: o.Settings.Level,
		Time: a.cfg.Time.Wall().UTC(), Shards: shards})
	if err != nil {
		return err
	}
	if !by.IsZero() {
		if _, err := a.note(ctx, authorArgs{by}); err != nil {
			return err
		}
	}
	for i, id := range shards {
		if err := progress(i, len(shards)); err != nil {
			return err
		}
		at, err := a.image(ctx, id, stoppableWriter{a.stopping, b})
		if err != nil {
			return unfinished(ctx, id, err)
		}
		if err := b.EndPart(at.Index, at.Term); err != nil {
			return err
		}
	}
	if err := b.Close(); err != nil {
		return err
	}
	return progress(len(shards), len(shards))
}

// unfinished returns the error of an interrupted backup, which is never the caller's fault.
func unfinished(ctx context.Context, id uint32, err error) error {
	if _, refused := task.AsError(err); refused || ctx.Err() != nil {
		return err
	}
	return task.Unavailable(backupRetryAfter, "the backup of shard %d was broken off, start again: %v", id, err)
}

// stoppableWriter writes until its node stops, so that a backup doesn't delay the stop.
type stoppableWriter struct {
	stopping func() bool
	w        io.Writer
}

func (s stoppableWriter) Write(p []byte) (int, error) {
	if s.stopping() {
		return 0, task.Unavailable(backupRetryAfter, "the backup was broken off: this node is stopping")
	}
	return s.w.Write(p)
}

// image writes the state of a shard, from whichever node leads it.
func (a *clusterAdmin) image(ctx context.Context, id uint32, w io.Writer) (at shard.Stamp, err error) {
	for range backupTries {
		st, err := a.groups.Status(ctx, id)
		if err != nil {
			return at, err
		}
		at, err = a.images.from(ctx, nodeOf(st.Leader), id, w)
		var moved *shard.NotLeader
		if !errors.As(err, &moved) {
			return at, err
		}
	}
	return at, task.Unavailable(backupRetryAfter, "shard %d: its leader keeps changing", id)
}
