package admin

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Ended reports whether the operation has ended.
func (s OperationState) Ended() bool {
	return s == OperationDone || s == OperationAborted || s == OperationFailed
}

// OperationCounts counts what an operation has done so far.
type OperationCounts struct {
	Total             int64 // tasks that matched before the start
	TotalIsLowerBound bool  // counting all of them would have taken too long, or shards did not answer
	Matched           int64 // done, skipped, failed, or moving to another queue
	Done              int64
	Skipped           map[string]int64 // by reason: changed, unique_key_taken, moved, unchanged, queue_gone, in_workflow
	Failed            int64
	Errors            []FailedTask // the first ones
}

// SkippedTasks returns how many tasks were skipped, for any reason.
func (c *OperationCounts) SkippedTasks() (n int64) {
	for _, count := range c.Skipped {
		n += count
	}
	return n
}

// Start starts an operation, which runs in the background. At most 10 operations of a namespace can be running or paused; one more is
// refused with ErrWrongState.
func (a Operations) Start(ctx context.Context, o OperationSpec) (*Operation, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := a.request(ctx, o, &pawlv1.StartOperationRequest{RequestId: new(request.String())})
	return answer(operationOf, resp.GetOperation(), err, "start operation")
}

// Preview returns what Start would affect, without changing anything.
func (a Operations) Preview(ctx context.Context, o OperationSpec) (*OperationPreview, error) {
	resp, err := a.request(ctx, o, &pawlv1.StartOperationRequest{DryRun: true})
	return answer(operationPreviewOf, resp.GetPreview(), err, "try operation")
}

func (a Operations) request(ctx context.Context, o OperationSpec, req *pawlv1.StartOperationRequest) (*pawlv1.StartOperationResponse,
	error) {
	action, err := convert.Number[pawlv1.Action]("action", o.Action, actionWords, "a known action")
	if err != nil {
		return nil, err
	}
	priority, err := convert.PriorityProto(o.Priority)
	if err != nil {
		return nil, err
	}
	if o.Filter == nil {
		return nil, convert.Invalid("filter", "is nil; AllTasks() means every task that the action applies to")
	}
	f, err := changeProto(o.Filter)
	if err != nil {
		return nil, err
	}
	req.Spec = &pawlv1.OperationSpec{Action: action, Filter: f, ToQueue: convert.Text(o.ToQueue), Priority: priority,
		Max: o.Max, Rate: o.Rate, Canary: o.Canary}
	return operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).StartOperation, req)
}

// Get returns an operation, or ErrNotFound if there is none.
func (a Operations) Get(ctx context.Context, id string) (*Operation, error) {
	return a.read(ctx, id, 0)
}

// GetWithStates is Get, but also counts the changed tasks by their current state.
func (a Operations) GetWithStates(ctx context.Context, id string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).GetOperation,
		&pawlv1.GetOperationRequest{OperationId: id,
			CurrentStates: true})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

func (a Operations) read(ctx context.Context, id string, wait time.Duration) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).GetOperation,
		&pawlv1.GetOperationRequest{OperationId: id,
			Wait: convert.Duration(wait)})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

// operationLook is how often Wait reports progress.
const operationLook = time.Second

// Wait waits until an operation is no longer running, because it has ended or is paused, or until ctx ends. It calls progress, if not nil,
// about every second, and with the operation it returns.
func (a Operations) Wait(ctx context.Context, id string, progress func(*Operation)) (*Operation, error) {
	wait := rpc.WaitStep
	if progress != nil {
		wait = operationLook
	}
	for try := 0; ; try++ {
		start := time.Now()
		o, err := a.read(ctx, id, wait)
		if err != nil {
			return nil, err
		}
		if progress != nil {
			progress(o)
		}
		if o.State != OperationRunning {
			return o, nil
		}
		if time.Since(start) >= wait {
			try = 0
		} else if err := a.rpc.Pause(ctx, try, rpc.ErrWaitCutShort); err != nil {
			return nil, fmt.Errorf("operation %q: %w", id, err)
		}
	}
}

// List iterates over all operations, newest first. Ended operations are kept for 30 days, at most 1,000 of them.
func (a Operations) List(ctx context.Context) iter.Seq2[*Operation, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Operation], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage returns one page of operations.
func (a Operations) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*Operation], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).ListOperations, &pawlv1.ListOperationsRequest{
		Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	return pageOf(operationOf, resp, err, "list operations")
}

// Pause pauses an operation when its steps under way are over; until then, the returned operation has Stopping set.
func (a Operations) Pause(ctx context.Context, id string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).PauseOperation, &pawlv1.PauseOperationRequest{
		OperationId: id})
	return operationAnswer("pause operation", id, resp.GetOperation(), err)
}

// Resume lets a paused operation continue where it stopped.
func (a Operations) Resume(ctx context.Context, id string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).ResumeOperation, &pawlv1.ResumeOperationRequest{
		OperationId: id})
	return operationAnswer("resume operation", id, resp.GetOperation(), err)
}

// Abort ends an operation when its steps under way are over. What it has done is not undone.
func (a Operations) Abort(ctx context.Context, id string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).AbortOperation, &pawlv1.AbortOperationRequest{
		OperationId: id})
	return operationAnswer("abort operation", id, resp.GetOperation(), err)
}

func operationAnswer(what, id string, p *pawlv1.Operation, err error) (*Operation, error) {
	return answer(operationOf, p, err, "%s %q", what, id)
}

func operationCountsOf(p *pawlv1.Operation) OperationCounts {
	c := OperationCounts{Total: p.GetTotal(), TotalIsLowerBound: p.GetTotalIsLowerBound(), Matched: p.GetMatched(), Done: p.GetDone(),
		Failed: p.GetFailed(), Errors: each(p.GetErrors(), failedTaskOf)}
	for _, k := range p.GetSkippedReasons() {
		if c.Skipped == nil {
			c.Skipped = map[string]int64{}
		}
		c.Skipped[k.GetReason()] = k.GetCount()
	}
	return c
}

func statesOf(list []*pawlv1.StateCount) map[pawltype.State]int64 {
	counts := make(map[pawltype.State]int64, len(list))
	for _, s := range list {
		counts[convert.State(s.GetState())] = s.GetCount()
	}
	return counts
}
