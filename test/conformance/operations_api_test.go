package conformance

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// operationsAPI is what an API of the gateway can do with operations.
type operationsAPI interface {
	StartOperation(ctx context.Context, o operation) (operationInfo, error)
	// TryOperation returns how many tasks an operation would apply to, and the ids of some.
	TryOperation(ctx context.Context, o operation) (n int64, sample []string, err error)
	Operation(ctx context.Context, id string, wait span) (operationInfo, error)
	// CurrentStates counts the tasks that it has changed by their current states.
	CurrentStates(ctx context.Context, id string) (map[string]int64, error)
	Operations(ctx context.Context, p part) (list []operationInfo, next string, err error)
	// Steer pauses, resumes or aborts an operation.
	Steer(ctx context.Context, verb, id, reason string) (operationInfo, error)
}

// operation is an operation to start. Zero fields are omitted.
type operation struct {
	Action   string  `json:"action"`
	Filter   filter  `json:"filter"`
	ToQueue  string  `json:"to_queue,omitempty"`
	Priority string  `json:"priority,omitempty"`
	Max      int64   `json:"max,omitempty"`
	Canary   int64   `json:"canary,omitempty"`
	Rate     float64 `json:"-"`
	Reason   string  `json:"reason,omitempty"`
}

// operationInfo is what the API shows of an operation.
type operationInfo struct {
	operation
	ID        string           `json:"operation_id"`
	State     string           `json:"state"`
	Stopping  string           `json:"stopping"`
	Why       string           `json:"why"`
	CreatedAt time.Time        `json:"created_at"`
	PausedAt  time.Time        `json:"paused_at"`
	EndedAt   time.Time        `json:"ended_at"`
	Total     int64            `json:"total"`
	Matched   int64            `json:"matched"`
	Done      int64            `json:"done"`
	Skipped   map[string]int64 `json:"skipped_reasons"`
	Failed    int64            `json:"failed"`
}

// counts describes an operation's counts: "3 of 3, 2 done, 1 skipped as changed".
func (o operationInfo) counts() string {
	out := fmt.Sprintf("%s: %d of %d, %d done", o.State, o.Matched, o.Total, o.Done)
	for reason, n := range o.Skipped {
		out += fmt.Sprintf(", %d skipped as %s", n, reason)
	}
	return out
}

// REST

type operationBody struct {
	operationInfo
	Rate         string       `json:"rate"`
	Author       operatorBody `json:"author"`
	StoppedBy    operatorBody `json:"stopped_by"`
	ResumedBy    operatorBody `json:"resumed_by"`
	SkippedTasks int64        `json:"skipped"`
	LowerBound   bool         `json:"total_is_lower_bound"`
	Errors       []any        `json:"errors"`
	WaitsFor     string       `json:"waits_for"`
}

type operatorBody struct {
	Actor     string `json:"actor"`
	Address   string `json:"address"`
	Interface string `json:"interface"`
	Reason    string `json:"reason"`
}

func (b *operationBody) read() (o operationInfo, err error) {
	o = b.operationInfo
	o.Reason = b.Author.Reason
	if b.Rate != "" {
		o.Rate, err = strconv.ParseFloat(strings.TrimSuffix(b.Rate, "/s"), 64)
	}
	if len(o.Skipped) == 0 {
		o.Skipped = nil
	}
	return o, err
}

