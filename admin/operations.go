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

// OperationSpec describes a bulk operation: one action, applied to many tasks in the background. See docs/bulk-operations.md.
type OperationSpec struct {
	Action   Action
	Filter   *Filter           // AllTasks() means every task that the action applies to
	ToQueue  string            // ActionMove only
	Priority pawltype.Priority // ActionSetPriority only
	Max      int64             // maximum number of tasks; 0: all that match
	Rate     float64           // tasks per second at most; 0: as fast as possible without delaying other work
	Canary   int64             // the operation pauses itself after this many tasks; 0: it does not
	Reason   string            // recorded with the actor
}

// Action is what an operation does to every task that its filter selects.
type Action string

// The actions, with the task states that each applies to: all of these if the filter names none.
const (
	ActionReplay      Action = "replay"       // retrying, discarded, dead, poisoned, cancelled; if the filter names none: dead
	ActionCancel      Action = "cancel"       // scheduled, ready, claimed, retrying
	ActionDiscard     Action = "discard"      // scheduled, ready, retrying, dead, poisoned; dead letters are archived first
	ActionMove        Action = "move"         // scheduled, ready, retrying
	ActionSetPriority Action = "set_priority" // scheduled, ready, retrying
	ActionRunNow      Action = "run_now"      // scheduled, retrying
)

// OperationState is the state of an operation.
type OperationState string

// The states of operations.
const (
	OperationRunning OperationState = "running"
	OperationPaused  OperationState = "paused"
	OperationDone    OperationState = "done"
	OperationAborted OperationState = "aborted"
	OperationFailed  OperationState = "failed"
)

// Ended reports whether the operation has ended.
func (s OperationState) Ended() bool {
	return s == OperationDone || s == OperationAborted || s == OperationFailed
}

// Operation is everything the broker knows about an operation.
type Operation struct {
	ID string
	OperationSpec
	State         OperationState
	Stopping      OperationState // the state it enters when the steps under way are over; "": it continues
	Author        *Actor
	CreatedAt     time.Time // only tasks that existed then are affected
	PausedAt      time.Time
	EndedAt       time.Time
	StopReason    string // why it was paused or aborted, or why it failed
	StoppedBy     *Actor // nil: the operation itself
	ResumedBy     *Actor // the last time; nil: never resumed
	Counts        OperationCounts
	WaitsFor      string       // why it makes no progress
	CurrentStates *StateCounts // nil: not requested
}

// StateCounts counts the tasks an operation has changed by their current state, without those that a later operation changed again.
type StateCounts struct {
	States       map[pawltype.State]int64 // states without tasks are left out
	IsLowerBound bool                     // counting all of them would have taken too long
}

// OperationCounts counts what an operation has done so far.
type OperationCounts struct {
	Total             int64 // tasks that matched before the start
	TotalIsLowerBound bool  // counting all of them would have taken too long
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

// FailedTask is a task to which the action could not be applied.
type FailedTask struct{ TaskID, Message string }

// Actor identifies who did something, as far as known.
type Actor struct{ Actor, Address, Interface, Reason string }

// OperationPreview describes the tasks an operation would affect.
type OperationPreview struct {
	Matched      int64
	IsLowerBound bool             // counting all of them would have taken too long
	Sample       []*pawltype.Task // some of the newest, without payloads
}

// Start starts an operation, which runs in the background. At most 10 operations of a namespace can be running or paused; one more is
// refused with ErrWrongState.
func (a Operations) Start(ctx context.Context, o OperationSpec) (*Operation, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := a.request(ctx, o, &pawlv1.StartOperationRequest{Reason: o.Reason, RequestId: new(request.String())})
	if err != nil {
		return nil, fmt.Errorf("start operation: %w", err)
	}
	return operationInfoOf(resp.GetOperation()), nil
}

// Preview returns what Start would affect, without changing anything.
func (a Operations) Preview(ctx context.Context, o OperationSpec) (*OperationPreview, error) {
	resp, err := a.request(ctx, o, &pawlv1.StartOperationRequest{DryRun: true})
	if err != nil {
		return nil, fmt.Errorf("try operation: %w", err)
	}
	p := resp.GetPreview()
	return &OperationPreview{Matched: p.GetMatched(), IsLowerBound: p.GetIsLowerBound(), Sample: convert.Tasks(p.GetSample())}, nil
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
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).GetOperation, &pawlv1.GetOperationRequest{OperationId: id,
		CurrentStates: true})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

