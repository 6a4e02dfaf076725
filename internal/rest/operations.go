package rest

import (
	"math"
	"net/http"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var operationRoutes = []Route{
	{"GET", "/api/v1/operations", "OperationService/ListOperations", listOperations},
	{"POST", "/api/v1/operations", "OperationService/StartOperation", startOperation},
	{"GET", "/api/v1/operations/{id}", "OperationService/GetOperation", getOperation},
	{"POST", "/api/v1/operations/{id}/pause", "OperationService/PauseOperation", pauseOperation},
	{"POST", "/api/v1/operations/{id}/resume", "OperationService/ResumeOperation", resumeOperation},
	{"POST", "/api/v1/operations/{id}/abort", "OperationService/AbortOperation", abortOperation},
}

func listOperations(x *exchange) error {
	limit, cursor, err := x.page()
	if err != nil {
		return err
	}
	got, err := x.API.Operation.ListOperations(x.ctx, &pawlv1.ListOperationsRequest{Limit: limit, Cursor: cursor})
	if err != nil {
		return err
	}
	listPage(x, got.GetItems(), got.GetNextCursor(), x.operation)
	return nil
}

func startOperation(x *exchange) error {
	req := &pawlv1.StartOperationRequest{Spec: &pawlv1.OperationSpec{}}
	err := x.alone(func(r *jsonReader, name string) error { return r.operationField(name, req) })
	if err == nil {
		err = x.fromHeader(&req.RequestId, headerRequestID, "request_id")
	}
	if err != nil {
		return err
	}
	got, err := x.API.Operation.StartOperation(x.ctx, req)
	if err != nil {
		return err
	}
	if p := got.GetPreview(); p != nil {
		x.preview(p)
		return nil
	}
	x.status = http.StatusAccepted
	return x.operationAnswer(got.GetOperation(), nil)
}

// operationField reads what is said of an operation that is to begin.
func (r *jsonReader) operationField(name string, req *pawlv1.StartOperationRequest) (err error) {
	spec := req.GetSpec()
	switch name {
	case "action":
		spec.Action, err = word[pawlv1.Action](r, name, contract.Actions)
	case "filter":
		spec.Filter, err = r.filter(name)
	case "to_queue":
		spec.ToQueue, err = r.str(name)
	case "priority":
		spec.Priority, err = r.priority(name)
	case "max":
		spec.Max, err = r.integer(name, 1, math.MaxInt64)
	case "canary":
		spec.Canary, err = r.integer(name, 1, math.MaxInt64)
	case "rate":
		spec.Rate, err = r.rate(name)
	case "dry_run":
		err = r.boolean(&req.DryRun, name)
	case "reason":
		req.Reason, err = r.str(name)
	case "request_id":
		req.RequestId, err = r.str(name)
	default:
		err = unknown("", name)
	}
	return err
}

// preview writes what an operation would be for.
func (x *exchange) preview(p *pawlv1.OperationPreview) {
	x.open('{')
	x.boolean("dry_run", true)
	x.num("matched", p.GetMatched())
	x.boolean("is_lower_bound", p.GetIsLowerBound())
	x.within("sample", '[')
	for _, t := range p.GetSample() {
		x.task(t)
	}
	x.close(']')
	x.close('}')
}

func getOperation(x *exchange) error {
	q, err := x.query("wait", "became")
	if err != nil {
		return err
	}
	req := &pawlv1.GetOperationRequest{OperationId: x.r.PathValue("id")}
	if req.Became, err = flagText(q, "became"); err != nil {
		return err
	}
	if q.Has("wait") {
		if req.Wait, err = spanText("wait", q.Get("wait")); err != nil {
			return err
		}
		x.patience(contract.MaxWait)
	}
	if err := x.operationPath(); err != nil {
		return err
	}
	got, err := x.API.Operation.GetOperation(x.ctx, req)
	return x.operationAnswer(got.GetOperation(), err)
}

// operationPath refuses what is no id in a path: such an operation does not exist.
func (x *exchange) operationPath() error {
	if _, err := task.ParseID(x.r.PathValue("id")); err != nil {
		return task.NotFound("operation", x.r.PathValue("id"))
	}
	return nil
}

func pauseOperation(x *exchange) error {
	id, reason, err := x.steering()
	if err != nil {
		return err
	}
	got, err := x.API.Operation.PauseOperation(x.ctx, &pawlv1.PauseOperationRequest{OperationId: id, Reason: reason})
	return x.operationAnswer(got.GetOperation(), err)
}

func resumeOperation(x *exchange) error {
	id, reason, err := x.steering()
	if err != nil {
		return err
	}
	got, err := x.API.Operation.ResumeOperation(x.ctx, &pawlv1.ResumeOperationRequest{OperationId: id, Reason: reason})
	return x.operationAnswer(got.GetOperation(), err)
}

func abortOperation(x *exchange) error {
	id, reason, err := x.steering()
	if err != nil {
		return err
	}
	got, err := x.API.Operation.AbortOperation(x.ctx, &pawlv1.AbortOperationRequest{OperationId: id, Reason: reason})
	return x.operationAnswer(got.GetOperation(), err)
}

// steering reads a call that steers an operation.
func (x *exchange) steering() (id, reason string, err error) {
	err = x.alone(func(r *jsonReader, name string) error {
		if name != "reason" {
			return unknown("", name)
		}
		return r.setStr(&reason, name)
	})
	if err == nil {
		err = x.operationPath()
	}
	return x.r.PathValue("id"), reason, err
}

func (x *exchange) operationAnswer(o *pawlv1.Operation, err error) error {
	if err != nil {
		return err
	}
	x.open('{')
	x.operation(o)
	x.close('}')
	return nil
}

// operation writes the fields of an operation.
func (x *exchange) operation(o *pawlv1.Operation) {
	s := o.GetSpec()
	x.str("operation_id", o.GetOperationId())
	x.str("action", string(contract.Actions[s.GetAction()]))
	x.filter("filter", s.GetFilter())
	x.opt("to_queue", s.GetToQueue())
	if p := s.GetPriority(); p != 0 {
		x.str("priority", task.Priority(p).String())
	}
	if n := s.GetMax(); n > 0 {
		x.num("max", n)
	}
	if n := s.GetCanary(); n > 0 {
		x.num("canary", n)
	}
	if r := s.GetRate(); r > 0 {
		x.str("rate", contract.RateText(r))
	}
	x.str("state", contract.OperationStates[o.GetState()])
	x.opt("stopping", contract.OperationStates[o.GetStopping()])
	x.operator("author", o.GetAuthor())
	x.time("created_at", o.GetCreatedAt())
	x.time("paused_at", o.GetPausedAt())
	x.time("ended_at", o.GetEndedAt())
	x.opt("why", o.GetWhy())
	x.operator("stopped_by", o.GetStoppedBy())
	x.operator("resumed_by", o.GetResumedBy())
	x.tally(o)
	x.opt("waits_for", o.GetWaitsFor())
	if b := o.GetBecame(); b != nil {
		x.became(b)
	}
}

func (x *exchange) became(b *pawlv1.Became) {
	x.within("became", '{')
	x.boolean("is_lower_bound", b.GetIsLowerBound())
	x.within("states", '{')
	for _, s := range b.GetStates() {
		x.num(task.State(s.GetState()).String(), s.GetCount())
	}
	x.close('}')
	x.close('}')
}

func (x *exchange) tally(o *pawlv1.Operation) {
	x.num("total", o.GetTotal())
	x.boolean("total_is_lower_bound", o.GetTotalIsLowerBound())
	x.num("matched", o.GetMatched())
	x.num("done", o.GetDone())
	x.num("skipped", o.GetSkipped())
	x.within("skipped_reasons", '{')
	for _, k := range o.GetSkippedReasons() {
		x.num(k.GetReason(), k.GetCount())
	}
	x.close('}')
	x.num("failed", o.GetFailed())
	objects(x, "errors", o.GetErrors(), func(e *pawlv1.FailedTask) {
		x.str("task_id", e.GetTaskId())
		x.str("message", e.GetMessage())
	})
}

func (x *exchange) operator(name string, by *pawlv1.Operator) {
	if by == nil {
		return
	}
	x.within(name, '{')
	x.opt("actor", by.GetActor())
	x.opt("address", by.GetAddress())
	x.opt("face", by.GetFace())
	x.opt("reason", by.GetReason())
	x.close('}')
}

// filter writes a filter with the names of a query.
func (x *exchange) filter(name string, f *pawlv1.Filter) {
	x.within(name, '{')
	x.opt("queue", f.GetQueue())
	states := make([]string, len(f.GetStates()))
	for i, s := range f.GetStates() {
		states[i] = task.State(s).String()
	}
	x.strs("state", states)
	x.opt("type", f.GetType())
	x.opt("tag", f.GetTag())
	x.opt("key", f.GetKey())
	x.opt("worker", f.GetWorker())
	x.opt("error", f.GetError())
	x.opt("fingerprint", f.GetFingerprint())
	x.opt("operation", f.GetOperation())
	x.time("created_after", f.GetCreatedAfter())
	x.time("created_before", f.GetCreatedBefore())
	x.opt("q", f.GetQ())
	conditions := make([]string, len(f.GetPayload()))
	for i, p := range f.GetPayload() {
		conditions[i] = p.GetPath() + ":" + p.GetValue()
	}
	x.strs("payload", conditions)
	x.close('}')
}
