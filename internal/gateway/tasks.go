package gateway

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/broker/tasklog"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/tasktrace"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// GetTask returns a task, waiting for its end if asked to.
func (g *producerService) GetTask(ctx context.Context, r *pawlv1.GetTaskRequest) (*pawlv1.GetTaskResponse, error) {
	id, err := apiproto.IDOf("task_id", r.GetTaskId())
	if err != nil {
		return nil, err
	}
	wait, err := apiproto.WaitOf(r.GetWait())
	if err != nil {
		return nil, err
	}
	callinfo.Waits(ctx, wait)
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
	v, at, err := g.broker.Task(ctx, callinfo.Namespace(ctx), id, wait)
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetTaskResponse{Task: apiproto.TaskProto(v, true)}, nil
}

// peek reads a task from any replica.
func (g *producerService) peek(ctx context.Context, id task.ID) (*pawlv1.GetTaskResponse, error) {
	v, at, age, err := g.broker.Peek(ctx, callinfo.Namespace(ctx), id)
	callinfo.Note(ctx, at)
	if err != nil {
		return nil, err
	}
	return &pawlv1.GetTaskResponse{Task: apiproto.TaskProto(v, true), Age: durationpb.New(age)}, nil
}

// CancelTask cancels a task that has not ended.
func (g *producerService) CancelTask(ctx context.Context, r *pawlv1.CancelTaskRequest) (*pawlv1.CancelTaskResponse, error) {
	t, err := g.operate(ctx, broker.Cancel, "task cancelled", r.GetTaskId(), r.GetReason())
	return &pawlv1.CancelTaskResponse{Task: t}, err
}

// taskCommands runs operators' verbs on single tasks.
type taskCommands struct {
	spans tasktrace.Spans
	verbs verb.Runner
	log   *slog.Logger
}

// runOnTask runs a verb on one task, which must be in one of the states if there are any.
func (g taskCommands) runOnTask(ctx context.Context, by task.Author, verb broker.TaskVerb, id task.ID, in ...task.State) (*broker.View,
	error) {
	out, err := broker.OperateTask.Call(ctx, g.verbs, broker.TaskCommand{Verb: verb, Authored: broker.Authored{By: by},
		OnTask: broker.OnTask{Namespace: callinfo.Namespace(ctx), ID: id}, States: in})
	return out.View, err
}

// operate runs a verb on one task, and logs it if a reason is given. The task must be in one of the states if there are any.
func (g taskCommands) operate(ctx context.Context, verb broker.TaskVerb, done, taskID, reason string, in ...pawlv1.State) (*pawlv1.Task,
	error) {
	id, err := apiproto.IDOf("task_id", taskID)
	if err != nil {
		return nil, err
	}
	states, err := apiproto.StatesOf("states", in)
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, reason)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	v, err := g.runOnTask(ctx, by, verb, id, states...)
	if err != nil {
		return nil, err
	}
	if verb == broker.Cancel {
		g.spans.Cancel(ctx, v, began)
	}
	if by.Reason != "" {
		g.log.Info(done, append(tasklog.OfView(v), "by", by)...)
	}
	return apiproto.TaskProto(v, true), nil
}

// UpdateTask changes a waiting task.
func (g *producerService) UpdateTask(ctx context.Context, r *pawlv1.UpdateTaskRequest) (*pawlv1.UpdateTaskResponse, error) {
	id, err := apiproto.IDOf("task_id", r.GetTaskId())
	if err != nil {
		return nil, err
	}
	edit, err := apiproto.EditOf(r)
	if err != nil {
		return nil, err
	}
	by, err := callinfo.Author(ctx, "")
	if err != nil {
		return nil, err
	}
	ns := callinfo.Namespace(ctx)
	if edit.Payload != nil {
		v, at, err := g.broker.Task(ctx, ns, id, 0)
		callinfo.Note(ctx, at)
		if err != nil {
			return nil, err
		}
		if err := apiproto.CheckData("payload", *edit.Payload, v.ContentType, g.limits); err != nil {
			return nil, err
		}
	}
	out, err := broker.OperateTask.Call(ctx, g.verbs, broker.TaskCommand{Verb: broker.Update, Authored: broker.Authored{By: by},
		OnTask: broker.OnTask{Namespace: ns, ID: id}, Edit: edit})
	if err != nil {
		return nil, err
	}
	return &pawlv1.UpdateTaskResponse{Task: apiproto.TaskProto(out.View, true)}, nil
}

// ListTasks returns a page of tasks, newest first.
func (g *producerService) ListTasks(ctx context.Context, r *pawlv1.ListTasksRequest) (*pawlv1.ListTasksResponse, error) {
	f, err := apiproto.FilterOf(r.GetFilter(), g.limits)
	if err != nil {
		return nil, err
	}
	p, err := g.queues.List(ctx, f, r.GetCursor(), r.GetLimit(), r.GetWithPayload())
	return &pawlv1.ListTasksResponse{Items: p.Items, NextCursor: p.Next, Searched: p.Searched, Missing: p.Missing}, err
}