type operationRequest struct {
	operation
	Rate   string `json:"rate,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func (o operation) body(dryRun bool) operationRequest {
	b := operationRequest{operation: o, DryRun: dryRun}
	if o.Rate > 0 {
		b.Rate = fmt.Sprintf("%g/s", o.Rate)
	}
	return b
}

func (d *rest) StartOperation(ctx context.Context, o operation) (operationInfo, error) {
	var b operationBody
	if err := d.call(ctx, "POST", "/operations", o.body(false), &b); err != nil {
		return operationInfo{}, err
	}
	return b.read()
}

func (d *rest) TryOperation(ctx context.Context, o operation) (n int64, sample []string, err error) {
	var a struct {
		DryRun  bool `json:"dry_run"`
		Matched int64
		Least   bool       `json:"is_lower_bound"`
		Sample  []taskBody `json:"sample"`
	}
	// the question mark distinguishes it from the call that is answered with 202
	err = d.call(ctx, "POST", "/operations?", o.body(true), &a)
	for _, v := range a.Sample {
		sample = append(sample, v.ID)
	}
	return a.Matched, sample, err
}

func (d *rest) Operation(ctx context.Context, id string, wait span) (operationInfo, error) {
	var b operationBody
	path := "/operations/" + id
	if wait > 0 {
		path += "?wait=" + wait.std().String()
	}
	if err := d.query(ctx, "GET", path, nil, &b); err != nil {
		return operationInfo{}, err
	}
	return b.read()
}

func (d *rest) CurrentStates(ctx context.Context, id string) (map[string]int64, error) {
	var a struct {
		operationBody
		CurrentStates struct {
			States map[string]int64 `json:"states"`
			Least  bool             `json:"is_lower_bound"`
		} `json:"current_states"`
	}
	err := d.query(ctx, "GET", "/operations/"+id+"?current_states=true", nil, &a)
	return a.CurrentStates.States, err
}

func (d *rest) Operations(ctx context.Context, p part) (list []operationInfo, next string, err error) {
	var a struct {
		Items []operationBody `json:"items"`
		Next  string          `json:"next_cursor"`
	}
	err = d.query(ctx, "GET", "/operations", filter{}.query(p), &a)
	for _, b := range a.Items {
		o, bad := b.read()
		if list = append(list, o); bad != nil {
			err = bad
		}
	}
	return list, a.Next, err
}

func (d *rest) Steer(ctx context.Context, verb, id, reason string) (operationInfo, error) {
	var b operationBody
	if err := d.call(ctx, "POST", "/operations/"+id+"/"+verb, fields{}.with(reason != "", "reason", reason), &b); err != nil {
		return operationInfo{}, err
	}
	return b.read()
}

// gRPC

func (o operation) proto() *pawlv1.OperationSpec {
	return &pawlv1.OperationSpec{Action: number[pawlv1.Action](pawlv1.Action_value, "ACTION_", o.Action), Filter: o.Filter.proto(),
		ToQueue: text(o.ToQueue), Priority: number[pawlv1.Priority](pawlv1.Priority_value, "PRIORITY_", o.Priority), Max: o.Max,
		Canary: o.Canary, Rate: o.Rate}
}

func filterOfProto(p *pawlv1.Filter) filter {
	f := filter{Queue: p.GetQueue(), Type: p.GetType(), Tag: p.GetTag(), Key: p.GetKey(), Worker: p.GetWorker(), Error: p.GetError(),
		Fingerprint: p.GetFingerprint(), Operation: p.GetOperation(), Text: p.GetQ(), CreatedAfter: timeOf(p.GetCreatedAfter()),
		CreatedBefore: timeOf(p.GetCreatedBefore())}
	for _, s := range p.GetStates() {
		f.States = append(f.States, word(s, "STATE_"))
	}
	for _, c := range p.GetPayload() {
		f.Payload = append(f.Payload, c.GetPath()+":"+c.GetValue())
	}
	return f
}

func operationOfProto(p *pawlv1.Operation) operationInfo {
	s := p.GetSpec()
	o := operationInfo{operation: operation{Action: word(s.GetAction(), "ACTION_"), Filter: filterOfProto(s.GetFilter()),
		ToQueue: s.GetToQueue(), Max: s.GetMax(), Canary: s.GetCanary(), Rate: s.GetRate(), Reason: p.GetAuthor().GetReason()},
		ID: p.GetOperationId(), State: word(p.GetState(), "OPERATION_STATE_"), Why: p.GetWhy(), CreatedAt: timeOf(p.GetCreatedAt()),
		PausedAt: timeOf(p.GetPausedAt()), EndedAt: timeOf(p.GetEndedAt()), Total: p.GetTotal(), Matched: p.GetMatched(), Done: p.GetDone(),
		Failed: p.GetFailed()}
	if s.GetPriority() != 0 {
		o.Priority = word(s.GetPriority(), "PRIORITY_")
	}
	if p.GetStopping() != 0 {
		o.Stopping = word(p.GetStopping(), "OPERATION_STATE_")
	}
	for _, k := range p.GetSkippedReasons() {
		if o.Skipped == nil {
			o.Skipped = map[string]int64{}
		}
		o.Skipped[k.GetReason()] = k.GetCount()
	}
	return o
}

func (d *rpc) StartOperation(ctx context.Context, o operation) (operationInfo, error) {
	a, err := ask(ctx, d.mass.StartOperation, &pawlv1.StartOperationRequest{Spec: o.proto(), Reason: o.Reason})
	return operationOfProto(a.GetOperation()), err
}

func (d *rpc) TryOperation(ctx context.Context, o operation) (n int64, sample []string, err error) {
	a, err := ask(ctx, d.mass.StartOperation, &pawlv1.StartOperationRequest{Spec: o.proto(), DryRun: true})
	for _, t := range a.GetPreview().GetSample() {
		sample = append(sample, t.GetTaskId())
	}
	return a.GetPreview().GetMatched(), sample, err
}

func (d *rpc) Operation(ctx context.Context, id string, wait span) (operationInfo, error) {
	a, err := ask(ctx, d.mass.GetOperation, &pawlv1.GetOperationRequest{OperationId: id, Wait: spanProto(wait)})
	return operationOfProto(a.GetOperation()), err
}

func (d *rpc) CurrentStates(ctx context.Context, id string) (map[string]int64, error) {
	a, err := ask(ctx, d.mass.GetOperation, &pawlv1.GetOperationRequest{OperationId: id, CurrentStates: true})
	states := map[string]int64{}
	for _, s := range a.GetOperation().GetCurrentStates().GetStates() {
		states[strings.ToLower(strings.TrimPrefix(s.GetState().String(), "STATE_"))] = s.GetCount()
	}
	return states, err
}

func (d *rpc) Operations(ctx context.Context, p part) (list []operationInfo, next string, err error) {
	a, err := ask(ctx, d.mass.ListOperations, &pawlv1.ListOperationsRequest{Limit: int32(p.Limit), Cursor: p.Cursor})
	for _, o := range a.GetItems() {
		list = append(list, operationOfProto(o))
	}
	return list, a.GetNextCursor(), err
}

func (d *rpc) Steer(ctx context.Context, verb, id, reason string) (operationInfo, error) {
	switch verb {
	case "pause":
		a, err := ask(ctx, d.mass.PauseOperation, &pawlv1.PauseOperationRequest{OperationId: id, Reason: reason})
		return operationOfProto(a.GetOperation()), err
	case "resume":
		a, err := ask(ctx, d.mass.ResumeOperation, &pawlv1.ResumeOperationRequest{OperationId: id, Reason: reason})
		return operationOfProto(a.GetOperation()), err
	}
	a, err := ask(ctx, d.mass.AbortOperation, &pawlv1.AbortOperationRequest{OperationId: id, Reason: reason})
	return operationOfProto(a.GetOperation()), err
}

// SDK

func (o operation) sdk() admin.OperationSpec {
	f := o.Filter.sdk()
	return admin.OperationSpec{Action: admin.Action(o.Action), Filter: &f, ToQueue: o.ToQueue, Priority: pawltype.Priority(o.Priority),
		Max: o.Max, Canary: o.Canary, Rate: o.Rate}
}

func operationBySDK(o *admin.Operation, err error) (operationInfo, error) {
	if err != nil {
		return operationInfo{}, refusedBySDK(err)
	}
	return operationOfSDK(o), nil
}

func operationOfSDK(o *admin.Operation) operationInfo {
	f := filter{Queue: o.Filter.Queue, Type: o.Filter.Type, Tag: o.Filter.Tag, Key: o.Filter.Key, Worker: o.Filter.Worker,
		Error: o.Filter.Error, Fingerprint: o.Filter.Fingerprint, Operation: o.Filter.Operation, Text: o.Filter.Text,
		CreatedAfter: o.Filter.CreatedAfter, CreatedBefore: o.Filter.CreatedBefore}
	for _, s := range o.Filter.States {
		f.States = append(f.States, string(s))
	}
	for _, c := range o.Filter.Payload {
		f.Payload = append(f.Payload, c.Path+":"+c.Value)
	}
	return operationInfo{operation: operation{Action: string(o.Action), Filter: f, ToQueue: o.ToQueue, Priority: string(o.Priority),
		Max: o.Max, Canary: o.Canary, Rate: o.Rate, Reason: o.Reason}, ID: o.ID, State: string(o.State), Stopping: string(o.Stopping),
		Why: o.StopReason, CreatedAt: o.CreatedAt, PausedAt: o.PausedAt, EndedAt: o.EndedAt, Total: o.Counts.Total,
		Matched: o.Counts.Matched, Done: o.Counts.Done, Skipped: o.Counts.Skipped, Failed: o.Counts.Failed}
}

func (d *sdk) StartOperation(ctx context.Context, o operation) (operationInfo, error) {
	return operationBySDK(d.admin().WithReason(o.Reason).Operations().Start(ctx, o.sdk()))
}

func (d *sdk) TryOperation(ctx context.Context, o operation) (n int64, sample []string, err error) {
	p, err := d.admin().Operations().Preview(ctx, o.sdk())
	if err != nil {
		return 0, nil, refusedBySDK(err)
	}
	for _, t := range p.Sample {
		sample = append(sample, t.ID)
	}
	return p.Matched, sample, nil
}

func (d *sdk) Operation(ctx context.Context, id string, wait span) (operationInfo, error) {
	if wait > 0 {
		return operationBySDK(d.admin().Operations().Wait(ctx, id, func(*admin.Operation) {}))
	}
	return operationBySDK(d.admin().Operations().Get(ctx, id))
}

func (d *sdk) CurrentStates(ctx context.Context, id string) (map[string]int64, error) {
	o, err := d.admin().Operations().GetWithStates(ctx, id)
	if err != nil {
		return nil, err
	}
	states := map[string]int64{}
	for s, n := range o.CurrentStates.States {
		states[string(s)] = n
	}
	return states, nil
}

func (d *sdk) Operations(ctx context.Context, p part) (list []operationInfo, next string, err error) {
	got, err := d.admin().Operations().ListPage(ctx, p.sdk())
	for _, o := range got.Items {
		list = append(list, operationOfSDK(o))
	}
	return list, got.NextCursor, refusedBySDK(err)
}

func (d *sdk) Steer(ctx context.Context, verb, id, reason string) (operationInfo, error) {
	operations := d.admin().WithReason(reason).Operations()
	steer := map[string]func(context.Context, string) (*admin.Operation, error){
		"pause": operations.Pause, "resume": operations.Resume, "abort": operations.Abort}
	return operationBySDK(steer[verb](ctx, id))
}
