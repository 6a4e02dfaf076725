package rest

import (
	"maps"
	"slices"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// The answers of REST, each from the answer of gRPC.

// place writes where a task is in its life.
func (x *exchange) place(status pawlv1.Status, state pawlv1.State) {
	x.str("status", contract.Statuses[status])
	x.str("state", task.State(state).String())
}

func (x *exchange) enqueued(e *pawlv1.Enqueued) {
	x.open('{')
	x.str("task_id", e.GetTaskId())
	x.place(e.GetStatus(), e.GetState())
	x.time("created_at", e.GetCreatedAt())
	x.boolean("duplicate", e.GetDuplicate())
	x.close('}')
}

// itemError writes why one item of many was refused.
func (x *exchange) itemError(e *pawlv1.Error) {
	x.within("error", '{')
	x.str("code", e.GetCode())
	x.str("message", e.GetMessage())
	x.opt("reason", e.GetReason())
	x.opt("field", e.GetField())
	x.opt("holder", e.GetHolder())
	if e.GetState() != 0 {
		x.str("state", task.State(e.GetState()).String())
	}
	x.span("retry_after", e.GetRetryAfter())
	x.close('}')
}

// objects writes a list of them, each with its fields.
func objects[T any](x *exchange, name string, items []T, fields func(T)) {
	x.within(name, '[')
	for _, it := range items {
		x.open('{')
		fields(it)
		x.close('}')
	}
	x.close(']')
}

// listPage writes a page of a list, and where the next begins.
func listPage[T any](x *exchange, items []T, next string, fields func(T)) {
	x.open('{')
	objects(x, "items", items, fields)
	x.str("next_cursor", next)
	x.close('}')
}

// taskPage is a page of tasks.
type taskPage interface {
	GetItems() []*pawlv1.Task
	GetNextCursor() string
	GetSearched() *pawlv1.Searched
}

func (x *exchange) tasks(p taskPage) {
	x.open('{')
	x.within("items", '[')
	for _, t := range p.GetItems() {
		x.task(t)
	}
	x.close(']')
	x.str("next_cursor", p.GetNextCursor())
	if s := p.GetSearched(); s != nil {
		x.within("searched", '{')
		x.num("rows", s.GetRows())
		x.time("until", s.GetUntil())
		x.close('}')
	}
	x.close('}')
}

func (x *exchange) task(t *pawlv1.Task) {
	x.open('{')
	x.str("task_id", t.GetTaskId())
	x.str("type", t.GetType())
	x.str("queue", t.GetQueue())
	x.place(t.GetStatus(), t.GetState())
	x.opt("reason", t.GetReason())
	x.str("priority", task.Priority(t.GetPriority()).String())
	x.data("payload", t.GetPayload(), t.GetContentType())
	x.opt("content_type", t.GetContentType())
	x.data("result", t.GetResult(), t.GetResultContentType())
	x.opt("result_content_type", t.GetResultContentType())
	x.taskRuns(t)
	x.taskTimes(t)
	x.taskOptions(t)
	x.opt("etag", t.GetEtag())
	x.close('}')
}

// taskRuns writes what came of a task so far.
func (x *exchange) taskRuns(t *pawlv1.Task) {
	x.num("attempts", int64(t.GetAttempts()))
	x.num("max_attempts", int64(t.GetMaxAttempts()))
	x.num("failures", int64(t.GetFailures()))
	x.num("crashes", int64(t.GetCrashes()))
	x.num("releases", int64(t.GetReleases()))
	x.num("snoozes", int64(t.GetSnoozes()))
	x.num("fence", t.GetFence())
	x.within("attempt_log", '[')
	for _, a := range t.GetAttemptLog() {
		x.attempt(a)
	}
	x.close(']')
	if p := t.GetProgress(); p != nil {
		x.within("progress", '{')
		x.float("percent", p.GetPercent())
		x.opt("message", p.GetMessage())
		x.close('}')
	}
	x.blob("checkpoint", t.GetCheckpoint())
	x.opt("worker", t.GetWorker())
}

func (x *exchange) attempt(a *pawlv1.Attempt) {
	x.open('{')
	x.num("attempt", int64(a.GetAttempt()))
	x.num("fence", a.GetFence())
	x.str("worker", a.GetWorker())
	x.time("started_at", a.GetStartedAt())
	x.time("ended_at", a.GetEndedAt())
	if o := task.Outcome(a.GetOutcome()); o != task.OutcomeNone {
		x.str("outcome", o.String())
	}
	if e := a.GetError(); e != nil {
		x.within("error", '{')
		x.str("message", e.GetMessage())
		x.opt("type", e.GetType())
		x.opt("stack", e.GetStack())
		x.close('}')
	}
	x.span("waited", a.GetWaited())
	x.time("next_run_at", a.GetNextRunAt())
	x.close('}')
}

func (x *exchange) taskTimes(t *pawlv1.Task) {
	x.time("created_at", t.GetCreatedAt())
	x.time("run_at", t.GetRunAt())
	x.time("claimed_at", t.GetClaimedAt())
	x.time("lease_expires_at", t.GetLeaseExpiresAt())
	x.time("ended_at", t.GetEndedAt())
	x.time("expires_at", t.GetExpiresAt())
	x.time("kept_until", t.GetKeptUntil())
}

func (x *exchange) taskOptions(t *pawlv1.Task) {
	x.opt("idempotency_key", t.GetIdempotencyKey())
	x.opt("key", t.GetKey())
	if n := t.GetCost(); n > 1 {
		x.num("cost", int64(n))
	}
	x.unique(t.GetUnique())
	x.opt("waits_for", t.GetWaitsFor())
	x.opt("group_id", t.GetGroupId())
	x.chained(t)
	x.opt("moved_to", t.GetMovedTo())
	x.opt("moved_from", t.GetMovedFrom())
	x.strs("tags", t.GetTags())
	x.texts("headers", t.GetHeaders())
	if t.GetRetry() != nil {
		x.retry(t.GetRetry())
	}
	x.span("timeout", t.GetTimeout())
	x.span("retention", t.GetRetention())
}

func (x *exchange) retry(r *pawlv1.RetryPolicy) {
	x.within("retry", '{')
	x.span("initial", r.GetInitial())
	x.float("factor", r.GetFactor())
	x.span("max", r.GetMax())
	x.float("jitter", r.GetJitter())
	x.close('}')
}

func (x *exchange) claimed(c *pawlv1.ClaimedTask) {
	x.open('{')
	x.str("task_id", c.GetTaskId())
	x.str("type", c.GetType())
	x.str("queue", c.GetQueue())
	x.data("payload", c.GetPayload(), c.GetContentType())
	x.opt("content_type", c.GetContentType())
	x.str("priority", task.Priority(c.GetPriority()).String())
	x.num("attempt", int64(c.GetAttempt()))
	x.num("max_attempts", int64(c.GetMaxAttempts()))
	x.str("claim_token", c.GetClaimToken())
	x.num("fence", c.GetFence())
	x.time("lease_expires_at", c.GetLeaseExpiresAt())
	x.span("lease", c.GetLease())
	x.span("timeout", c.GetTimeout())
	x.texts("headers", c.GetHeaders())
	x.blob("checkpoint", c.GetCheckpoint())
	x.time("created_at", c.GetCreatedAt())
	x.time("ready_at", c.GetReadyAt())
	x.opt("key", c.GetKey())
	x.strs("tags", c.GetTags())
	x.opt("idempotency_key", c.GetIdempotencyKey())
	x.opt("group_id", c.GetGroupId())
	x.parent(c.GetParent())
	x.close('}')
}

func (x *exchange) queueAnswer(q *pawlv1.Queue) {
	r := q.GetReadyByPriority()
	x.open('{')
	x.str("queue", q.GetQueue())
	x.boolean("paused", q.GetPaused())
	x.opt("paused_reason", q.GetPausedReason())
	x.opt("paused_by", q.GetPausedBy())
	x.time("paused_at", q.GetPausedAt())
	x.holds(q.GetHolds())
	x.breakerStates(q)
	x.depth(q.GetDepth())
	x.within("ready_by_priority", '{')
	x.num("high", r.GetHigh())
	x.num("normal", r.GetNormal())
	x.num("low", r.GetLow())
	x.close('}')
	x.float("oldest_ready_age_seconds", q.GetOldestReadyAgeSeconds())
	x.lately(q)
	x.settings(q.GetSettings())
	x.num("version", q.GetVersion())
	x.time("created_at", q.GetCreatedAt())
	if parts := q.GetParts(); len(parts) > 0 {
		objects(x, "parts", parts, func(p *pawlv1.QueuePart) {
			x.num("shard", int64(p.GetShard()))
			x.num("slots", int64(p.GetSlots()))
			x.boolean("moving", p.GetMoving())
			x.boolean("own", p.GetOwn())
			x.depth(p.GetDepth())
		})
	}
	x.close('}')
}

func (x *exchange) depth(d *pawlv1.Depth) {
	x.within("depth", '{')
	x.num("scheduled", d.GetScheduled())
	x.num("ready", d.GetReady())
	x.num("claimed", d.GetClaimed())
	x.num("retrying", d.GetRetrying())
	x.num("held", d.GetHeld())
	x.num("dead", d.GetDead())
	x.num("poisoned", d.GetPoisoned())
	x.close('}')
}

func (x *exchange) settings(s *pawlv1.QueueSettings) {
	x.within("settings", '{')
	if w := s.GetWeights(); w != nil {
		x.within("weights", '{')
		x.num("high", int64(w.GetHigh()))
		x.num("normal", int64(w.GetNormal()))
		x.num("low", int64(w.GetLow()))
		x.close('}')
	}
	x.retry(s.GetRetry())
	x.num("max_attempts", int64(s.GetMaxAttempts()))
	x.span("lease", s.GetLease())
	x.span("timeout", s.GetTimeout())
	x.retention(s.GetRetention())
	x.num("max_length", s.GetMaxLength())
	x.span("max_wait", s.GetMaxWait())
	x.rules(s.GetMaxRunning(), s.GetRate())
	if k := s.GetPerKey(); k != nil {
		x.within("per_key", '{')
		x.rules(k.GetMaxRunning(), k.GetRate())
		x.close('}')
	}
	if len(s.GetKeys()) > 0 {
		x.within("keys", '{')
		for _, key := range slices.Sorted(maps.Keys(s.GetKeys())) {
			k := s.GetKeys()[key]
			x.within(key, '{')
			x.rules(k.GetMaxRunning(), k.GetRate())
			x.num("weight", int64(k.GetWeight()))
			x.close('}')
		}
		x.close('}')
	}
	if s.GetKeyOrder() != 0 {
		x.str("key_order", contract.KeyOrders[s.GetKeyOrder()])
	}
	x.breakerRules(s)
	x.close('}')
}

func (x *exchange) retention(r *pawlv1.Retention) {
	x.within("retention", '{')
	x.span("succeeded", r.GetSucceeded())
	x.span("discarded", r.GetDiscarded())
	x.span("cancelled", r.GetCancelled())
	x.span("dead", r.GetDead())
	x.span("poisoned", r.GetPoisoned())
	x.close('}')
}

func (x *exchange) rules(running int32, r *pawlv1.Rate) {
	x.num("max_running", int64(running))
	if r != nil {
		x.within("rate", '{')
		x.num("limit", int64(r.GetLimit()))
		x.span("period", r.GetPeriod())
		x.num("burst", int64(r.GetBurst()))
		x.close('}')
	}
}

func (x *exchange) holds(holds []*pawlv1.Hold) {
	if len(holds) == 0 {
		return
	}
	objects(x, "holds", holds, func(h *pawlv1.Hold) {
		x.opt("type", h.GetType())
		x.opt("key", h.GetKey())
		x.opt("reason", h.GetReason())
		x.opt("by", h.GetBy())
		x.time("at", h.GetAt())
	})
}
