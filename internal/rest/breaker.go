package rest

import (
	"maps"
	"slices"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

func closeBreaker(x *exchange) error {
	req := &pawlv1.CloseBreakerRequest{Queue: x.r.PathValue("queue")}
	err := x.alone(func(r *jsonReader, name string) error {
		to := map[string]*string{"type": &req.Type, "reason": &req.Reason}[name]
		if to == nil {
			return unknown("", name)
		}
		return r.setStr(to, name)
	})
	if err != nil {
		return err
	}
	got, err := x.API.Operator.CloseBreaker(x.ctx, req)
	if err == nil {
		x.queueAnswer(got.GetQueue())
	}
	return err
}

func (r *jsonReader) breaker(path string) (*pawlv1.Breaker, error) {
	p := &pawlv1.Breaker{}
	err := r.fields(path, func(name string) (err error) {
		at := join(path, name)
		switch name {
		case "off":
			err = r.boolean(&p.Off, at)
		case "failure_rate":
			p.FailureRate, err = r.int32(at, 1, 100)
		case "window":
			p.Window, err = r.span(at)
		case "min_attempts":
			p.MinAttempts, err = r.int32(at, 1, task.MaxBreakerAttempts)
		case "hold":
			p.Hold, err = r.span(at)
		case "max_hold":
			p.MaxHold, err = r.span(at)
		case "probes":
			p.Probes, err = r.int32(at, 1, task.MaxBreakerProbes)
		default:
			err = unknown(path, name)
		}
		return err
	})
	return p, err
}

func (r *jsonReader) breakers(path string) (map[string]*pawlv1.Breaker, error) {
	rules := map[string]*pawlv1.Breaker{}
	err := r.fields(path, func(name string) (err error) {
		if len(rules) == task.MaxBreakers {
			return task.Invalid(path, "more than %d types", task.MaxBreakers)
		}
		rules[name], err = r.breaker(join(path, name))
		return err
	})
	return rules, err
}

// breakerRules writes the rules of a queue's breakers.
func (x *exchange) breakerRules(s *pawlv1.QueueSettings) {
	if b := s.GetBreaker(); b != nil {
		x.breaker("breaker", b)
	}
	if len(s.GetBreakers()) > 0 {
		x.within("breakers", '{')
		for _, typ := range slices.Sorted(maps.Keys(s.GetBreakers())) {
			x.breaker(typ, s.GetBreakers()[typ])
		}
		x.close('}')
	}
}

func (x *exchange) breaker(name string, b *pawlv1.Breaker) {
	x.within(name, '{')
	if b.GetOff() {
		x.boolean("off", true)
	} else {
		x.num("failure_rate", int64(b.GetFailureRate()))
		x.span("window", b.GetWindow())
		x.num("min_attempts", int64(b.GetMinAttempts()))
		x.span("hold", b.GetHold())
		x.span("max_hold", b.GetMaxHold())
		x.num("probes", int64(b.GetProbes()))
	}
	x.close('}')
}

// breakerStates writes how the breakers stand that are not closed.
func (x *exchange) breakerStates(q *pawlv1.Queue) {
	if q.GetBreakersOpen() == 0 {
		return
	}
	objects(x, "breakers", q.GetBreakers(), func(b *pawlv1.BreakerStatus) {
		x.str("type", b.GetType())
		x.str("state", b.GetState())
		x.str("reason", b.GetReason())
		x.time("since", b.GetSince())
		x.time("until", b.GetUntil())
		x.num("attempts", int64(b.GetAttempts()))
		x.num("failed", int64(b.GetFailed()))
		x.span("window", b.GetWindow())
		x.opt("error", b.GetError())
		x.num("opened", int64(b.GetOpened()))
		x.num("passed", int64(b.GetPassed()))
		x.num("probes", int64(b.GetProbes()))
		x.opt("probe_task_id", b.GetProbeTaskId())
		if b.GetShard() != 0 {
			x.num("shard", int64(b.GetShard()))
		}
	})
	x.num("breakers_open", int64(q.GetBreakersOpen()))
}
