package apiproto

import (
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// TaskProto converts a task for callers.
func TaskProto(v *broker.View, withPayload bool) *pawlv1.Task {
	x := v.Exec
	t := &pawlv1.Task{
		TaskId: v.ID.String(), Type: v.Type, Queue: v.Queue, Status: StatusProto(x.State), State: StateProto(x.State), Reason: x.Reason,
		Priority: priorityProto(x.Priority), ContentType: v.ContentType,
		Result: v.Result.Data, ResultContentType: v.Result.ContentType,
		Attempts: attemptsBegun(v), MaxAttempts: Int32Of(v.MaxAttempts()), Failures: Int32Of(x.Failures), Crashes: Int32Of(x.Crashes),
		Releases: Int32Of(x.Releases), Snoozes: Int32Of(x.Snoozes), Fence: int64(x.Fence),
		AttemptLog: attemptLog(v), Worker: x.Claim.Worker,
		CreatedAt: TimeProto(x.CreatedAt), RunAt: TimeProto(x.RunAt), ClaimedAt: TimeProto(x.Claim.At),
		EndedAt: TimeProto(x.EndedAt), ExpiresAt: TimeProto(x.ExpiresAt), KeptUntil: TimeProto(x.KeptUntil),
		IdempotencyKey: v.IdempotencyKey, Key: v.Key, Tags: v.Tags, Headers: v.Headers,
		Retry: retryProto(v.Settings.Retry), Timeout: spanProto(v.Settings.Timeout), Retention: retentionOf(v), Checkpoint: v.Checkpoint,
		Cost: Int32Of(max(x.Cost, 1)), Unique: uniqueProto(x.Unique),
		Parent: parentProto(v.Parent), Then: followersProto(v.Then),
	}
	if x.Links != nil && x.Links.Group != (task.ID{}) {
		t.GroupId = x.Links.Group.String()
	}
	if v.WaitsFor != (task.ID{}) {
		t.WaitsFor = v.WaitsFor.String()
	}
	if v.MovedFrom != (task.ID{}) {
		t.MovedFrom = v.MovedFrom.String()
	}
	if x.MovedTo != (task.ID{}) {
		t.MovedTo = x.MovedTo.String()
	}
	if withPayload {
		t.Payload, t.Etag = v.Payload, v.ETag()
	}
	if x.State == task.Claimed {
		t.LeaseExpiresAt = TimeProto(x.Claim.Until)
	}
	if x.Progress != 0 || x.ProgressText != "" {
		t.Progress = &pawlv1.Progress{Percent: x.Progress, Message: x.ProgressText}
	}
	if v.Retry != nil {
		t.Retry = retryProto(*v.Retry)
	}
	if v.Timeout != 0 {
		t.Timeout = spanProto(v.Timeout)
	}
	return t
}

// attemptsBegun returns the number of the last attempt that began. After a release or snooze the next attempt has the same number.
func attemptsBegun(v *broker.View) int32 {
	switch {
	case v.Exec.State == task.Claimed:
		return Int32Of(v.Exec.Attempt())
	case len(v.Attempts) > 0:
		return Int32Of(v.Attempts[len(v.Attempts)-1].Number)
	}
	return 0
}

// attemptLog returns the attempts that have ended, and the running one.
func attemptLog(v *broker.View) []*pawlv1.Attempt {
	log := make([]*pawlv1.Attempt, 0, len(v.Attempts)+1)
	for _, a := range v.Attempts {
		p := &pawlv1.Attempt{Attempt: Int32Of(a.Number), Fence: int64(a.Fence), Worker: a.Worker, StartedAt: TimeProto(a.StartedAt),
			EndedAt: TimeProto(a.EndedAt), Outcome: outcomeProto(a.Outcome), Waited: durationpb.New(a.Waited),
			NextRunAt: TimeProto(a.NextRunAt)}
		if a.Failure != (broker.Failure{}) {
			p.Error = &pawlv1.TaskError{Message: a.Failure.Message, Type: a.Failure.Type, Stack: a.Failure.Stack}
		}
		log = append(log, p)
	}
	if x := v.Exec; x.State == task.Claimed {
		log = append(log, &pawlv1.Attempt{Attempt: Int32Of(x.Attempt()), Fence: int64(x.Fence), Worker: x.Claim.Worker,
			StartedAt: TimeProto(x.Claim.At), Waited: durationpb.New(max(x.Claim.At.Sub(x.ReadyAt), 0))})
	}
	return log
}

// retentionOf returns how long the task is kept once it has ended: its own setting, or the queue's for its final state.
func retentionOf(v *broker.View) *durationpb.Duration {
	switch {
	case v.Exec.Retention != nil:
		return durationpb.New(*v.Exec.Retention)
	case v.Exec.State.Ended():
		return durationpb.New(v.Settings.Retention.Of(v.Exec.State))
	}
	return nil
}

// EnqueuedProto fills in an answer allocated by the caller: a batch has a thousand of them.
func EnqueuedProto(to *pawlv1.Enqueued, a *broker.Accepted) {
	to.TaskId = a.ID.String()
	to.State, to.Status = StateProto(a.State), StatusProto(a.State)
	to.Duplicate = a.Duplicate
}
