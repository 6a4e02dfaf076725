package pawl

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Operation is one thing to be done with many tasks, in the background: docs/operations.md has the rules.
type Operation struct {
	Action   Action
	Filter   *Filter  // &Filter{} means every task that the action is for
	ToQueue  string   // of ActionMove
	Priority Priority // of ActionSetPriority
	Max      int64    // tasks at most; 0: all that match
	Rate     float64  // tasks a second at most; 0: as fast as goes without holding up others
	Canary   int64    // it pauses by itself after so many; 0: it does not
	Reason   string   // beside who starts it
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

// OperationInfo is everything the broker knows of an operation.
type OperationInfo struct {
	ID string
	Operation
	State     OperationState
	Stopping  OperationState // what it becomes when the step is over that is under way; "": it goes on
	Author    *Operator
	CreatedAt time.Time // it is for the tasks that were there then
	PausedAt  time.Time
	EndedAt   time.Time
	Why       string    // it is paused, was aborted or has failed
	StoppedBy *Operator // nil: the operation itself
	ResumedBy *Operator // last; nil: nobody has
	Counts    OperationCounts
	WaitsFor  string  // why it does not get on
	Became    *Became // nil: not asked for
}

// Became counts the tasks that an operation has changed, and that no other has since, by how they stand now.
type Became struct {
	States       map[State]int64 // without those in which there are none
	IsLowerBound bool            // counting them all would have taken too long
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

// Operator is who did something, as far as is known.
type Operator struct{ Actor, Address, Face, Reason string }

// OperationPreview is what an operation would be for.
type OperationPreview struct {
	Matched      int64
	IsLowerBound bool        // counting them all would have taken too long
	Sample       []*TaskInfo // some of the newest, without payloads
}

// StartOperation starts an operation, which goes on by itself. At most 10 of a namespace can run or be paused: one more is
// ErrWrongState.
func (a Admin) StartOperation(ctx context.Context, o Operation) (*OperationInfo, error) {
	request, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("request id: %w", err)
	}
	resp, err := a.operation(ctx, o, &pawlv1.StartOperationRequest{Reason: o.Reason, RequestId: request.String()})
	if err != nil {
		return nil, fmt.Errorf("start operation: %w", err)
	}
	return operationInfoOf(resp.GetOperation()), nil
}

// TryOperation tells what StartOperation would be for, and changes nothing.
func (a Admin) TryOperation(ctx context.Context, o Operation) (*OperationPreview, error) {
	resp, err := a.operation(ctx, o, &pawlv1.StartOperationRequest{DryRun: true})
	if err != nil {
		return nil, fmt.Errorf("try operation: %w", err)
	}
	p := resp.GetPreview()
	return &OperationPreview{Matched: p.GetMatched(), IsLowerBound: p.GetIsLowerBound(), Sample: infosOf(p.GetSample())}, nil
}

func (a Admin) operation(ctx context.Context, o Operation, req *pawlv1.StartOperationRequest) (*pawlv1.StartOperationResponse, error) {
	action, err := numberOf[pawlv1.Action]("action", o.Action, actionWords, "one that is known")
	if err != nil {
		return nil, err
	}
	priority, err := o.Priority.proto()
	if err != nil {
		return nil, err
	}
	if o.Filter == nil {
		return nil, invalid("filter", "is nil; &Filter{} means every task that the action is for")
	}
	f, err := o.Filter.proto()
	if err != nil {
		return nil, err
	}
	req.Spec = &pawlv1.OperationSpec{Action: action, Filter: f, ToQueue: o.ToQueue, Priority: priority,
		Max: o.Max, Rate: o.Rate, Canary: o.Canary}
	return operate(ctx, a, true, a.client.mass.StartOperation, req)
}

// Operation gives one operation, or ErrNotFound.
func (a Admin) Operation(ctx context.Context, id string) (*OperationInfo, error) {
	return a.readOperation(ctx, id, 0)
}

// OperationBecame is Operation, and counts how the tasks stand now that the operation has changed.
func (a Admin) OperationBecame(ctx context.Context, id string) (*OperationInfo, error) {
	resp, err := operate(ctx, a, true, a.client.mass.GetOperation, &pawlv1.GetOperationRequest{OperationId: id, Became: true})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

func (a Admin) readOperation(ctx context.Context, id string, wait time.Duration) (*OperationInfo, error) {
	resp, err := operate(ctx, a, true, a.client.mass.GetOperation, &pawlv1.GetOperationRequest{OperationId: id, Wait: durationOrNil(wait)})
	return operationAnswer("operation", id, resp.GetOperation(), err)
}

// operationLook is how often WaitOperation tells how far an operation is.
const operationLook = time.Second

// WaitOperation waits until an operation does not run any more, since it has ended or is paused, or ctx ends. It calls progress, if
// that is not nil, about every second, and with what it returns.
func (a Admin) WaitOperation(ctx context.Context, id string, progress func(*OperationInfo)) (*OperationInfo, error) {
	wait := waitStep
	if progress != nil {
		wait = operationLook
	}
	for try := 0; ; try++ {
		start := time.Now()
		o, err := a.readOperation(ctx, id, wait)
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
		} else if err := a.client.pause(ctx, try, errWaitCutShort); err != nil {
			return nil, fmt.Errorf("operation %q: %w", id, err)
		}
	}
}

// Operations goes over all operations, newest first. Those that have ended are kept for 30 days, at most 1,000.
func (a Admin) Operations(ctx context.Context) iter.Seq2[*OperationInfo, error] {
	return pages(func(cursor string) (Page[*OperationInfo], error) {
		return a.OperationsPage(ctx, PageRequest{Cursor: cursor})
	})
}

// OperationsPage gives one page of the operations.
func (a Admin) OperationsPage(ctx context.Context, page PageRequest) (Page[*OperationInfo], error) {
	resp, err := operate(ctx, a, true, a.client.mass.ListOperations, &pawlv1.ListOperationsRequest{Limit: clampInt32(page.Limit), Cursor: page.Cursor})
	if err != nil {
		return Page[*OperationInfo]{}, fmt.Errorf("list operations: %w", err)
	}
	return pageOf(resp, operationInfoOf), nil
}

// PauseOperation lets an operation rest, once the step is over that is under way: the answer may still say that it is stopping.
func (a Admin) PauseOperation(ctx context.Context, id, reason string) (*OperationInfo, error) {
	resp, err := operate(ctx, a, true, a.client.mass.PauseOperation, &pawlv1.PauseOperationRequest{OperationId: id, Reason: reason})
	return operationAnswer("pause operation", id, resp.GetOperation(), err)
}

// ResumeOperation lets an operation go on where it was.
func (a Admin) ResumeOperation(ctx context.Context, id, reason string) (*OperationInfo, error) {
	resp, err := operate(ctx, a, true, a.client.mass.ResumeOperation, &pawlv1.ResumeOperationRequest{OperationId: id, Reason: reason})
	return operationAnswer("resume operation", id, resp.GetOperation(), err)
}

// AbortOperation ends an operation, once the step is over that is under way. What is done stays done.
func (a Admin) AbortOperation(ctx context.Context, id, reason string) (*OperationInfo, error) {
	resp, err := operate(ctx, a, true, a.client.mass.AbortOperation, &pawlv1.AbortOperationRequest{OperationId: id, Reason: reason})
	return operationAnswer("abort operation", id, resp.GetOperation(), err)
}

func operationAnswer(what, id string, p *pawlv1.Operation, err error) (*OperationInfo, error) {
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, id, err)
	}
	return operationInfoOf(p), nil
}

