package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
)

var onceRoutes = []Route{
	{"POST", "/api/v1/tasks/{id}/once/begin", "WorkerService/BeginOnce", beginOnce},
	{"POST", "/api/v1/tasks/{id}/once/finish", "WorkerService/FinishOnce", finishOnce},
	{"POST", "/api/v1/tasks/{id}/once/abandon", "WorkerService/AbandonOnce", abandonOnce},
}

// onceField reads what the bodies have in common.
func onceField(r *jsonReader, token, key *string, name string) error {
	switch name {
	case "claim_token":
		return r.setStr(token, name)
	case "key":
		return r.setStr(key, name)
	}
	return unknown("", name)
}

func beginOnce(x *exchange) error {
	req := &pawlv1.BeginOnceRequest{TaskId: x.r.PathValue("id")}
	if err := x.alone(func(r *jsonReader, name string) error { return onceField(r, &req.ClaimToken, &req.Key, name) }); err != nil {
		return err
	}
	got, err := x.API.Worker.BeginOnce(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.str("state", contract.OnceStates[got.GetState()])
	x.data("result", got.GetResult(), "")
	x.time("kept_until", got.GetKeptUntil())
	if h := got.GetHolder(); h != nil {
		x.within("holder", '{')
		x.str("task_id", h.GetTaskId())
		x.opt("worker", h.GetWorker())
		x.num("fence", h.GetFence())
		x.close('}')
	}
	x.span("retry_after", got.GetRetryAfter())
	x.close('}')
	return nil
}

func finishOnce(x *exchange) error {
	req := &pawlv1.FinishOnceRequest{TaskId: x.r.PathValue("id")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "result":
			req.Result, err = r.any()
		case "ttl":
			req.Ttl, err = r.span(name)
		default:
			err = onceField(r, &req.ClaimToken, &req.Key, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := x.API.Worker.FinishOnce(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.time("kept_until", got.GetKeptUntil())
	x.close('}')
	return nil
}

func abandonOnce(x *exchange) error {
	req := &pawlv1.AbandonOnceRequest{TaskId: x.r.PathValue("id")}
	if err := x.alone(func(r *jsonReader, name string) error { return onceField(r, &req.ClaimToken, &req.Key, name) }); err != nil {
		return err
	}
	got, err := x.API.Worker.AbandonOnce(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.str("state", contract.OnceStates[got.GetState()])
	x.close('}')
	return nil
}
