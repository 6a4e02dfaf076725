package broker

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/archive"
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

// Reasons for archiving a dead letter.
const (
	causeRetention = "retention"
	causeDiscard   = "discard"
)

// archiveDead writes dead letters of a namespace to the archive, and logs them. When it returns they are on stable storage.
func (b *Broker) archiveDead(ns, cause string, views []*View) error {
	now := time.Now()
	lines := make([][]byte, len(views))
	for i, v := range views {
		r := b.recordOf(v)
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
		b.cfg.Logger.Info("dead letter archived", append(ViewAttrs(v), "reason", v.Exec.Reason, "cause", cause)...)
	}
	return nil
}

// recordOf returns the record of a dead letter.
func (b *Broker) recordOf(v *View) archive.Record {
	x := v.Exec
	spec := task.Spec{Type: v.Type, Queue: v.Queue, Priority: x.Priority, Payload: v.Payload, ContentType: v.ContentType,
		IdempotencyKey: v.IdempotencyKey, IdempotencyTTL: v.IdempotencyTTL, MaxAttempts: x.MaxAttempts, Retry: v.Retry, Timeout: v.Timeout,
		Retention: x.Retention, Key: v.Key, Cost: x.Cost, Tags: v.Tags, Headers: v.Headers, Unique: x.Unique}
	if x.ExpiresAt != 0 {
		spec.ExpiresIn = x.ExpiresAt.Sub(x.CreatedAt)
	}
	for _, f := range v.Then {
		next, err := task.DecodeSpec(f.Spec)
		if err != nil { // it could never have been enqueued
			b.cfg.Logger.Error("a follow-up task can't be read, and is left out of the archive", "task_id", v.ID, "error", err)
			continue
		}
		spec.Then = append(spec.Then, next)
	}
	r := archive.Record{ID: v.ID.String(), Namespace: v.Namespace, State: x.State.String(), Reason: x.Reason, CreatedAt: x.CreatedAt.Time(),
		EndedAt: x.EndedAt.Time(), Task: archivedTask(&spec), Failures: x.Failures, Crashes: x.Crashes, Releases: x.Releases, Snoozes: x.Snoozes}
	if p := v.Parent; p != nil {
		r.Parent = &archive.Parent{TaskID: textOf(p.ID), GroupID: textOf(p.Group), Result: p.Result, ContentType: p.ContentType, Omitted: p.Omitted}
	}
	for _, a := range v.Attempts {
		r.Attempts = append(r.Attempts, archive.Attempt{Attempt: a.Number, Fence: a.Fence, Worker: a.Worker,
			StartedAt: a.StartedAt.Time(), EndedAt: a.EndedAt.Time(), Outcome: a.Outcome.String(),
			Message: a.Failure.Message, ErrorType: a.Failure.Type, Stack: a.Failure.Stack})
	}
	return r
}

// textOf returns an id as text; "": there is none.
func textOf(id task.ID) string {
	if id == (task.ID{}) {
		return ""
	}
	return id.String()
}

// archivedTask returns what a producer would send to enqueue a task again.
func archivedTask(s *task.Spec) archive.Task {
	t := archive.Task{Type: s.Type, Queue: s.Queue, Priority: s.Priority.String(), Payload: s.Payload, ContentType: s.ContentType,
		Delay: archive.Period(s.Delay), RunAt: s.RunAt, IdempotencyKey: s.IdempotencyKey, IdempotencyTTL: archive.Period(s.IdempotencyTTL),
		MaxAttempts: s.MaxAttempts, Timeout: archive.Period(s.Timeout), ExpiresIn: archive.Period(s.ExpiresIn),
		Retention: (*archive.Period)(s.Retention), Key: s.Key, Cost: s.Cost, Tags: s.Tags, Headers: s.Headers}
	if r := s.Retry; r != nil {
		t.Retry = &archive.Retry{Initial: archive.Period(r.Initial), Max: archive.Period(r.Max), Factor: r.Factor, Jitter: r.Jitter}
	}
	if u := s.Unique; u != nil {
		t.Unique = &archive.Unique{Key: u.Key, OnConflict: u.OnConflict.String()}
		for _, state := range u.States.List() {
			t.Unique.States = append(t.Unique.States, state.String())
		}
	}
	for i := range s.Then {
		t.Then = append(t.Then, archivedTask(&s.Then[i]))
	}
	return t
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
