package rest

import pawlv1 "github.com/pawlq/pawl/api/pawl/v1"

var registryRoutes = []Route{
	{"GET", "/api/v1/workers", "RosterService/ListWorkers", listWorkers},
	{"GET", "/api/v1/workers/{worker}", "RosterService/GetWorker", getWorker},
	{"POST", "/api/v1/workers/{worker}/quiet", "RosterService/QuietWorker", quietWorker},
	{"POST", "/api/v1/workers/{worker}/resume", "RosterService/ResumeWorker", resumeWorker},
}

func listWorkers(x *exchange) error {
	q, err := x.query("limit", "cursor", "queue", "type", "node", "lost")
	if err != nil {
		return err
	}
	limit, err := limitText(q)
	if err != nil {
		return err
	}
	req := &pawlv1.ListWorkersRequest{Queue: q.Get("queue"), Type: q.Get("type"), Node: q.Get("node"), Limit: limit, Cursor: q.Get("cursor")}
	if q.Has("lost") {
		lost, err := flagText(q, "lost")
		if err != nil {
			return err
		}
		req.Lost = &lost
	}
	got, err := x.API.Roster.ListWorkers(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	objects(x, "items", got.GetItems(), x.workerFields)
	x.str("next_cursor", got.GetNextCursor())
	if len(got.GetSilentNodes()) > 0 {
		objects(x, "silent_nodes", got.GetSilentNodes(), func(n *pawlv1.SilentNode) {
			x.str("node", n.GetNode())
			x.str("reason", n.GetReason())
		})
	}
	x.close('}')
	return nil
}

func getWorker(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Roster.GetWorker(x.ctx, &pawlv1.GetWorkerRequest{WorkerId: x.r.PathValue("worker")})
	if err == nil {
		x.workerAnswer(got.GetWorker())
	}
	return err
}

func quietWorker(x *exchange) error {
	req := &pawlv1.QuietWorkerRequest{WorkerId: x.r.PathValue("worker")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "reason":
			return r.setStr(&req.Reason, name)
		case "for":
			req.For, err = r.span(name)
			return err
		}
		return unknown("", name)
	})
	if err != nil {
		return err
	}
	got, err := x.API.Roster.QuietWorker(x.ctx, req)
	if err == nil {
		x.workerAnswer(got.GetWorker())
	}
	return err
}

func resumeWorker(x *exchange) error {
	reason, err := x.reason()
	if err != nil {
		return err
	}
	got, err := x.API.Roster.ResumeWorker(x.ctx, &pawlv1.ResumeWorkerRequest{WorkerId: x.r.PathValue("worker"), Reason: reason})
	if err == nil {
		x.workerAnswer(got.GetWorker())
	}
	return err
}

func (x *exchange) workerAnswer(w *pawlv1.Worker) {
	x.open('{')
	x.workerFields(w)
	x.close('}')
}

func (x *exchange) workerFields(w *pawlv1.Worker) {
	x.str("worker_id", w.GetWorkerId())
	x.str("worker", w.GetWorker())
	x.opt("node", w.GetNode())
	x.boolean("connected", w.GetConnected())
	x.opt("host", w.GetHost())
	if w.GetPid() != 0 {
		x.num("pid", int64(w.GetPid()))
	}
	x.opt("version", w.GetVersion())
	x.opt("address", w.GetAddress())
	x.takes(w)
	x.num("slots", int64(w.GetSlots()))
	x.num("running", int64(w.GetRunning()))
	objects(x, "tasks", w.GetTasks(), func(t *pawlv1.RunningTask) {
		x.str("task_id", t.GetTaskId())
		x.str("type", t.GetType())
		x.str("queue", t.GetQueue())
		x.num("attempt", int64(t.GetAttempt()))
		x.time("since", t.GetSince())
		x.time("lease_expires_at", t.GetLeaseExpiresAt())
	})
	x.time("connected_at", w.GetConnectedAt())
	x.time("seen_at", w.GetSeenAt())
	x.time("claimed_at", w.GetClaimedAt())
	x.boolean("draining", w.GetDraining())
	x.time("lost_at", w.GetLostAt())
	x.opt("lost_reason", w.GetLostReason())
	x.quietWord(w.GetQuiet())
}

// takes writes which tasks a worker takes.
func (x *exchange) takes(w *pawlv1.Worker) {
	objects(x, "queues", w.GetQueues(), func(q *pawlv1.QueueShare) {
		x.str("queue", q.GetQueue())
		if q.GetWeight() != 0 {
			x.num("weight", int64(q.GetWeight()))
		}
	})
	x.strs("types", w.GetTypes())
}

func (x *exchange) quietWord(q *pawlv1.QuietWord) {
	if q == nil {
		return
	}
	x.within("quiet", '{')
	x.opt("reason", q.GetReason())
	x.opt("by", q.GetBy())
	x.time("at", q.GetAt())
	x.time("until", q.GetUntil())
	x.close('}')
}
