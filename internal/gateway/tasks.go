package gateway

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// GetTask returns a task, waiting for its end if asked to.
func (g producerService) GetTask(ctx context.Context, r *pawlv1.GetTaskRequest) (*pawlv1.GetTaskResponse, error) {
	id, err := idOf("task_id", r.GetTaskId())
	if err != nil {
		return nil, err
	}
	wait, err := waitOf(r.GetWait())
	if err != nil {
		return nil, err
	}
	waits(ctx, wait)
	switch r.GetConsistency() {
	case pawlv1.Consistency_CONSISTENCY_UNSPECIFIED, pawlv1.Consistency_CONSISTENCY_LINEARIZABLE:
	case pawlv1.Consistency_CONSISTENCY_STALE:
		if wait > 0 {
			return nil, task.Invalid("wait", "%s can't be given with a stale read, which never waits", wait)
		}
		return g.peek(ctx, id)
	default:
		return nil, task.Invalid("consistency", "%d is not one of linearizable, stale", r.GetConsistency())
	}
	v, at, err := g.broker.Task(ctx, namespaceOf(ctx), id, wait)
	noteStamp(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetTaskResponse{Task: taskProto(v, true)}, nil
}

// peek reads a task from any replica.
func (g *Gateway) peek(ctx context.Context, id task.ID) (*pawlv1.GetTaskResponse, error) {
	v, at, age, err := g.broker.Peek(ctx, namespaceOf(ctx), id)
	noteStamp(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetTaskResponse{Task: taskProto(v, true), Age: durationpb.New(age)}, nil
}

// CancelTask cancels a task that has not ended.
func (g producerService) CancelTask(ctx context.Context, r *pawlv1.CancelTaskRequest) (*pawlv1.CancelTaskResponse, error) {
	t, err := g.operate(ctx, broker.Cancel, "task cancelled", r.GetTaskId(), r.GetReason())
	return &pawlv1.CancelTaskResponse{Task: t}, err
}

// runOnTask runs a verb on one task.
func (g *Gateway) runOnTask(ctx context.Context, by task.Author, verb broker.TaskVerb, id task.ID) (*broker.View, error) {
	out, err := broker.OperateTask.Call(ctx, g.verbs, broker.TaskCommand{Verb: verb, Authored: broker.Authored{By: by}, OnTask: broker.OnTask{Namespace: namespaceOf(ctx), ID: id}})
	return out.View, err
}

// operate runs a verb on one task, and logs it if a reason is given.
func (g *Gateway) operate(ctx context.Context, verb broker.TaskVerb, done, taskID, reason string) (*pawlv1.Task, error) {
	id, err := idOf("task_id", taskID)
	if err != nil {
		return nil, err
	}
	by, err := authorOf(ctx, reason)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	v, err := g.runOnTask(ctx, by, verb, id)
	if err != nil {
		return nil, err
	}
	if verb == broker.Cancel {
		g.traceCancel(ctx, v, began)
	}
	if by.Reason != "" {
		g.log.Info(done, append(broker.ViewAttrs(v), "by", by)...)
	}
	return taskProto(v, true), nil
}

// UpdateTask changes a waiting task.
func (g producerService) UpdateTask(ctx context.Context, r *pawlv1.UpdateTaskRequest) (*pawlv1.UpdateTaskResponse, error) {
	id, err := idOf("task_id", r.GetTaskId())
	if err != nil {
		return nil, err
	}
	edit, err := editOf(r)
	if err != nil {
		return nil, err
	}
	by, err := authorOf(ctx, "")
	if err != nil {
		return nil, err
	}
	ns := namespaceOf(ctx)
	if edit.Payload != nil {
		v, at, err := g.broker.Task(ctx, ns, id, 0)
		noteStamp(ctx, at)
		if err != nil {
			return nil, err
		}
		if err := checkData("payload", *edit.Payload, v.ContentType, g.limits); err != nil {
			return nil, err
		}
	}
	out, err := broker.OperateTask.Call(ctx, g.verbs, broker.TaskCommand{Verb: broker.Update, Authored: broker.Authored{By: by}, OnTask: broker.OnTask{Namespace: ns, ID: id}, Edit: edit})
	if err != nil {
		return nil, err
	}
	return &pawlv1.UpdateTaskResponse{Task: taskProto(out.View, true)}, nil
}

func editOf(r *pawlv1.UpdateTaskRequest) (e broker.Edit, err error) {
	if r.GetRunAt() != nil {
		at, err := timeOf("run_at", r.GetRunAt())
		if err != nil {
			return e, err
		}
		if at.Year() < 1970 { // the upper bound is 9999 anyway
			return e, task.Invalid("run_at", "%s is not between the years 1970 and 9999", at.Format(time.RFC3339))
		}
		e.RunAt = &at
	}
	if e.Priority, err = priorityOf(r.GetPriority()); err != nil {
		return e, err
	}
	if n := r.GetMaxAttempts(); n < 0 || n > contract.MaxAttempts {
		return e, task.Invalid("max_attempts", "%d is not between 1 and %d", n, contract.MaxAttempts)
	}
	e.MaxAttempts = int(r.GetMaxAttempts())
	if r.Payload != nil {
		payload := r.GetPayload()
		e.Payload = &payload
	}
	if e == (broker.Edit{}) {
		return e, task.Invalid("run_at", "is required unless priority, payload or max_attempts is given: nothing would change")
	}
	e.IfETag = r.GetIfEtag()
	return e, nil
}

// ListTasks returns a page of tasks, newest first.
func (g producerService) ListTasks(ctx context.Context, r *pawlv1.ListTasksRequest) (*pawlv1.ListTasksResponse, error) {
	f, err := filterOf(r.GetFilter(), g.limits)
	if err != nil {
		return nil, err
	}
	p, err := g.list(ctx, f, r.GetCursor(), r.GetLimit(), r.GetWithPayload())
	return &pawlv1.ListTasksResponse{Items: p.items, NextCursor: p.next, Searched: p.searched}, err
}
