package pawl

import (
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Option says how a task is enqueued.
type Option interface {
	// Apply writes it into a request.
	Apply(spec *pawlv1.TaskSpec) error
}

type optionFunc func(*pawlv1.TaskSpec)

func (f optionFunc) Apply(s *pawlv1.TaskSpec) error {
	f(s)
	return nil
}

// checkedOption is an option that may be refused.
type checkedOption func(*pawlv1.TaskSpec) error

func (f checkedOption) Apply(s *pawlv1.TaskSpec) error { return f(s) }

// The priorities. Without one, a task is Normal.
const (
	High   = pawltype.High
	Normal = pawltype.Normal
	Low    = pawltype.Low
)

// RetryPolicy says how long a failed task waits for its next attempt.
type RetryPolicy = pawltype.RetryPolicy

// UniqueOpts say how a task holds a unique key.
type UniqueOpts = pawltype.UniqueOpts

// Priority orders the task among the others of its queue; without it, it is Normal.
func Priority(p pawltype.Priority) Option {
	return checkedOption(func(s *pawlv1.TaskSpec) (err error) {
		s.Priority, err = convert.PriorityProto(p)
		return err
	})
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
	return optionFunc(func(s *pawlv1.TaskSpec) { s.MaxAttempts = convert.Int32(n) })
}

// Retry says how long to wait after a failure; without it the queue decides.
func Retry(p pawltype.RetryPolicy) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Retry = convert.RetryPolicyProto(p) })
}

// Timeout bounds one run: then the context of the handler ends and the attempt counts as a failure. It is above 0.
func Timeout(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Timeout = durationpb.New(d) })
}

// ExpiresIn discards the task unless it has started by then. It is above 0.
func ExpiresIn(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.ExpiresIn = durationpb.New(d) })
}

// Retention is how long the task is kept once it has ended; without it the queue decides. With 0 it is gone as soon as it has ended: nobody
// can read its result, and Wait may return ErrNotFound.
func Retention(d time.Duration) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Retention = durationpb.New(d) })
}

// Key groups tasks for fairness and limits: a tenant, an account.
func Key(key string) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Key = key })
}

// Cost is how many tokens of rate limits the task takes when it starts, 1 to 1,000; without it, 1.
func Cost(tokens int) Option {
	return optionFunc(func(s *pawlv1.TaskSpec) { s.Cost = convert.Int32(tokens) })
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

// Unique lets the queue have one task of a key at a time:
//
//	client.Enqueue(ctx, args, pawl.Unique(pawl.UniqueOpts{Key: "report-7", OnConflict: pawltype.OnConflictKeepLast}))
//
// The key is held from the enqueue until the task leaves the states, and is free in the instant it ends, however it ends. With
// OnConflictReject the task must be new: if another one holds the key, that is ErrConflict.
func Unique(u UniqueOpts) Option {
	return checkedOption(func(s *pawlv1.TaskSpec) (err error) {
		s.Unique, err = convert.UniqueProto(u)
		return err
	})
}
