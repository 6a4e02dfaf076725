package rest

import (
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

var explainRoutes = []Route{
	{"GET", "/api/v1/tasks/{id}/explain", "ProducerService/ExplainTask", explainTask},
	{"GET", "/api/v1/queues/{queue}/explain", "OperatorService/ExplainQueue", explainQueue},
}

func explainTask(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Producer.ExplainTask(x.ctx, &pawlv1.ExplainTaskRequest{TaskId: x.r.PathValue("id")})
	if err != nil {
		return err
	}
	x.open('{')
	x.str("task_id", got.GetTaskId())
	if s := task.State(got.GetState()); s != 0 {
		x.str("state", s.String())
		x.str("status", s.Status())
		x.str("queue", got.GetQueue())
		x.str("type", got.GetType())
		x.opt("key", got.GetKey())
	}
	x.reasons(got.GetReasons())
	x.close('}')
	return nil
}

func explainQueue(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Operator.ExplainQueue(x.ctx, &pawlv1.ExplainQueueRequest{Queue: x.r.PathValue("queue")})
	if err != nil {
		return err
	}
	x.open('{')
	x.str("queue", got.GetQueue())
	x.num("ready", got.GetReady())
	x.num("claimable", got.GetClaimable())
	x.num("claimed", got.GetClaimed())
	x.num("waiting", got.GetWaiting())
	x.reasons(got.GetReasons())
	objects(x, "keys", got.GetKeys(), func(k *pawlv1.HeldKey) {
		x.str("key", k.GetKey())
		x.str("code", k.GetCode())
		x.num("tasks", k.GetTasks())
		x.time("until", k.GetUntil())
	})
	objects(x, "idle_types", got.GetIdleTypes(), func(t *pawlv1.IdleType) {
		x.str("type", t.GetType())
		x.num("tasks", t.GetTasks())
	})
	x.time("next_due", got.GetNextDue())
	x.time("oldest_ready_at", got.GetOldestReadyAt())
	x.boolean("partial", got.GetPartial())
	x.close('}')
	return nil
}

func (x *exchange) reasons(reasons []*pawlv1.Reason) {
	x.within("reasons", '[')
	for _, r := range reasons {
		x.why(r)
	}
	x.close(']')
}

func (x *exchange) why(r *pawlv1.Reason) {
	x.open('{')
	x.str("code", r.GetCode())
	x.str("detail", r.GetDetail())
	x.str("change", r.GetChange())
	x.time("since", r.GetSince())
	x.time("until", r.GetUntil())
	x.opt("queue", r.GetQueue())
	x.opt("type", r.GetType())
	x.opt("key", r.GetKey())
	x.opt("cause", r.GetCause())
	x.opt("error", r.GetError())
	x.optNum("limit", int64(r.GetLimit()))
	if rate := r.GetRate(); rate != nil {
		x.within("rate", '{')
		x.num("limit", int64(rate.GetLimit()))
		x.span("period", rate.GetPeriod())
		x.num("burst", int64(rate.GetBurst()))
		x.close('}')
	}
	if len(r.GetRunning()) > 0 {
		objects(x, "running", r.GetRunning(), func(t *pawlv1.Runner) {
			x.str("task_id", t.GetTaskId())
			x.str("worker", t.GetWorker())
			x.time("since", t.GetSince())
			x.time("until", t.GetUntil())
		})
	}
	x.strs("types", r.GetTypes())
	x.optNum("count", r.GetCount())
	if r.GetMore() {
		x.boolean("more", true)
	}
	x.optNum("shard", int64(r.GetShard()))
	x.close('}')
}

// optNum leaves out a number that is 0.
func (x *exchange) optNum(name string, n int64) {
	if n != 0 {
		x.num(name, n)
	}
}
