package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// ArchivedProto converts an archived task, which is at a place of the archive.
func ArchivedProto(a *broker.ArchivedTask, place string) *pawlv1.ArchivedTask {
	state, _ := task.ParseState(a.State)
	priority, _ := task.ParsePriority(a.Priority)
	t := &pawlv1.Task{TaskId: a.ID, Type: a.Type, Queue: a.Queue, Status: StatusProto(state), State: StateProto(state), Reason: a.Reason,
		Priority: priorityProto(priority), Payload: a.Payload, ContentType: a.ContentType, CreatedAt: WallProto(a.CreatedAt),
		EndedAt: WallProto(a.EndedAt), IdempotencyKey: a.IdempotencyKey, Key: a.Key, Tags: a.Tags, Headers: a.Headers,
		Unique: archivedUnique(a.Unique), MaxAttempts: Int32Of(a.MaxAttempts), Retry: archivedRetry(a.Retry), Timeout: spanProto(time.Duration(a.Timeout)),
		Retention: periodProto(a.Retention), Cost: Int32Of(max(a.Cost, 1)),
		Failures: Int32Of(a.Failures), Crashes: Int32Of(a.Crashes), Releases: Int32Of(a.Releases), Snoozes: Int32Of(a.Snoozes)}
	if a.ExpiresIn > 0 {
		t.ExpiresAt = WallProto(a.CreatedAt.Add(time.Duration(a.ExpiresIn)))
	}
	if p := a.Parent; p != nil {
		t.Parent = &pawlv1.Parent{TaskId: p.TaskID, GroupId: p.GroupID, Result: p.Result, ContentType: p.ContentType, ResultOmitted: p.Omitted}
	}
	for _, at := range a.Attempts {
		p := &pawlv1.Attempt{Attempt: Int32Of(at.Attempt), Fence: int64(at.Fence), Worker: at.Worker, StartedAt: WallProto(at.StartedAt),
			EndedAt: WallProto(at.EndedAt), Outcome: outcomeNamed(at.Outcome)}
		if at.Message != "" || at.ErrorType != "" || at.Stack != "" {
			p.Error = &pawlv1.TaskError{Message: at.Message, Type: at.ErrorType, Stack: at.Stack}
		}
		t.AttemptLog = append(t.AttemptLog, p)
		t.Attempts, t.Fence, t.Worker = p.Attempt, p.Fence, p.Worker
	}
	return &pawlv1.ArchivedTask{Task: t, ArchivedAt: WallProto(a.ArchivedAt), Cause: a.Cause, Place: place}
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

// RestoredSpec returns the spec with which a producer would enqueue an archived task again. It has the task's own settings;
// expires_in counts from now. It takes over the idempotency key, and requests the unique key again. The task's follow-ups follow the
// new one.
func RestoredSpec(a *broker.ArchivedTask) (*pawlv1.TaskSpec, error) {
	then, err := restoredThen(a.Then)
	if err != nil {
		return nil, err
	}
	priority, _ := task.ParsePriority(a.Priority)
	return &pawlv1.TaskSpec{Type: a.Type, Payload: a.Payload, ContentType: a.ContentType, Queue: textProto(a.Queue), Priority: priorityProto(priority),
		IdempotencyKey: textProto(a.IdempotencyKey), IdempotencyTtl: spanProto(time.Duration(a.IdempotencyTTL)), MaxAttempts: Int32Of(a.MaxAttempts),
		Retry: archivedRetry(a.Retry), Timeout: spanProto(time.Duration(a.Timeout)), ExpiresIn: spanProto(time.Duration(a.ExpiresIn)),
		Retention: periodProto(a.Retention), Cost: Int32Of(a.Cost), Key: textProto(a.Key), Tags: a.Tags, Headers: a.Headers,
		Unique: restoredUnique(a.Unique), Then: then}, nil
}

// Origin is the dead letter that a task is restored from.
type Origin struct {
	ID      task.ID
	EndedAt time.Time
	Parent  *task.Parent
}

// OriginOf returns what an archived task was.
func OriginOf(a *broker.ArchivedTask) (of Origin, err error) {
	of.EndedAt = a.EndedAt
	if of.ID, err = task.ParseID(a.ID); err != nil || a.Parent == nil {
		return of, err
	}
	p := &task.Parent{Result: a.Parent.Result, ContentType: a.Parent.ContentType, Omitted: a.Parent.Omitted}
	if a.Parent.TaskID != "" {
		p.ID, err = task.ParseID(a.Parent.TaskID)
	}
	if a.Parent.GroupID != "" && err == nil {
		p.Group, err = task.ParseID(a.Parent.GroupID)
	}
	of.Parent = p
	return of, err
}

// Bytes returns the size of what is enqueued in addition to the task's spec.
func (o *Origin) Bytes() int {
	if o.Parent == nil {
		return 0
	}
	return len(o.Parent.Result)
}
