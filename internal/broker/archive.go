package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/broker/archived"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Archive stores dead letters that are removed for good, as archive.Archive does.
type Archive interface {
	// Append returns once the records are on stable storage, with the place of each.
	Append(records [][]byte, now time.Time) (places []string, err error)
	Read(place string) ([]byte, error)
	List(cursor string, fn func(place string, record []byte) bool) (next string, err error)
}

// The form of a dead letter in the archive.
type (
	ArchivedTask    = archived.Task
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

// archiveDead writes dead letters to the archive and logs their places. When it returns they are on stable storage.
func (b *Broker) archiveDead(cause string, views []*View) error {
	now := time.Now()
	lines := make([][]byte, len(views))
	for i, v := range views {
		line, err := json.Marshal(archived.New(v, cause, now))
		if err != nil {
			return fmt.Errorf("archive of task %s: %w", v.ID, err)
		}
		lines[i] = line
	}
	places, err := b.cfg.Archive.Append(lines, now)
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
	if err := a.r.b.archiveDead(causeRetention, views); err != nil {
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

// BadPlace returns the error for a text that is not a place in an archive.
func BadPlace(place string) error {
	return task.Invalid("places", "%q is not a place in the archive: the form is FILE:LINE, in a cluster NODE:FILE:LINE, as listed by the archive", place)
}

// ArchivedAt reads one archived task by its place.
func (b *Broker) ArchivedAt(place string) (*ArchivedTask, error) {
	line, err := b.cfg.Archive.Read(place)
	switch {
	case errors.Is(err, archive.ErrPlace):
		return nil, BadPlace(place)
	case errors.Is(err, archive.ErrNoRecord):
		return nil, task.NotFound("archived task", place)
	}
	if err != nil {
		return nil, err
	}
	var t ArchivedTask
	if err := json.Unmarshal(line, &t); err != nil {
		return nil, fmt.Errorf("archive %s: %w", place, err)
	}
	return &t, nil
}

// Archived returns a page of the archive, newest first, for one namespace and optionally one queue. cursor is the next of the
// previous page, "" at the start and at the end.
func (b *Broker) Archived(ns, queue, cursor string, limit int) (tasks []ArchivedTask, places []string, next string, err error) {
	var bad error
	next, err = b.cfg.Archive.List(cursor, func(place string, line []byte) bool {
		var t ArchivedTask
		if bad = json.Unmarshal(line, &t); bad != nil {
			bad = fmt.Errorf("archive %s: %w", place, bad)
			return false
		}
		if t.Namespace == ns && (queue == "" || t.Queue == queue) {
			tasks, places = append(tasks, t), append(places, place)
		}
		return len(tasks) < limit
	})
	if errors.Is(err, archive.ErrPlace) {
		err = task.Invalid("cursor", "was not returned by this call")
	}
	if err == nil {
		err = bad
	}
	return tasks, places, next, err
}
