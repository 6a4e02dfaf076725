package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/broker/archived"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Archive stores dead letters that are removed for good, as archive.Archive does.
type Archive interface {
	// Append returns once the records are on stable storage, with the place of each.
	Append(ns string, records [][]byte, now time.Time) (places []string, err error)
	archived.Files
}

// The form of a dead letter in the archive.
type (
	ArchivedTask    = archived.Task
	ArchivedPage    = archived.Page
	ArchivedUnique  = archived.Unique
	ArchivedRetry   = archived.Retry
	ArchivedParent  = archived.Parent
	ArchivedAttempt = archived.Attempt
	Period          = archived.Period
)

// Reasons for archiving a dead letter.
const (
	causeRetention = "retention"
	causeDiscard   = "discard"
)

// archiveDead writes dead letters of a namespace to the archive and logs their places. When it returns they are on stable storage.
func (b *Broker) archiveDead(ns, cause string, views []*View) error {
	now := time.Now()
	lines := make([][]byte, len(views))
	for i, v := range views {
		line, err := archived.Line(v, cause, now)
		if err != nil {
			return err
		}
		lines[i] = line
	}
	places, err := b.cfg.Archive.Append(ns, lines, now)
	if err != nil {
		b.cfg.Logger.Error("dead letters could not be archived and stay where they are", "tasks", len(views), "error", err)
		return task.Unavailable(time.Second, "the dead-letter archive can't be written")
	}
	for i, v := range views {
		b.cfg.Logger.Info("dead letter archived", append(ViewAttrs(v), "reason", v.Exec.Reason, "cause", cause, "archive", places[i])...)
	}
	return nil
}

// archiver archives a shard's dead letters whose retention has ended, then removes them.
type archiver struct {
	r     *replica
	wake  chan struct{}    // dead letters wait for the archive
	retry <-chan time.Time // after a failure
}

// run archives while this node leads the shard, until ctx ends.
func (a *archiver) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-a.retry:
		}
		a.retry = nil
		for _, ns := range a.r.b.cfg.Namespaces() {
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = a.archiveSome(ctx, ns); err != nil {
					a.r.warn("archiving dead letters", err)
					a.retry = time.After(archiveRetry)
					break
				}
			}
		}
	}
}

// archiveRetry is the delay before a failed archive is retried.
const archiveRetry = time.Minute

func (a *archiver) archiveSome(ctx context.Context, ns string) (more bool, err error) {
	if !a.r.shard.Leads() {
		return false, nil
	}
	views, _, err := read(ctx, a.r, func(from store.Reader) ([]*View, error) { return query.ToArchive(from, ns, chunk), nil })
	if err != nil || len(views) == 0 {
		return false, err
	}
	if err := a.r.b.archiveDead(ns, causeRetention, views); err != nil {
		return false, err
	}
	_, _, err = change(ctx, a.r, func(round *engine.Round) (struct{}, error) {
		warm(round, ns, views)
		for _, v := range views {
			engine.ForgetArchived(round, ns, v.ID, v.Exec.EndedAt)
		}
		return struct{}{}, nil
	})
	return true, err
}
