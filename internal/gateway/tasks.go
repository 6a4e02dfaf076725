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

// GetTask reads a task, waiting for its end if asked to.
func (g producers) GetTask(ctx context.Context, r *pawlv1.GetTaskRequest) (*pawlv1.GetTaskResponse, error) {
	id, err := idOf(r.GetTaskId())
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
			return nil, task.Invalid("wait", "%s can't be given with a stale read, which waits for nothing", wait)
		}
		return g.peek(ctx, id)
	default:
		return nil, task.Invalid("consistency", "%d is none of linearizable, stale", r.GetConsistency())
	}
	v, at, err := g.broker.Task(ctx, namespaceOf(ctx), id, wait)
	saw(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetTaskResponse{Task: taskProto(v, true)}, nil
}

// peek reads a task from any replica.
func (g *Gateway) peek(ctx context.Context, id task.ID) (*pawlv1.GetTaskResponse, error) {
	v, at, age, err := g.broker.Peek(ctx, namespaceOf(ctx), id)
	saw(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetTaskResponse{Task: taskProto(v, true), Age: durationpb.New(age)}, nil
}

// CancelTask ends a task that has not ended.
func (g producers) CancelTask(ctx context.Context, r *pawlv1.CancelTaskRequest) (*pawlv1.CancelTaskResponse, error) {
	began := time.Now()
	cancel := func(ctx context.Context, by task.Author, ns string, id task.ID) (*broker.View, broker.Stamp, error) {
		v, at, err := g.broker.Cancel(ctx, by, ns, id)
		if err == nil {
			g.traceCancel(ctx, v, began)
		}
		return v, at, err
	}
	t, err := g.operate(ctx, "task cancelled", r.GetTaskId(), r.GetReason(), cancel)
	return &pawlv1.CancelTaskResponse{Task: t}, err
}

// operate calls a verb of the broker on one task.
func (g *Gateway) operate(ctx context.Context, done, taskID, reason string,
	verb func(context.Context, task.Author, string, task.ID) (*broker.View, broker.Stamp, error)) (*pawlv1.Task, error) {
	id, err := idOf(taskID)
	if err != nil {
		return nil, err
	}
	by, err := authorOf(ctx, reason)
	if err != nil {
		return nil, err
	}
	v, at, err := verb(ctx, by, namespaceOf(ctx), id)
	saw(ctx, at)
	if err != nil {
		return nil, err
	}
	if by.Reason != "" {
		g.log.Info(done, append(broker.ViewAttrs(v), "by", by)...)
	}
	return taskProto(v, true), nil
}

// UpdateTask changes a task that waits.
func (g producers) UpdateTask(ctx context.Context, r *pawlv1.UpdateTaskRequest) (*pawlv1.UpdateTaskResponse, error) {
	id, err := idOf(r.GetTaskId())
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
		saw(ctx, at)
		if err != nil {
			return nil, err
		}
		if err := checkData("payload", *edit.Payload, v.ContentType, g.limits); err != nil {
			return nil, err
		}
	}
	v, at, err := g.broker.Update(ctx, by, ns, id, edit)
	saw(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.UpdateTaskResponse{Task: taskProto(v, true)}, nil
}

func editOf(r *pawlv1.UpdateTaskRequest) (e broker.Edit, err error) {
	if r.GetRunAt() != nil {
		at, err := timeOf("run_at", r.GetRunAt())
		if err != nil {
			return e, err
		}
		if at.Year() < 1970 || at.Year() > 9999 {
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
		return e, task.Invalid("run_at", "is needed, or priority, payload or max_attempts: nothing would change")
	}
	e.IfETag = r.GetIfEtag()
	return e, nil
}

// ListTasks reads a page of tasks, newest first.
func (g producers) ListTasks(ctx context.Context, r *pawlv1.ListTasksRequest) (*pawlv1.ListTasksResponse, error) {
	f, err := filterOf(r.GetFilter(), g.limits)
	if err != nil {
		return nil, err
	}
	p, err := g.list(ctx, f, r.GetCursor(), r.GetLimit(), r.GetWithPayload())
	return &pawlv1.ListTasksResponse{Items: p.items, NextCursor: p.next, Searched: p.searched}, err
}
