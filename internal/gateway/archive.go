package gateway

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// ListArchive returns a page of the dead-letter archive, newest first.
func (g operatorService) ListArchive(ctx context.Context, r *pawlv1.ListArchiveRequest) (*pawlv1.ListArchiveResponse, error) {
	n, err := limitOf(r.GetLimit())
	if err != nil {
		return nil, err
	}
	if r.GetQueue() != "" {
		if err := task.CheckQueue("queue", r.GetQueue(), g.limits); err != nil {
			return nil, err
		}
		if err := mayUse(ctx, r.GetQueue()); err != nil {
			return nil, err
		}
	}
	from, err := decodeCursor(archiveCursor, r.GetCursor())
	if err != nil {
		return nil, err
	}
	tasks, places, cursors, err := g.broker.Archived(ctx, namespaceOf(ctx), r.GetQueue(), string(from), n)
	if err != nil {
		return nil, err
	}
	out := &pawlv1.ListArchiveResponse{}
	size, next, scope := 0, "", task.ScopeOf(ctx)
	for i := range tasks {
		if size += tasks[i].Bytes(); size > maxPageBytes && i > 0 {
			break
		}
		if scope.Sees(tasks[i].Queue) {
			out.Items = append(out.Items, archivedProto(&tasks[i], places[i]))
		}
		next = cursors[i]
	}
	out.NextCursor = nextCursor(archiveCursor, next)
	return out, nil
}

func archivedProto(a *broker.ArchivedTask, place string) *pawlv1.ArchivedTask {
	state, _ := task.ParseState(a.State)
	priority, _ := task.ParsePriority(a.Priority)
	t := &pawlv1.Task{TaskId: a.ID, Type: a.Type, Queue: a.Queue, Status: statusProto(state), State: stateProto(state), Reason: a.Reason,
		Priority: priorityProto(priority), Payload: a.Payload, ContentType: a.ContentType, CreatedAt: wallProto(a.CreatedAt),
		EndedAt: wallProto(a.EndedAt), IdempotencyKey: a.IdempotencyKey, Key: a.Key, Tags: a.Tags, Headers: a.Headers,
		Unique: archivedUnique(a.Unique), MaxAttempts: int32Of(a.MaxAttempts), Retry: archivedRetry(a.Retry), Timeout: spanProto(time.Duration(a.Timeout)),
		Retention: periodProto(a.Retention), Cost: int32Of(max(a.Cost, 1))}
	if a.ExpiresIn > 0 {
		t.ExpiresAt = wallProto(a.CreatedAt.Add(time.Duration(a.ExpiresIn)))
	}
	if p := a.Parent; p != nil {
		t.Parent = &pawlv1.Parent{TaskId: p.TaskID, GroupId: p.GroupID, Result: p.Result, ContentType: p.ContentType, ResultOmitted: p.Omitted}
	}
	for _, at := range a.Attempts {
		p := &pawlv1.Attempt{Attempt: int32Of(at.Attempt), Fence: int64(at.Fence), Worker: at.Worker, StartedAt: wallProto(at.StartedAt),
			EndedAt: wallProto(at.EndedAt), Outcome: outcomeNamed(at.Outcome)}
		if at.Message != "" || at.ErrorType != "" || at.Stack != "" {
			p.Error = &pawlv1.TaskError{Message: at.Message, Type: at.ErrorType, Stack: at.Stack}
		}
		t.AttemptLog = append(t.AttemptLog, p)
		t.Attempts, t.Fence, t.Worker = p.Attempt, p.Fence, p.Worker
	}
	return &pawlv1.ArchivedTask{Task: t, ArchivedAt: wallProto(a.ArchivedAt), Cause: a.Cause, Place: place}
}

func archivedRetry(r *broker.ArchivedRetry) *pawlv1.RetryPolicy {
	if r == nil {
		return nil
	}
	return retryProto(task.Retry{Initial: time.Duration(r.Initial), Max: time.Duration(r.Max), Factor: r.Factor, Jitter: r.Jitter})
}

func periodProto(p *broker.Period) *durationpb.Duration {
	if p == nil {
		return nil
	}
	return durationpb.New(time.Duration(*p))
}

// outcomeNamed is the inverse of task.Outcome's String.
func outcomeNamed(name string) pawlv1.Outcome {
	for o := task.OutcomeSucceeded; o <= task.OutcomeLeaderless; o++ {
		if o.String() == name {
			return outcomeProto(o)
		}
	}
	return pawlv1.Outcome_OUTCOME_UNSPECIFIED
}

