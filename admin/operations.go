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

// OperationSpec is one thing to be done with many tasks, in the background: docs/bulk-operations.md has the rules.
type OperationSpec struct {
	Action   Action
	Filter   *Filter           // &Filter{} means every task that the action is for
	ToQueue  string            // of ActionMove
	Priority pawltype.Priority // of ActionSetPriority
	Max      int64             // tasks at most; 0: all that match
	Rate     float64           // tasks a second at most; 0: as fast as goes without holding up others
	Canary   int64             // it pauses by itself after so many; 0: it does not
	Reason   string            // beside who starts it
}

// Action is what an operation does with each task that its filter selects.
type Action string

// The actions, and the states of the tasks that each is for: all of them if the filter names none.
const (
	ActionReplay      Action = "replay"       // retrying, discarded, dead, poisoned, cancelled; if the filter names none: dead
	ActionCancel      Action = "cancel"       // scheduled, ready, claimed, retrying
	ActionDiscard     Action = "discard"      // scheduled, ready, retrying, dead, poisoned; dead letters are archived first
	ActionMove        Action = "move"         // scheduled, ready, retrying
	ActionSetPriority Action = "set_priority" // scheduled, ready, retrying
	ActionRunNow      Action = "run_now"      // scheduled, retrying
)

// OperationState is where an operation is in its life.
type OperationState string

// The states of operations.
const (
	OperationRunning OperationState = "running"
	OperationPaused  OperationState = "paused"
	OperationDone    OperationState = "done"
	OperationAborted OperationState = "aborted"
	OperationFailed  OperationState = "failed"
)

// Ended reports whether the operation has come to an end.
func (s OperationState) Ended() bool {
	return s == OperationDone || s == OperationAborted || s == OperationFailed
}

// Operation is everything the broker knows of an operation.
type Operation struct {
	ID string
	OperationSpec
	State         OperationState
	Stopping      OperationState // what it becomes when the step is over that is under way; "": it goes on
	Author        *Actor
	CreatedAt     time.Time // it is for the tasks that were there then
	PausedAt      time.Time
	EndedAt       time.Time
	StopReason    string // it is paused, was aborted or has failed
	StoppedBy     *Actor // nil: the operation itself
	ResumedBy     *Actor // last; nil: nobody has
	Counts        OperationCounts
	WaitsFor      string       // why it does not get on
	CurrentStates *StateCounts // nil: not asked for
}

// StateCounts counts the tasks that an operation has changed, and that no other has since, by how they stand now.
type StateCounts struct {
	States       map[pawltype.State]int64 // without those in which there are none
	IsLowerBound bool                     // counting them all would have taken too long
}

// OperationCounts are what an operation has done so far.
type OperationCounts struct {
	Total             int64 // tasks that matched before the start
	TotalIsLowerBound bool  // counting them all would have taken too long
	Matched           int64 // done, skipped, failed, or on their way to another queue
	Done              int64
	Skipped           map[string]int64 // by reason: changed, unique_key_taken, moved, unchanged, queue_gone, tied
	Failed            int64
	Errors            []FailedTask // the first
}

// SkippedTasks is how many were skipped, for whatever reason.
func (c *OperationCounts) SkippedTasks() (n int64) {
	for _, count := range c.Skipped {
		n += count
	}
	return n
}

// FailedTask is a task with which nothing could be done.
type FailedTask struct{ TaskID, Message string }

// Actor is who did something, as far as is known.
type Actor struct{ Actor, Address, Face, Reason string }

// OperationPreview is what an operation would be for.
type OperationPreview struct {
	Matched      int64
	IsLowerBound bool             // counting them all would have taken too long
	Sample       []*pawltype.Task // some of the newest, without payloads
}

// Start starts an operation, which goes on by itself. At most 10 of a namespace can run or be paused: one more is
// ErrWrongState.
func (a Operations) Start(ctx context.Context, o OperationSpec) (*Operation, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := a.request(ctx, o, &pawlv1.StartOperationRequest{Reason: o.Reason, RequestId: request.String()})
	if err != nil {
		return nil, fmt.Errorf("start operation: %w", err)
	}
	return operationInfoOf(resp.GetOperation()), nil
}

