package rest

import (
	"math"
	"net/url"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

var queueRoutes = []Route{
	{"GET", "/api/v1/queues", "OperatorService/ListQueues", listQueues},
	{"GET", "/api/v1/queues/{queue}", "OperatorService/GetQueue", getQueue},
	{"PUT", "/api/v1/queues/{queue}", "OperatorService/PutQueue", putQueue},
	{"DELETE", "/api/v1/queues/{queue}", "OperatorService/DeleteQueue", deleteQueue},
	{"POST", "/api/v1/queues/{queue}/pause", "OperatorService/PauseQueue", pauseQueue},
	{"POST", "/api/v1/queues/{queue}/resume", "OperatorService/ResumeQueue", resumeQueue},
	{"POST", "/api/v1/queues/{queue}/purge", "OperatorService/PurgeQueue", purgeQueue},
	{"POST", "/api/v1/queues/{queue}/breakers/close", "OperatorService/CloseBreaker", closeBreaker},
	{"POST", "/api/v1/queues/{queue}/spread", "OperatorService/SpreadQueue", spreadQueue},
	{"POST", "/api/v1/tasks/{id}/retry", "OperatorService/RetryTask", retryTask},
	{"POST", "/api/v1/tasks/{id}/run_now", "OperatorService/RunTaskNow", runTaskNow},
	{"POST", "/api/v1/tasks/{id}/discard", "OperatorService/DiscardTask", discardTask},
}

func listQueues(x *exchange) error {
	limit, cursor, err := x.page("series", "pattern", "having", "order")
	if err != nil {
		return err
	}
	q := x.r.URL.Query()
	req := &pawlv1.ListQueuesRequest{Limit: limit, Cursor: cursor, Pattern: q.Get("pattern")}
	if req.Series, err = spanQuery(q, "series"); err != nil {
		return err
	}
	if req.Having, err = wordQuery[pawlv1.QueueTrait](q, "having", contract.QueueTraits); err != nil {
		return err
	}
	if req.Order, err = wordQuery[pawlv1.QueueOrder](q, "order", contract.QueueOrders); err != nil {
		return err
	}
	got, err := x.API.Operator.ListQueues(x.ctx, req)
	if err != nil {
		return err
	}
	x.open('{')
	x.within("items", '[')
	for _, q := range got.GetItems() {
		x.queueAnswer(q)
	}
	x.close(']')
	x.str("next_cursor", got.GetNextCursor())
	x.close('}')
	return nil
}

// wordQuery reads a parameter that is one of some words; 0 without it.
func wordQuery[N ~int32](q url.Values, name string, words []string) (N, error) {
	s := q.Get(name)
	n := contract.NumberOf[N](words, s)
	if n == 0 && q.Has(name) {
		return 0, task.NoneOf(name, s, words[1:])
	}
	return n, nil
}

func getQueue(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	got, err := x.API.Operator.GetQueue(x.ctx, &pawlv1.GetQueueRequest{Queue: x.r.PathValue("queue")})
	if err == nil {
		x.queueAnswer(got.GetQueue())
	}
	return err
}

func putQueue(x *exchange) error {
	req := &pawlv1.PutQueueRequest{Queue: x.r.PathValue("queue")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "settings":
			req.Settings, err = r.settings(name)
		case "if_version":
			var n int64
			n, err = r.integer(name, 0, math.MaxInt64)
			req.IfVersion = &n
		default:
			err = unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	if req.Settings == nil {
		return task.Invalid("settings", "is needed; {} means the defaults")
	}
	got, err := x.API.Operator.PutQueue(x.ctx, req)
	if err == nil {
		x.queueAnswer(got.GetQueue())
	}
	return err
}

func (r *jsonReader) settings(path string) (*pawlv1.QueueSettings, error) {
	s := &pawlv1.QueueSettings{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "weights":
			s.Weights, err = r.weights(at)
		case "retry":
			s.Retry, err = r.retry(at)
		case "max_attempts":
			s.MaxAttempts, err = r.int32(at, 1, contract.MaxAttempts)
		case "lease":
			s.Lease, err = r.span(at)
		case "timeout":
			s.Timeout, err = r.span(at)
		case "retention":
			s.Retention, err = r.retention(at)
		case "max_length":
			s.MaxLength, err = r.integer(at, 0, math.MaxInt64)
		case "max_running":
			s.MaxRunning, err = r.int32(at, 0, math.MaxInt32)
		case "max_wait":
			s.MaxWait, err = r.span(at)
		case "rate":
			s.Rate, err = r.rateRule(at)
		case "per_key":
			s.PerKey, err = r.keyRules(at)
		case "keys":
			s.Keys, err = r.keys(at)
		case "key_order":
			s.KeyOrder, err = word[pawlv1.KeyOrder](r, at, contract.KeyOrders)
		case "breaker":
			s.Breaker, err = r.breaker(at)
		case "breakers":
			s.Breakers, err = r.breakers(at)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return s, err
}

func (r *jsonReader) rateRule(path string) (*pawlv1.Rate, error) {
	p := &pawlv1.Rate{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "limit":
			p.Limit, err = r.int32(at, 1, math.MaxInt32)
		case "period":
			p.Period, err = r.span(at)
		case "burst":
			p.Burst, err = r.int32(at, 1, math.MaxInt32)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return p, err
}

func (r *jsonReader) keyRules(path string) (*pawlv1.KeyRules, error) {
	p := &pawlv1.KeyRules{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "max_running":
			p.MaxRunning, err = r.int32(at, 0, math.MaxInt32)
		case "rate":
			p.Rate, err = r.rateRule(at)
		case "weight":
			p.Weight, err = r.int32(at, 1, task.MaxWeight)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return p, err
}

func (r *jsonReader) keys(path string) (map[string]*pawlv1.KeyRules, error) {
	keys := map[string]*pawlv1.KeyRules{}
	err := r.fields(path, func(name string) (err error) {
		if len(keys) == task.MaxKeyRules {
			return task.Invalid(path, "more than %d keys", task.MaxKeyRules)
		}
		keys[name], err = r.keyRules(join(path, name))
		return err
	})
	return keys, err
}

func (r *jsonReader) weights(path string) (*pawlv1.PriorityWeights, error) {
	w := &pawlv1.PriorityWeights{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "high":
			w.High, err = r.int32(at, 1, task.MaxWeight)
		case "normal":
			w.Normal, err = r.int32(at, 1, task.MaxWeight)
		case "low":
			w.Low, err = r.int32(at, 1, task.MaxWeight)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return w, err
}

func (r *jsonReader) retention(path string) (*pawlv1.Retention, error) {
	p := &pawlv1.Retention{}
	err := r.fields(path, func(name string) (err error) {
		to := map[string]**durationpb.Duration{"succeeded": &p.Succeeded, "discarded": &p.Discarded, "cancelled": &p.Cancelled,
			"dead": &p.Dead, "poisoned": &p.Poisoned}[name]
		if to == nil {
			return unknown(path, name)
		}
		*to, err = r.span(join(path, name))
		return err
	})
	return p, err
}

func deleteQueue(x *exchange) error {
	if _, err := x.query(); err != nil {
		return err
	}
	if _, err := x.API.Operator.DeleteQueue(x.ctx, &pawlv1.DeleteQueueRequest{Queue: x.r.PathValue("queue")}); err != nil {
		return err
	}
	x.open('{')
	x.close('}')
	return nil
}

// pause reads what a pause is of, and why.
func (x *exchange) pause() (p *pawlv1.PauseQueueRequest, err error) {
	p = &pawlv1.PauseQueueRequest{Queue: x.r.PathValue("queue")}
	err = x.alone(func(r *jsonReader, name string) error {
		to := map[string]*string{"reason": &p.Reason, "type": &p.Type, "key": &p.Key}[name]
		if to == nil {
			return unknown("", name)
		}
		return r.setStr(to, name)
	})
	return p, err
}

// reason reads a body that holds a reason at most.
func (x *exchange) reason() (reason string, err error) {
	err = x.alone(func(r *jsonReader, name string) error {
		if name != "reason" {
			return unknown("", name)
		}
		return r.setStr(&reason, name)
	})
	return reason, err
}

func pauseQueue(x *exchange) error {
	req, err := x.pause()
	if err != nil {
		return err
	}
	got, err := x.API.Operator.PauseQueue(x.ctx, req)
	if err == nil {
		x.queueAnswer(got.GetQueue())
	}
	return err
}

func resumeQueue(x *exchange) error {
	req, err := x.pause()
	if err != nil {
		return err
	}
	got, err := x.API.Operator.ResumeQueue(x.ctx,
		&pawlv1.ResumeQueueRequest{Queue: req.GetQueue(), Reason: req.GetReason(), Type: req.GetType(), Key: req.GetKey()})
	if err == nil {
		x.queueAnswer(got.GetQueue())
	}
	return err
}

func purgeQueue(x *exchange) error {
	reason, err := x.reason()
	if err != nil {
		return err
	}
	x.patience(bulkTime)
	got, err := x.API.Operator.PurgeQueue(x.ctx, &pawlv1.PurgeQueueRequest{Queue: x.r.PathValue("queue"), Reason: reason})
	if err != nil {
		return err
	}
	x.open('{')
	x.num("discarded", got.GetDiscarded())
	x.close('}')
	return nil
}

func spreadQueue(x *exchange) error {
	req := &pawlv1.SpreadQueueRequest{Queue: x.r.PathValue("queue")}
	err := x.alone(func(r *jsonReader, name string) (err error) {
		switch name {
		case "parts":
			req.Parts, err = r.int32(name, 1, contract.MaxParts)
		case "shards":
			err = r.items(name, func(i int) error {
				if i == task.SlotCount {
					return task.Invalid(name, "more than %d items", task.SlotCount)
				}
				n, err := r.int32(name, 1, task.MaxShard)
				req.Shards = append(req.Shards, uint32(n)) // #nosec G115 -- at least 1
				return err
			})
		case "own":
			err = r.boolean(&req.Own, name)
		case "reason":
			err = r.setStr(&req.Reason, name)
		default:
			err = unknown("", name)
		}
		return err
	})
	if err != nil {
		return err
	}
	x.patience(bulkTime)
	got, err := x.API.Operator.SpreadQueue(x.ctx, req)
	if err == nil {
		x.queueAnswer(got.GetQueue())
	}
	return err
}

// nothing reads a body that holds nothing.
func (x *exchange) nothing() error {
	return x.alone(func(_ *jsonReader, name string) error { return unknown("", name) })
}

func retryTask(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	got, err := x.API.Operator.RetryTask(x.ctx, &pawlv1.RetryTaskRequest{TaskId: x.r.PathValue("id")})
	if err == nil {
		x.task(got.GetTask())
	}
	return err
}

func runTaskNow(x *exchange) error {
	if err := x.nothing(); err != nil {
		return err
	}
	got, err := x.API.Operator.RunTaskNow(x.ctx, &pawlv1.RunTaskNowRequest{TaskId: x.r.PathValue("id")})
	if err == nil {
		x.task(got.GetTask())
	}
	return err
}

func discardTask(x *exchange) error {
	reason, err := x.reason()
	if err != nil {
		return err
	}
	got, err := x.API.Operator.DiscardTask(x.ctx, &pawlv1.DiscardTaskRequest{TaskId: x.r.PathValue("id"), Reason: reason})
	if err == nil {
		x.task(got.GetTask())
	}
	return err
}