var (
	actionWords         = words[Action](pawlv1.Action_name, "ACTION_")
	operationStateWords = words[OperationState](pawlv1.OperationState_name, "OPERATION_STATE_")
)

func operationInfoOf(p *pawlv1.Operation) *OperationInfo {
	s := p.GetSpec()
	o := &OperationInfo{ID: p.GetOperationId(), State: operationStateWords[int32(p.GetState())], Author: operatorOf(p.GetAuthor()),
		Operation: Operation{Action: actionWords[int32(s.GetAction())], Filter: filterInfoOf(s.GetFilter()), ToQueue: s.GetToQueue(),
			Max: s.GetMax(), Rate: s.GetRate(), Canary: s.GetCanary(), Reason: p.GetAuthor().GetReason()},
		CreatedAt: timeOf(p.GetCreatedAt()), PausedAt: timeOf(p.GetPausedAt()), EndedAt: timeOf(p.GetEndedAt()),
		Why: p.GetWhy(), StoppedBy: operatorOf(p.GetStoppedBy()), ResumedBy: operatorOf(p.GetResumedBy()), WaitsFor: p.GetWaitsFor(),
		Counts: OperationCounts{Total: p.GetTotal(), TotalIsLowerBound: p.GetTotalIsLowerBound(), Matched: p.GetMatched(), Done: p.GetDone(),
			Failed: p.GetFailed()}}
	if s.GetPriority() != 0 {
		o.Priority = priorityOf(s.GetPriority())
	}
	if p.GetStopping() != 0 {
		o.Stopping = operationStateWords[int32(p.GetStopping())]
	}
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
		o.Became = &Became{States: map[State]int64{}, IsLowerBound: b.GetIsLowerBound()}
		for _, s := range b.GetStates() {
			o.Became.States[stateOf(s.GetState())] = s.GetCount()
		}
	}
	return o
}

func operatorOf(p *pawlv1.Operator) *Operator {
	if p == nil {
		return nil
	}
	return &Operator{p.GetActor(), p.GetAddress(), p.GetFace(), p.GetReason()}
}

// filterInfoOf is the inverse of Filter.proto.
func filterInfoOf(p *pawlv1.Filter) *Filter {
	f := &Filter{Queue: p.GetQueue(), Type: p.GetType(), Tag: p.GetTag(), Key: p.GetKey(), Worker: p.GetWorker(), Error: p.GetError(), Fingerprint: p.GetFingerprint(), Operation: p.GetOperation(),
		CreatedAfter: timeOf(p.GetCreatedAfter()), CreatedBefore: timeOf(p.GetCreatedBefore()), Text: p.GetQ()}
	for _, s := range p.GetStates() {
		f.States = append(f.States, stateOf(s))
	}
	return f
}