// Preview tells what Start would be for, and changes nothing.
func (a Operations) Preview(ctx context.Context, o OperationSpec) (*OperationPreview, error) {
	resp, err := a.request(ctx, o, &pawlv1.StartOperationRequest{DryRun: true})
	if err != nil {
		return nil, fmt.Errorf("try operation: %w", err)
	}
	p := resp.GetPreview()
	return &OperationPreview{Matched: p.GetMatched(), IsLowerBound: p.GetIsLowerBound(), Sample: convert.Tasks(p.GetSample())}, nil
}

func (a Operations) request(ctx context.Context, o OperationSpec, req *pawlv1.StartOperationRequest) (*pawlv1.StartOperationResponse, error) {
	action, err := convert.Number[pawlv1.Action]("action", o.Action, actionWords, "one that is known")
	if err != nil {
		return nil, err
	}
	priority, err := convert.PriorityProto(o.Priority)
	if err != nil {
		return nil, err
	}
	if o.Filter == nil {
		return nil, convert.Invalid("filter", "is nil; &Filter{} means every task that the action is for")
	}
	f, err := filterProto(*o.Filter)
	if err != nil {
		return nil, err
	}
	req.Spec = &pawlv1.OperationSpec{Action: action, Filter: f, ToQueue: o.ToQueue, Priority: priority,
		Max: o.Max, Rate: o.Rate, Canary: o.Canary}
	return operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).StartOperation, req)
}

// Get gives one operation, or ErrNotFound.
func (a Operations) Get(ctx context.Context, id string) (*Operation, error) {
	return a.read(ctx, id, 0)
}

// GetWithStates is Operation, and counts how the tasks stand now that the operation has changed.
func (a Operations) GetWithStates(ctx context.Context, id string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).GetOperation, &pawlv1.GetOperationRequest{OperationId: id, Became: true})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

func (a Operations) read(ctx context.Context, id string, wait time.Duration) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).GetOperation, &pawlv1.GetOperationRequest{OperationId: id, Wait: convert.Duration(wait)})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

// operationLook is how often Wait tells how far an operation is.
const operationLook = time.Second

// Wait waits until an operation does not run any more, since it has ended or is paused, or ctx ends. It calls progress, if
// that is not nil, about every second, and with what it returns.
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

// List goes over all operations, newest first. Those that have ended are kept for 30 days, at most 1,000.
func (a Operations) List(ctx context.Context) iter.Seq2[*Operation, error] {
	return convert.Pages(func(cursor string) (pawltype.Page[*Operation], error) {
		return a.ListPage(ctx, pawltype.PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the operations.
func (a Operations) ListPage(ctx context.Context, page pawltype.PageRequest) (pawltype.Page[*Operation], error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).ListOperations, &pawlv1.ListOperationsRequest{Limit: convert.Int32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return pawltype.Page[*Operation]{}, fmt.Errorf("list operations: %w", err)
	}
	return convert.Page(resp, operationInfoOf), nil
}

// Pause lets an operation rest, once the step is over that is under way: the answer may still say that it is stopping.
func (a Operations) Pause(ctx context.Context, id, reason string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).PauseOperation, &pawlv1.PauseOperationRequest{OperationId: id, Reason: reason})
	return operationAnswer("pause operation", id, resp.GetOperation(), err)
}

// Resume lets an operation go on where it was.
func (a Operations) Resume(ctx context.Context, id, reason string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).ResumeOperation, &pawlv1.ResumeOperationRequest{OperationId: id, Reason: reason})
	return operationAnswer("resume operation", id, resp.GetOperation(), err)
}

// Abort ends an operation, once the step is over that is under way. What is done stays done.
func (a Operations) Abort(ctx context.Context, id, reason string) (*Operation, error) {
	resp, err := operate(ctx, a.calls, true, pawlv1.NewOperationServiceClient(a.rpc).AbortOperation, &pawlv1.AbortOperationRequest{OperationId: id, Reason: reason})
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
	o := &Operation{ID: p.GetOperationId(), State: operationStateWords[int32(p.GetState())], Stopping: operationStateWords[int32(p.GetStopping())], Author: operatorOf(p.GetAuthor()),
		OperationSpec: OperationSpec{Action: actionWords[int32(s.GetAction())], Filter: filterOf(s.GetFilter()), ToQueue: s.GetToQueue(), Priority: convert.Priority(s.GetPriority()),
			Max: s.GetMax(), Rate: s.GetRate(), Canary: s.GetCanary(), Reason: p.GetAuthor().GetReason()},
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
	if b := p.GetBecame(); b != nil {
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
	return &Actor{p.GetActor(), p.GetAddress(), p.GetFace(), p.GetReason()}
}
