package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Archive keeps dead letters that leave for good, as archive.Archive does.
type Archive interface {
	// Append has the records on stable storage when it returns where each lies.
	Append(records [][]byte, now time.Time) (places []string, err error)
	Read(place string) ([]byte, error)
	List(cursor string, fn func(place string, record []byte) bool) (next string, err error)
}

// Why a dead letter was archived.
const (
	causeRetention = "retention"
	causeDiscard   = "discard"
)

// ArchivedTask is a dead letter as it lies in the archive: one line of JSON.
type ArchivedTask struct {
	ArchivedAt time.Time         `json:"archived_at"`
	Cause      string            `json:"cause"`
	ID         string            `json:"task_id"`
	Namespace  string            `json:"namespace"`
	Queue      string            `json:"queue"`
	Type       string            `json:"type"`
	State      string            `json:"state"`
	Reason     string            `json:"reason"`
	Priority   string            `json:"priority"`
	Key        string            `json:"key,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	// Payload holds the bytes as they were, in base64.
	Payload        []byte          `json:"payload,omitempty"`
	ContentType    string          `json:"content_type,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
	CreatedAt      time.Time       `json:"created_at"`
	Unique         *ArchivedUnique `json:"unique,omitempty"`
	// Then is what would have followed it, as of task.EncodeSpec, in base64.
	Then     [][]byte          `json:"then,omitempty"`
	EndedAt  time.Time         `json:"ended_at"`
	Attempts []ArchivedAttempt `json:"attempts"`
}

// ArchivedUnique is the unique key of an archived task.
type ArchivedUnique struct {
	Key        string   `json:"key"`
	States     []string `json:"states"`
	OnConflict string   `json:"on_conflict"`
}

// ArchivedAttempt is an attempt of an archived task.
type ArchivedAttempt struct {
	Attempt   int       `json:"attempt"`
	Fence     uint64    `json:"fence"`
	Worker    string    `json:"worker"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Outcome   string    `json:"outcome"`
	Message   string    `json:"message,omitempty"`
	ErrorType string    `json:"error_type,omitempty"`
	Stack     string    `json:"stack,omitempty"`
}

func archived(v *View, cause string, now time.Time) ArchivedTask {
	x := v.Exec
	t := ArchivedTask{ArchivedAt: now.UTC(), Cause: cause, ID: v.ID.String(), Namespace: v.Namespace, Queue: v.Queue, Type: v.Type,
		State: x.State.String(), Reason: x.Reason, Priority: x.Priority.String(), Key: v.Key, Tags: v.Tags, Headers: v.Headers,
		Payload: v.Payload, ContentType: v.ContentType, IdempotencyKey: v.IdempotencyKey,
		CreatedAt: x.CreatedAt.Time(), EndedAt: x.EndedAt.Time()}
	if u := x.Unique; u != nil {
		t.Unique = &ArchivedUnique{Key: u.Key, OnConflict: u.OnConflict.String()}
		for _, s := range u.States.List() {
			t.Unique.States = append(t.Unique.States, s.String())
		}
	}
	for _, f := range v.Then {
		t.Then = append(t.Then, f.Spec)
	}
	for _, a := range v.Attempts {
		t.Attempts = append(t.Attempts, ArchivedAttempt{Attempt: a.Number, Fence: a.Fence, Worker: a.Worker,
			StartedAt: a.StartedAt.Time(), EndedAt: a.EndedAt.Time(), Outcome: a.Outcome.String(),
			Message: a.Failure.Message, ErrorType: a.Failure.Type, Stack: a.Failure.Stack})
	}
	return t
}

// file writes dead letters to the archive and says in the log where they are. On return they are on stable storage.
func (b *Broker) file(cause string, views []*View) error {
	now := time.Now()
	lines := make([][]byte, len(views))
	for i, v := range views {
		line, err := json.Marshal(archived(v, cause, now))
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

// archiveDead archives dead letters whose retention is over, and then removes them.
func (r *replica) archiveDead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.toFile:
		}
		for _, ns := range r.b.cfg.Namespaces() {
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = r.archiveSome(ctx, ns); err != nil {
					r.warn("archiving dead letters", err)
					r.retryArchive(ctx)
					break
				}
			}
		}
	}
}

// archiveRetry is how long a failed archive rests.
const archiveRetry = time.Minute

func (r *replica) retryArchive(ctx context.Context) {
	r.b.work.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(archiveRetry):
			poke(r.toFile)
		}
	})
}

func (r *replica) archiveSome(ctx context.Context, ns string) (more bool, err error) {
	if _, leads := r.shard.Now(); !leads {
		return false, nil
	}
	views, _, err := read(ctx, r, func(from store.Reader) ([]*View, error) { return engine.ToArchive(from, ns, chunk), nil })
	if err != nil || len(views) == 0 {
		return false, err
	}
	if err := r.b.file(causeRetention, views); err != nil {
		return false, err
	}
	_, _, err = change(ctx, r, func(round *engine.Round) (struct{}, error) {
		for _, v := range views {
			engine.ForgetArchived(round, ns, v.ID, v.Exec.EndedAt)
		}
		return struct{}{}, nil
	})
	return true, err
}

// ArchivedAt reads one archived task by its place.
func (b *Broker) ArchivedAt(place string) (*ArchivedTask, error) {
	line, err := b.cfg.Archive.Read(place)
	if errors.Is(err, archive.ErrNoRecord) {
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

// Archived reads a page of the archive, newest first: of one namespace, and of one queue if it is named. Cursor is next
// of the page before, "" at the start and the end.
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
	if errors.Is(err, archive.ErrNoRecord) {
		err = task.Invalid("cursor", "is not one that this list gave")
	}
	if err == nil {
		err = bad
	}
	return tasks, places, next, err
}
