package rest

import (
	"slices"
	"strings"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var workerRoutes = []Route{
	{"POST", "/api/v1/claim", "WorkerService/Claim", claim},
	{"POST", "/api/v1/tasks/{id}/ack", "WorkerService/Ack", ack},
	{"POST", "/api/v1/tasks/{id}/fail", "WorkerService/Fail", fail},
	{"POST", "/api/v1/tasks/{id}/extend", "WorkerService/Extend", extend},
	{"POST", "/api/v1/tasks/{id}/release", "WorkerService/Release", release},
	{"POST", "/api/v1/tasks/ack", "WorkerService/Settle", acks},
	{"POST", "/api/v1/tasks/fail", "WorkerService/Settle", fails},
	{"POST", "/api/v1/tasks/extend", "WorkerService/Settle", extends},
	{"POST", "/api/v1/tasks/release", "WorkerService/Settle", releases},
}

func claim(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	req := &pawlv1.ClaimRequest{}
	shares := false
	err := x.fields(func(r *jsonReader, name string) (err error) {
		if name == "queues" {
			req.Queues, shares, err = r.queues(name)
			return err
		}
		return claimField(r, req, name)
	})
	if err != nil {
		return err
	}
	if shares && req.Order == pawlv1.Order_ORDER_STRICT {
		return task.Invalid("order", "strict needs queues as a list: an object has no order")
	}
	x.patience(req.GetWait().AsDuration())
	got, err := x.API.Worker.Claim(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.within("tasks", '[')
	for _, c := range got.GetTasks() {
		x.claimed(c)
	}
	x.close(']')
	if got.GetQuiet() {
		x.boolean("quiet", true)
		x.opt("quiet_reason", got.GetQuietReason())
	}
	x.close('}')
	return nil
}

func claimField(r *jsonReader, req *pawlv1.ClaimRequest, name string) (err error) {
	switch name {
	case "order":
		req.Order, err = r.order(name)
	case "types":
		req.Types, err = r.strs(name, task.MaxClaimTypes)
	case "max":
		req.Max, err = r.int32(name, 1, task.MaxClaim)
	case "max_bytes":
		req.MaxBytes, err = r.integer(name, 1, contract.MaxClaimBytes)
	case "lease":
		req.Lease, err = r.span(name)
	case "wait":
		req.Wait, err = r.span(name)
	case "worker":
		req.Worker, err = r.str(name)
	case "claim_key":
		req.ClaimKey, err = r.str(name)
	case "runs":
		err = r.boolean(&req.Runs, name)
	default:
		err = unknown("", name)
	}
	return err
}

// queues reads a list of names, or an object of names and weights, which it sorts by name.
func (r *jsonReader) queues(path string) (queues []*pawlv1.QueueShare, shares bool, err error) {
	if r.json.PeekKind() != '{' {
		names, err := r.strs(path, task.MaxClaimQueues)
		for _, q := range names {
			queues = append(queues, &pawlv1.QueueShare{Queue: q})
		}
		return queues, false, err
	}
	err = r.fields(path, func(name string) error {
		weight, err := r.int32(join(path, name), 1, task.MaxWeight)
		queues = append(queues, &pawlv1.QueueShare{Queue: name, Weight: weight})
		return err
	})
	slices.SortFunc(queues, func(a, b *pawlv1.QueueShare) int { return strings.Compare(a.Queue, b.Queue) })
	return queues, true, err
}

func (r *jsonReader) order(path string) (pawlv1.Order, error) {
	switch s, err := r.str(path); {
	case err != nil:
		return 0, err
	case s == "strict":
		return pawlv1.Order_ORDER_STRICT, nil
	case s == "weighted":
		return pawlv1.Order_ORDER_WEIGHTED, nil
	default:
		return 0, task.Invalid(path, "%q is not strict or weighted", task.Cut(s, 64))
	}
}

// ackReader reads an ack; the task's id comes from the path, or from the item of a batch.
type ackReader struct {
	req    *pawlv1.AckRequest
	result []byte
}

func (a *ackReader) field(r *jsonReader, name string) (err error) {
	switch name {
	case "claim_token":
		a.req.ClaimToken, err = r.str(name)
	case "result":
		a.result, err = r.any()
	case "content_type":
		a.req.ContentType, err = r.str(name)
	default:
		err = unknown("", name)
	}
	return err
}

func (a *ackReader) done() (_ *pawlv1.AckRequest, err error) {
	a.req.Result, err = dataOf("result", a.result, a.req.ContentType)
	return a.req, err
}

func failField(r *jsonReader, req *pawlv1.FailRequest, name string) (err error) {
	switch name {
	case "claim_token":
		req.ClaimToken, err = r.str(name)
	case "error":
		req.Error, err = r.taskError(name)
	case "outcome":
		req.Outcome, err = r.outcome(name)
	case "retry_in":
		req.RetryIn, err = r.span(name)
	default:
		err = unknown("", name)
	}
	return err
}

func (r *jsonReader) taskError(path string) (*pawlv1.TaskError, error) {
	e := &pawlv1.TaskError{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "message":
			e.Message, err = r.str(at)
		case "type":
			e.Type, err = r.str(at)
		case "stack":
			e.Stack, err = r.str(at)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return e, err
}

func (r *jsonReader) outcome(path string) (pawlv1.FailOutcome, error) {
	switch s, err := r.str(path); {
	case err != nil:
		return 0, err
	case s == "retry":
		return pawlv1.FailOutcome_FAIL_OUTCOME_RETRY, nil
	case s == "dead":
		return pawlv1.FailOutcome_FAIL_OUTCOME_DEAD, nil
	case s == "discard":
		return pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD, nil
	case s == "poison":
		return pawlv1.FailOutcome_FAIL_OUTCOME_POISON, nil
	default:
		return 0, task.Invalid(path, "%q is not retry, dead, discard or poison", task.Cut(s, 64))
	}
}

func extendField(r *jsonReader, req *pawlv1.ExtendRequest, name string) (err error) {
	switch name {
	case "claim_token":
		req.ClaimToken, err = r.str(name)
	case "lease":
		req.Lease, err = r.span(name)
	case "progress":
		req.Progress, err = r.progress(name)
	case "checkpoint":
		if req.Checkpoint, err = r.blob(name); err == nil && req.Checkpoint == nil {
			req.Checkpoint = []byte{}
		}
	default:
		err = unknown("", name)
	}
	return err
}

func (r *jsonReader) progress(path string) (*pawlv1.Progress, error) {
	p := &pawlv1.Progress{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "percent":
			p.Percent, err = r.float(at)
		case "message":
			p.Message, err = r.str(at)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return p, err
}

func releaseField(r *jsonReader, req *pawlv1.ReleaseRequest, name string) (err error) {
	switch name {
	case "claim_token":
		req.ClaimToken, err = r.str(name)
	case "delay":
		req.Delay, err = r.span(name)
	default:
		err = unknown("", name)
	}
	return err
}

func ack(x *exchange) error {
	a := ackReader{req: &pawlv1.AckRequest{TaskId: x.r.PathValue("id")}}
	if err := x.alone(a.field); err != nil {
		return err
	}
	req, err := a.done()
	if err != nil {
		return err
	}
	got, err := x.API.Worker.Ack(x.ctx, req)
	if err == nil {
		x.settled(&pawlv1.Settled{TaskId: got.GetTaskId(), Status: got.GetStatus(), State: got.GetState()}, false)
	}
	return err
}

func fail(x *exchange) error {
	req := &pawlv1.FailRequest{TaskId: x.r.PathValue("id")}
	if err := x.alone(func(r *jsonReader, name string) error { return failField(r, req, name) }); err != nil {
		return err
	}
	got, err := x.API.Worker.Fail(x.ctx, req)
	if err == nil {
		x.settled(&pawlv1.Settled{TaskId: got.GetTaskId(), Status: got.GetStatus(), State: got.GetState(), NextRunAt: got.GetNextRunAt()}, false)
	}
	return err
}

func extend(x *exchange) error {
	req := &pawlv1.ExtendRequest{TaskId: x.r.PathValue("id")}
	if err := x.alone(func(r *jsonReader, name string) error { return extendField(r, req, name) }); err != nil {
		return err
	}
	got, err := x.API.Worker.Extend(x.ctx, req)
	if err == nil {
		x.settled(&pawlv1.Settled{TaskId: got.GetTaskId(), LeaseExpiresAt: got.GetLeaseExpiresAt(), CancelRequested: got.GetCancelRequested()}, true)
	}
	return err
}

func release(x *exchange) error {
	req := &pawlv1.ReleaseRequest{TaskId: x.r.PathValue("id")}
	if err := x.alone(func(r *jsonReader, name string) error { return releaseField(r, req, name) }); err != nil {
		return err
	}
	got, err := x.API.Worker.Release(x.ctx, req)
	if err == nil {
		x.settled(&pawlv1.Settled{TaskId: got.GetTaskId(), Status: got.GetStatus(), State: got.GetState(), NextRunAt: got.GetNextRunAt()}, false)
	}
	return err
}

// alone reads the body of a verb on one task.
func (x *exchange) alone(field func(r *jsonReader, name string) error) error {
	if _, err := x.query(); err != nil {
		return err
	}
	return x.fields(field)
}

// settled writes the answer to a verb on a claim.
func (x *exchange) settled(s *pawlv1.Settled, extended bool) {
	x.open('{')
	x.str("task_id", s.GetTaskId())
	switch {
	case s.GetError() != nil:
		x.itemError(s.GetError())
	case extended:
		x.time("lease_expires_at", s.GetLeaseExpiresAt())
		x.boolean("cancel_requested", s.GetCancelRequested())
	default:
		x.place(s.GetStatus(), s.GetState())
		x.time("next_run_at", s.GetNextRunAt())
	}
	x.close('}')
}

func acks(x *exchange) error {
	return settleMany(x, "acks", func(r *jsonReader, id *string) (*pawlv1.AckRequest, error) {
		a := ackReader{req: &pawlv1.AckRequest{}}
		if err := r.item(id, a.field); err != nil {
			return nil, err
		}
		a.req.TaskId = *id
		return a.done()
	}, func(good []*pawlv1.AckRequest) *pawlv1.SettleRequest { return &pawlv1.SettleRequest{Acks: good} }, (*pawlv1.SettleResponse).GetAcks)
}

func fails(x *exchange) error {
	return settleMany(x, "fails", func(r *jsonReader, id *string) (*pawlv1.FailRequest, error) {
		req := &pawlv1.FailRequest{}
		err := r.item(id, func(r *jsonReader, name string) error { return failField(r, req, name) })
		req.TaskId = *id
		return req, err
	}, func(good []*pawlv1.FailRequest) *pawlv1.SettleRequest { return &pawlv1.SettleRequest{Fails: good} }, (*pawlv1.SettleResponse).GetFails)
}

func extends(x *exchange) error {
	return settleMany(x, "extends", func(r *jsonReader, id *string) (*pawlv1.ExtendRequest, error) {
		req := &pawlv1.ExtendRequest{}
		err := r.item(id, func(r *jsonReader, name string) error { return extendField(r, req, name) })
		req.TaskId = *id
		return req, err
	}, func(good []*pawlv1.ExtendRequest) *pawlv1.SettleRequest { return &pawlv1.SettleRequest{Extends: good} }, (*pawlv1.SettleResponse).GetExtends)
}

func releases(x *exchange) error {
	return settleMany(x, "releases", func(r *jsonReader, id *string) (*pawlv1.ReleaseRequest, error) {
		req := &pawlv1.ReleaseRequest{}
		err := r.item(id, func(r *jsonReader, name string) error { return releaseField(r, req, name) })
		req.TaskId = *id
		return req, err
	}, func(good []*pawlv1.ReleaseRequest) *pawlv1.SettleRequest {
		return &pawlv1.SettleRequest{Releases: good}
	}, (*pawlv1.SettleResponse).GetReleases)
}

// item reads an item of a batch: a verb's fields and the task's id.
func (r *jsonReader) item(id *string, field func(r *jsonReader, name string) error) error {
	return r.fields("", func(name string) (err error) {
		if name == "task_id" {
			*id, err = r.str(name)
			return err
		}
		return field(r, name)
	})
}

// settleMany is the batch form of a verb on claims: each item is answered by itself.
func settleMany[T any](x *exchange, field string, item func(r *jsonReader, id *string) (T, error),
	request func([]T) *pawlv1.SettleRequest, answers func(*pawlv1.SettleResponse) []*pawlv1.Settled) error {
	m := mixed[T]{field: field, most: contract.MaxSettle}
	var ids []string // of all items, as far as they could be read
	err := x.alone(func(r *jsonReader, name string) error {
		if name != field {
			return unknown("", name)
		}
		return m.read(r, func(r *jsonReader) (T, error) {
			id := ""
			v, err := item(r, &id)
			ids = append(ids, id)
			return v, err
		})
	})
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return err
	}
	got, err := x.API.Worker.Settle(x.ctx, request(m.good))
	if err != nil {
		return err
	}
	x.open('{')
	x.within("results", '[')
	at := 0
	m.each(func(n int, refused *pawlv1.Error) {
		s := &pawlv1.Settled{TaskId: ids[at], Error: refused}
		if refused == nil {
			s = answers(got)[n]
		}
		x.settled(s, field == "extends")
		at++
	})
	x.close(']')
	x.close('}')
	return nil
}
