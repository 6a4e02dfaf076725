package node

import (
	"context"
	"io"
	"time"

	"github.com/pawlq/pawl/internal/backup"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// A backup holds the state of each shard after one of its entries. Together they are a consistent cut: while they are opened, the data
// shards take nothing from each other (broker.BeginCut). The system shard is the last to be opened: every queue that a data shard may
// have a task of is known there, and its settings are never older than a data shard's copy. Then the images are streamed one after
// another.

const (
	// cutTries is how many times a backup tries to open all images while no leader changes, and cutPause is the pause in between.
	cutTries = 5
	cutPause = time.Second
	// cutBegin is how long the shards may take to be held, since they have just answered.
	cutBegin = time.Second
	// cutRelease is how long the shards may take to be released.
	cutRelease = time.Second
	// backupRetryAfter is when a caller may retry.
	backupRetryAfter = 5 * time.Second
)

// Backup implements gateway.Admin.
func (a *clusterAdmin) Backup(ctx context.Context, by task.Author, w io.Writer, progress func(done, total int) error) error {
	if !a.images.backup.TryLock() {
		return task.Unavailable(backupRetryAfter, "this node is making another backup: wait until it ends, or ask another node")
	}
	defer a.images.backup.Unlock()
	soon, cancel := context.WithTimeout(ctx, verb.PartTime)
	defer cancel()
	o, err := cluster.GetOverview.Call(soon, a.router, verb.Nothing{})
	if err != nil {
		return notBegun(ctx, ofShard(systemShard, err))
	}
	shards := shardsOf(o)
	me := a.identity.Read()
	b, err := backup.NewWriter(w, backup.Head{Cluster: me.Cluster, Node: me.Name, Program: a.cfg.Version, Level: o.Settings.Level,
		Time: a.cfg.Time.Wall().UTC(), Shards: shards})
	if err != nil {
		return err
	}
	if !by.IsZero() {
		if _, err := cluster.NoteBackup.Call(ctx, a.router, cluster.AuthorCall{By: by}); err != nil {
			return err
		}
	}
	images, err := a.openAll(ctx, shards)
	if err != nil {
		return err
	}
	defer closeImages(images)
	out := stoppableWriter{a.stopping, b}
	for i, id := range shards {
		if err := progress(i, len(shards)); err != nil {
			return err
		}
		if err := images[i].stream(func(chunk []byte) error { _, err := out.Write(chunk); return err }); err != nil {
			return unfinished(ctx, id, err)
		}
		if err := b.EndPart(images[i].at.Index, images[i].at.Term); err != nil {
			return err
		}
	}
	if err := b.Close(); err != nil {
		return err
	}
	return progress(len(shards), len(shards))
}

// shardsOf returns the data shards of a cluster and then the system shard.
func shardsOf(o cluster.Overview) (shards []uint32) {
	for id := range uint32(o.Settings.DataShards) {
		shards = append(shards, id+1)
	}
	return append(shards, systemShard)
}

// notBegun returns the error of a backup that can't begin, which is never the caller's fault.
func notBegun(ctx context.Context, err error) error {
	if _, refused := task.AsError(err); err == nil || refused || ctx.Err() != nil {
		return err
	}
	return task.Unavailable(backupRetryAfter, "the backup can't begin: %v", err)
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