func (a Operations) read(ctx context.Context, id string, wait time.Duration) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).GetOperation, &pawlv1.GetOperationRequest{OperationId: id,
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
	if err != nil {
		return pawltype.Page[*Operation]{}, fmt.Errorf("list operations: %w", err)
	}
	return convert.Page(resp, operationInfoOf), nil
}

// Pause pauses an operation when its steps under way are over; until then, the returned operation has Stopping set.
func (a Operations) Pause(ctx context.Context, id, reason string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).PauseOperation, &pawlv1.PauseOperationRequest{
		OperationId: id, Reason: reason})
	return operationAnswer("pause operation", id, resp.GetOperation(), err)
}

// Resume lets a paused operation continue where it stopped.
func (a Operations) Resume(ctx context.Context, id, reason string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).ResumeOperation, &pawlv1.ResumeOperationRequest{
		OperationId: id, Reason: reason})
	return operationAnswer("resume operation", id, resp.GetOperation(), err)
}

// Abort ends an operation when its steps under way are over. What it has done is not undone.
func (a Operations) Abort(ctx context.Context, id, reason string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).AbortOperation, &pawlv1.AbortOperationRequest{
		OperationId: id, Reason: reason})
	return operationAnswer("abort operation", id, resp.GetOperation(), err)
}

func operationAnswer(what, id string, p *pawlv1.Operation, err error) (*Operation, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, id, err)
	}
	return operationInfoOf(p), nil
}

var (
	actionWords         = convert.Words[Action](pawlv1.Action_name, "ACTION_")
	operationStateWords = convert.Words[OperationState](pawlv1.OperationState_name, "OPERATION_STATE_")
)

func operationInfoOf(p *pawlv1.Operation) *Operation {
	s := p.GetSpec()
	o := &Operation{ID: p.GetOperationId(), State: operationStateWords[int32(p.GetState())],
		Stopping: operationStateWords[int32(p.GetStopping())], Author: operatorOf(p.GetAuthor()), OperationSpec: OperationSpec{
			Action: actionWords[int32(s.GetAction())], Filter: filterOf(s.GetFilter()), ToQueue: s.GetToQueue(),
			Priority: convert.Priority(s.GetPriority()), Max: s.GetMax(), Rate: s.GetRate(), Canary: s.GetCanary(),
			Reason: p.GetAuthor().GetReason()},
		CreatedAt: convert.Time(p.GetCreatedAt()), PausedAt: convert.Time(p.GetPausedAt()), EndedAt: convert.Time(p.GetEndedAt()),
		StopReason: p.GetWhy(), StoppedBy: operatorOf(p.GetStoppedBy()), ResumedBy: operatorOf(p.GetResumedBy()), WaitsFor: p.GetWaitsFor(),
		Counts: OperationCounts{Total: p.GetTotal(), TotalIsLowerBound: p.GetTotalIsLowerBound(), Matched: p.GetMatched(), Done: p.GetDone(),
			Failed: p.GetFailed()}}
	for _, k := range p.GetSkippedReasons() {
		if o.Counts.Skipped == nil {
			o.Counts.Skipped = map[string]int64{}
		}
		o.Counts.Skipped[k.GetReason()] = k.GetCount()
	}
	for _, e := range p.GetErrors() {
		o.Counts.Errors = append(o.Counts.Errors, FailedTask{e.GetTaskId(), e.GetMessage()})
	}
	if b := p.GetCurrentStates(); b != nil {
		o.CurrentStates = &StateCounts{States: map[pawltype.State]int64{}, IsLowerBound: b.GetIsLowerBound()}
		for _, s := range b.GetStates() {
			o.CurrentStates.States[convert.State(s.GetState())] = s.GetCount()
		}
	}
	return o
}

func operatorOf(p *pawlv1.Operator) *Actor {
	if p == nil {
		return nil
	}
	return &Actor{p.GetActor(), p.GetAddress(), p.GetInterface(), p.GetReason()}
}
