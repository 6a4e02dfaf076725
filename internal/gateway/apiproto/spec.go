package apiproto

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// SpecOf decodes and validates the spec of a task, and fills in defaults. Payload, tags and headers are shared with p.
func SpecOf(p *pawlv1.TaskSpec, l task.Limits) (s task.Spec, err error) {
	if p == nil {
		return s, task.Invalid("task", "is required")
	}
	if countThen(p.GetThen(), 0) > task.MaxChain { // before allocating anything for them
		return s, task.Invalid("then", "more than %d tasks follow in total", task.MaxChain)
	}
	if s, err = decodeSpec(p, l); err != nil {
		return s, err
	}
	s.Fill()
	if err := s.Check(l); err != nil {
		return s, err
	}
	return s, CheckData("payload", s.Payload, s.ContentType, l)
}

// decodeSpec decodes the spec of a task, without defaults.
func decodeSpec(p *pawlv1.TaskSpec, l task.Limits) (s task.Spec, err error) {
	for _, f := range [...]struct {
		name string
		text *string
	}{{"queue", p.Queue}, {"idempotency_key", p.IdempotencyKey}, {"request_id", p.RequestId}, {"key", p.Key}, {"group_id", p.GroupId}} {
		if f.text != nil && *f.text == "" {
			return s, contract.Empty(f.name)
		}
	}
	s = task.Spec{Type: p.GetType(), Payload: p.GetPayload(), ContentType: contract.ContentType(p.GetContentType()), Queue: p.GetQueue(),
		IdempotencyKey: p.GetIdempotencyKey(), MaxAttempts: int(p.GetMaxAttempts()), Key: p.GetKey(), Tags: p.GetTags(),
		Headers: p.GetHeaders(), Cost: int(p.GetCost())}
	if s.Priority, err = priorityOf(p.GetPriority()); err != nil {
		return s, err
	}
	if err := specTimes(&s, p); err != nil {
		return s, err
	}
	if s.RequestID, err = OptionalID("request_id", p.GetRequestId()); err != nil {
		return s, err
	}
	if p.GetRetry() != nil {
		if s.Retry, err = retryOf(p.GetRetry()); err != nil {
			return s, err
		}
	}
	if p.GetUnique() != nil {
		if s.Unique, err = uniqueOf(p.GetUnique()); err != nil {
			return s, err
		}
	}
	if id := p.GetGroupId(); id != "" {
		group, err := OptionalID("group_id", id)
		if err != nil {
			return s, err
		}
		s.Member = &task.Member{Group: group}
	}
	s.Then, err = thenOf("then", p.GetThen(), l)
	return s, err
}

func specTimes(s *task.Spec, p *pawlv1.TaskSpec) (err error) {
	if s.Delay, err = SpanOf("delay", p.GetDelay()); err != nil {
		return err
	}
	if s.RunAt, err = TimeOf("run_at", p.GetRunAt()); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		from *durationpb.Duration
		to   *time.Duration
	}{{"idempotency_ttl", p.GetIdempotencyTtl(), &s.IdempotencyTTL}, {"timeout", p.GetTimeout(), &s.Timeout},
		{"expires_in", p.GetExpiresIn(), &s.ExpiresIn}} {
		if *f.to, err = SpanOf(f.name, f.from); err != nil {
			return err
		}
		if f.from != nil && *f.to == 0 { // 0 internally stands for "not set"
			return task.Invalid(f.name, "0s is not positive: leave it out to use the default")
		}
	}
	if p.GetRetention() != nil {
		var d time.Duration
		d, err = SpanOf("retention", p.GetRetention())
		s.Retention = &d
	}
	return err
}

// retryOf decodes a retry policy; missing fields get their defaults.
func retryOf(p *pawlv1.RetryPolicy) (*task.Retry, error) {
	r := task.DefaultRetry
	var err error
	if p.GetInitial() != nil {
		if r.Initial, err = SpanOf("retry.initial", p.GetInitial()); err != nil {
			return nil, err
		}
		r.Max = max(r.Max, r.Initial)
	}
	if p.GetMax() != nil {
		if r.Max, err = SpanOf("retry.max", p.GetMax()); err != nil {
			return nil, err
		}
	}
	if p.GetFactor() != 0 {
		r.Factor = p.GetFactor()
	}
	if p.Jitter != nil {
		r.Jitter = p.GetJitter()
	}
	return &r, nil
}

func retryProto(r task.Retry) *pawlv1.RetryPolicy {
	return &pawlv1.RetryPolicy{Initial: durationProto(r.Initial), Factor: r.Factor, Max: durationProto(r.Max), Jitter: &r.Jitter}
}
