package pawl

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Option says how a task is enqueued. A Priority is an Option as it stands.
type Option interface{ apply(*pawlv1.TaskSpec) error }

type optionFunc func(*pawlv1.TaskSpec)

func (f optionFunc) apply(s *pawlv1.TaskSpec) error {
	f(s)
	return nil
}

// Priority orders the tasks within a queue. It is an Option: client.Enqueue(ctx, args, pawl.High).
type Priority string

// The priorities. Without one, a task is Normal.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

func (p Priority) apply(s *pawlv1.TaskSpec) (err error) {
	s.Priority, err = p.proto()
	return err
}

// Queue names the queue, "default" without it. A queue comes to be with its first task.
func Queue(name string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Queue = name })
}

// In makes the task due after d from now, by the broker's clock. It replaces At.
func In(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Delay, s.RunAt = durationpb.New(d), nil })
}

// At makes the task due at t. It replaces In.
func At(t time.Time) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Delay, s.RunAt = nil, timestamppb.New(t) })
}

// IdempotencyKey makes a repeat with the same key in the same queue give the first task, with Ref.Duplicate set, for
// IdempotencyTTL. A repeat with another type or payload is refused with ErrConflict.
func IdempotencyKey(key string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.IdempotencyKey = key })
}

// IdempotencyTTL is how long the idempotency key lives, 24 h without it. It is above 0.
func IdempotencyTTL(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.IdempotencyTtl = durationpb.New(d) })
}

// RequestID names this very request, with a UUID: a repeat within ten minutes gives the first task. The client makes one
// for each call and keeps it over its own repeats; give your own if you repeat a call whose context ended.
func RequestID(uuid string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.RequestId = uuid })
}

// MaxAttempts is how often the task may fail before it is a dead letter; without it the queue decides.
func MaxAttempts(n int) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.MaxAttempts = clampInt32(n) })
}

// Retry says how long to wait after a failure; without it the queue decides.
func Retry(p RetryPolicy) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Retry = p.proto() })
}

// Timeout bounds one run: then the context of the handler ends and the attempt counts as a failure. It is above 0.
func Timeout(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Timeout = durationpb.New(d) })
}

// ExpiresIn discards the task unless it has started by then. It is above 0.
func ExpiresIn(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.ExpiresIn = durationpb.New(d) })
}

// Retention is how long the task is kept once it has ended; without it the queue decides.
func Retention(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Retention = durationpb.New(d) })
}

// Key groups tasks for fairness and limits: a tenant, an account.
func Key(key string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Key = key })
}

// Cost is how many tokens of rate limits the task takes when it starts, 1 to 1,000; without it, 1.
func Cost(tokens int) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Cost = clampInt32(tokens) })
}

// Tags adds words to find the task by.
func Tags(tags ...string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Tags = append(s.Tags, tags...) })
}

// Header adds a header, such as a correlation id. The handler sees it. The trace of the call's context goes along by itself:
// traceparent and tracestate are for traces that come from elsewhere.
func Header(name, value string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) {
		if s.Headers == nil {
			s.Headers = make(map[string]string, 1)
		}
		s.Headers[name] = value
	})
}

// RetryPolicy says how long a failed task waits: min(Initial × Factor^(n-1), Max) before attempt n+1, plus up to Jitter of it.
// A zero field means the default.
type RetryPolicy struct {
	Initial time.Duration `json:"initial"` // default 30 s, NoWait for none
	Factor  float64       `json:"factor"`  // at least 1; default 2
	Max     time.Duration `json:"max"`     // default 30 min, NoWait for none
	Jitter  float64       `json:"jitter"`  // a share from 0 to 1; default 0.25, NoJitter for none
}

// NoJitter in RetryPolicy.Jitter stands for a share of 0.
const NoJitter = -1

// NoWait in RetryPolicy.Initial or RetryPolicy.Max stands for a duration of 0.
const NoWait time.Duration = -1

func (p RetryPolicy) proto() *pawlv1.RetryPolicy {
	out := &pawlv1.RetryPolicy{Initial: waitProto(p.Initial), Factor: p.Factor, Max: waitProto(p.Max)}
	switch {
	case p.Jitter == NoJitter:
		out.Jitter = proto.Float64(0)
	case p.Jitter != 0:
		out.Jitter = proto.Float64(p.Jitter)
	}
	return out
}

func waitProto(d time.Duration) *durationpb.Duration {
	if d == NoWait {
		return durationpb.New(0)
	}
	return durationOrNil(d)
}

func waitOf(p *durationpb.Duration) time.Duration {
	if d := p.AsDuration(); p == nil || d != 0 {
		return d
	}
	return NoWait
}

func retryPolicyOf(p *pawlv1.RetryPolicy) RetryPolicy {
	out := RetryPolicy{Initial: waitOf(p.GetInitial()), Factor: p.GetFactor(), Max: waitOf(p.GetMax()), Jitter: p.GetJitter()}
	if p != nil && p.Jitter != nil && p.GetJitter() == 0 {
		out.Jitter = NoJitter
	}
	return out
}
