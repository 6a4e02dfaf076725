package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
)

// TaskUpdate says what Update changes in a task. Zero fields are left unchanged.
type TaskUpdate struct {
	RunAt       time.Time
	Priority    pawltype.Priority
	Payload     any // encoded as JSON; nil: unchanged
	MaxAttempts int
	// IfETag is the ETag of the task on which the change is based; "": update unconditionally.
	IfETag string
}

// StaleTask is a task as one replica of its shard has it.
type StaleTask struct {
	*pawltype.Task
	Age time.Duration // upper bound on how old the data is
}

// GetStale returns a task from any replica of its shard, which may lag behind or be cut off from the others. GetStale works even while the
// shard has no leader.
func (a Tasks) GetStale(ctx context.Context, id string) (*StaleTask, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewProducerServiceClient(a.rpc).GetTask, &pawlv1.GetTaskRequest{TaskId: id,
		Consistency: pawlv1.Consistency_CONSISTENCY_STALE})
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", id, err)
	}
	return &StaleTask{convert.Task(resp.GetTask()), resp.GetAge().AsDuration()}, nil
}

// Update changes a task that is not claimed and has not ended; for any other task it returns ErrWrongState. If IfETag is set and the task
// has since been changed, Update returns ErrConflict unless the task already has the requested values.
func (a Tasks) Update(ctx context.Context, id string, change TaskUpdate) (*pawltype.Task, error) {
	req := &pawlv1.UpdateTaskRequest{TaskId: id, RunAt: convert.Timestamp(change.RunAt), MaxAttempts: convert.Int32(change.MaxAttempts),
		IfEtag: convert.Text(change.IfETag)}
	var err error
	if req.Priority, err = convert.PriorityProto(change.Priority); err != nil {
		return nil, fmt.Errorf("update %q: %w", id, err)
	}
	if change.Payload != nil {
		payload, err := json.Marshal(change.Payload)
		if err != nil {
			return nil, fmt.Errorf("update %q: payload: %w", id, err)
		}
		req.Payload = payload
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewProducerServiceClient(a.rpc).UpdateTask, req)
	if err != nil {
		return nil, fmt.Errorf("update %q: %w", id, err)
	}
	return convert.Task(resp.GetTask()), nil
}

// List iterates over the tasks that match, newest first, without their payloads. It reads page by page and stops at the first error.
func (a Tasks) List(ctx context.Context, filter Filter) iter.Seq2[*pawltype.Task, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*pawltype.Task], error) {
		return a.ListPage(ctx, filter, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of the tasks that match, newest first.
func (a Tasks) ListPage(ctx context.Context, filter Filter, page pawltype.PageRequest) (pawltype.Page[*pawltype.Task], error) {
	f, err := filterProto(filter)
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list tasks: %w", err)
	}
	resp, err := operate(ctx, a.calls, true, pawlv1.NewProducerServiceClient(a.rpc).ListTasks, &pawlv1.ListTasksRequest{
		Filter: f, Limit: convert.Int32(page.Limit), Cursor: page.Cursor, WithPayload: page.WithPayload,
	})
	if err != nil {
		return pawltype.Page[*pawltype.Task]{}, fmt.Errorf("list tasks: %w", err)
	}
	return convert.Page(resp, convert.Task), nil
}

// Explain returns why a task is not running and what would change that. It works even while the task's shard has no leader.
func (a Tasks) Explain(ctx context.Context, id string) (*Explanation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewProducerServiceClient(a.rpc).ExplainTask, &pawlv1.ExplainTaskRequest{TaskId: id})
	return answer(explanationOf, resp, err, "explain %q", id)
}

// WithStates returns a copy whose Retry and Discard change a task only if it is in one of the states; without any, in any state. In
// another one they return ErrWrongState, with it in Error.State: the task may have changed since the caller saw it, also by an earlier
// call whose answer was lost. The other calls ignore the states.
func (a Tasks) WithStates(states ...pawltype.State) Tasks {
	a.states = slices.Clone(states)
	return a
}

// Retry makes a retrying or ended task ready now, with a fresh set of attempts if it had ended. For a succeeded task it
// returns ErrWrongState.
func (a Tasks) Retry(ctx context.Context, id string) (*pawltype.Task, error) {
	states, err := convert.StatesProto("states", a.states)
	if err != nil {
		return nil, fmt.Errorf("retry %q: %w", id, err)
	}
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).RetryTask, &pawlv1.RetryTaskRequest{
		TaskId: id, States: states})
	return taskAnswer("retry", id, resp.GetTask(), err)
}

// RunNow makes a scheduled or retrying task ready now.
func (a Tasks) RunNow(ctx context.Context, id string) (*pawltype.Task, error) {
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).RunTaskNow, &pawlv1.RunTaskNowRequest{TaskId: id})
	return taskAnswer("run", id, resp.GetTask(), err)
}

// Discard ends a waiting task, or deletes a dead letter.
func (a Tasks) Discard(ctx context.Context, id string) (*pawltype.Task, error) {
	states, err := convert.StatesProto("states", a.states)
	if err != nil {
		return nil, fmt.Errorf("discard %q: %w", id, err)
	}
	resp, err := operate(ctx, a.calls, false, pawlv1.NewOperatorServiceClient(a.rpc).DiscardTask, &pawlv1.DiscardTaskRequest{
		TaskId: id, States: states})
	return taskAnswer("discard", id, resp.GetTask(), err)
}

func taskAnswer(verb, id string, p *pawlv1.Task, err error) (*pawltype.Task, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", verb, id, err)
	}
	return convert.Task(p), nil
}

// Cancel ends a task that has not ended yet; the context of a running handler ends with pawl.ErrCancelled. It is idempotent:
// cancelling a cancelled task returns it as the first call did. If the task has ended otherwise, the error is ErrWrongState.
func (a Tasks) Cancel(ctx context.Context, id string) (*pawltype.Task, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewProducerServiceClient(a.rpc).CancelTask, &pawlv1.CancelTaskRequest{TaskId: id})
	return taskAnswer("cancel", id, resp.GetTask(), err)
}