// RestoreArchive enqueues archived dead letters as new tasks.
func (g operatorService) RestoreArchive(ctx context.Context, r *pawlv1.RestoreArchiveRequest) (*pawlv1.RestoreArchiveResponse, error) {
	if n := len(r.GetPlaces()); n == 0 || n > contract.MaxSelected {
		return nil, task.Invalid("places", "%d places, 1 to %d are allowed", n, contract.MaxSelected)
	}
	by, err := authorOf(ctx, "")
	if err != nil {
		return nil, err
	}
	out := &pawlv1.RestoreArchiveResponse{}
	var specs []*pawlv1.TaskSpec
	back := &restoring{by: by}
	var restored []*pawlv1.RestoredTask // one per spec
	for _, place := range r.GetPlaces() {
		one := &pawlv1.RestoredTask{Place: place}
		out.Results = append(out.Results, one)
		spec, of, err := g.archivedSpec(ctx, place)
		if err != nil {
			one.Error = g.itemError(err)
			continue
		}
		specs, restored = append(specs, spec), append(restored, one)
		back.of = append(back.of, of)
	}
	for i, result := range g.enqueue(ctx, specs, back) {
		restored[i].TaskId, restored[i].Error, restored[i].Duplicate = result.GetTask().GetTaskId(), result.GetError(), result.GetTask().GetDuplicate()
	}
	return out, nil
}

// restoring is what is known, besides their specs, of tasks restored from the archive.
type restoring struct {
	by task.Author
	of []origin // one per spec
}

// origin is the dead letter that a spec was made from.
type origin struct {
	id     task.ID
	ended  time.Time
	parent *task.Parent
}

// complete sets the fields of a task that no producer can set.
func (b *restoring) complete(s *task.Spec, ns string, i int) {
	s.Restored, s.Parent = &b.by, b.of[i].parent
	s.Restore(ns, b.of[i].id, b.of[i].ended)
}

// maxPlace bounds the name of a place in an archive: a node, a file and a line.
const maxPlace = 256

// archivedSpec returns the spec with which a producer would enqueue an archived task again. It has the task's own settings;
// expires_in counts from now. It takes over the idempotency key, and requests the unique key again. The task's follow-ups follow
// the new one.
func (g *Gateway) archivedSpec(ctx context.Context, place string) (*pawlv1.TaskSpec, origin, error) {
	if len(place) > maxPlace {
		return nil, origin{}, task.Invalid("places", "%d bytes, at most %d are allowed", len(place), maxPlace)
	}
	a, err := g.broker.ArchivedAt(ctx, place)
	if err != nil {
		return nil, origin{}, err
	}
	if a.Namespace != namespaceOf(ctx) || !task.ScopeOf(ctx).Sees(a.Queue) {
		return nil, origin{}, task.NotFound("archived task", place)
	}
	of, err := archivedOrigin(a)
	if err != nil {
		return nil, origin{}, fmt.Errorf("archive %q: %w", place, err)
	}
	then, err := restoredThen(a.Then)
	if err != nil {
		return nil, origin{}, fmt.Errorf("archive %q: %w", place, err)
	}
	priority, _ := task.ParsePriority(a.Priority)
	return &pawlv1.TaskSpec{Type: a.Type, Payload: a.Payload, ContentType: a.ContentType, Queue: a.Queue, Priority: priorityProto(priority),
		IdempotencyKey: a.IdempotencyKey, IdempotencyTtl: spanProto(time.Duration(a.IdempotencyTTL)), MaxAttempts: int32Of(a.MaxAttempts),
		Retry: archivedRetry(a.Retry), Timeout: spanProto(time.Duration(a.Timeout)), ExpiresIn: spanProto(time.Duration(a.ExpiresIn)),
		Retention: periodProto(a.Retention), Cost: int32Of(a.Cost), Key: a.Key, Tags: a.Tags, Headers: a.Headers,
		Unique: restoredUnique(a.Unique), Then: then}, of, nil
}

func archivedOrigin(a *broker.ArchivedTask) (of origin, err error) {
	of.ended = a.EndedAt
	if of.id, err = task.ParseID(a.ID); err != nil || a.Parent == nil {
		return of, err
	}
	p := &task.Parent{Result: a.Parent.Result, ContentType: a.Parent.ContentType, Omitted: a.Parent.Omitted}
	if a.Parent.TaskID != "" {
		p.ID, err = task.ParseID(a.Parent.TaskID)
	}
	if a.Parent.GroupID != "" && err == nil {
		p.Group, err = task.ParseID(a.Parent.GroupID)
	}
	of.parent = p
	return of, err
}
