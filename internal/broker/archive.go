package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/broker/tasklog"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Archive stores dead letters that are removed for good, as archive.Archive does.
type Archive interface {
	// Append returns once the records are on stable storage.
	Append(ns string, records [][]byte, now time.Time) error
}

const causeRetention, causeDiscard = "retention", "discard" // why a dead letter is archived

// archiveDead writes dead letters of a namespace to the archive, and logs them. When it returns they are on stable storage.
func (b *Broker) archiveDead(ns, cause string, views []*View) error {
	now := time.Now()
	lines := make([][]byte, len(views))
	for i, v := range views {
		r := recordOf(v)
		r.Cause, r.ArchivedAt = cause, now.UTC()
		line, err := r.Line()
		if err != nil {
			return err
		}
		lines[i] = line
	}
	if err := b.cfg.Archive.Append(ns, lines, now); err != nil {
		b.cfg.Logger.Error("dead letters could not be archived and stay where they are", "tasks", len(views), "error", err)
		return task.Unavailable(time.Second, "the dead-letter archive can't be written")
	}
	for _, v := range views {
		b.cfg.Logger.Info("dead letter archived", append(tasklog.OfView(v), "reason", v.Exec.Reason, "cause", cause)...)
	}
	return nil
}

// recordOf returns the record of a dead letter.
func recordOf(v *View) archive.Record {
	x := v.Exec
	spec := task.Spec{Type: v.Type, Queue: v.Queue, Priority: x.Priority, Payload: v.Payload, ContentType: v.ContentType,
		IdempotencyKey: v.IdempotencyKey, IdempotencyTTL: v.IdempotencyTTL, MaxAttempts: x.MaxAttempts, Retry: v.Retry, Timeout: v.Timeout,
		Retention: x.Retention, Key: v.Key, Cost: x.Cost, Tags: v.Tags, Headers: v.Headers, Unique: x.Unique}
	if x.ExpiresAt != 0 {
		spec.ExpiresIn = x.ExpiresAt.Sub(x.CreatedAt)
	}
	for _, f := range v.Then {
		if next, err := task.DecodeSpec(f.Spec); err == nil { // otherwise it could never have been enqueued
			spec.Then = append(spec.Then, next)
		}
	}
	r := archive.Record{ID: v.ID.String(), Namespace: v.Namespace, State: x.State.String(), Reason: x.Reason, CreatedAt: x.CreatedAt.Time(),
		EndedAt: x.EndedAt.Time(), Task: archive.TaskOf(&spec), Parent: archive.ParentOf(v.Parent),
		Failures: x.Failures, Crashes: x.Crashes, Releases: x.Releases, Snoozes: x.Snoozes}
	for _, a := range v.Attempts {
		r.Attempts = append(r.Attempts, archive.Attempt{Attempt: a.Number, Fence: a.Fence, Worker: a.Worker,
			StartedAt: a.StartedAt.Time(), EndedAt: a.EndedAt.Time(), Outcome: a.Outcome.String(),
			Message: a.Failure.Message, ErrorType: a.Failure.Type, Stack: a.Failure.Stack})
	}
	return r
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
