package pawl

import (
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/spec"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// Option sets how a task is enqueued.
type Option interface{ spec.Option }

// Priority sets the task's priority in its queue; default Normal.
func Priority(p PriorityLevel) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) (err error) {
		s.Priority, err = convert.PriorityProto(p)
		return err
	})
}

// Queue sets the queue; default "default". A queue is created with its first task.
func Queue(name string) Option {
	return textOption("queue", name, func(s *pawlv1.TaskSpec, name *string) { s.Queue = name })
}

// In makes the task due d from now, by the broker's clock. It replaces At.
func In(d time.Duration) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.Delay, s.RunAt = durationpb.New(d), nil })
}

// At makes the task due at t. It replaces In.
func At(t time.Time) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.Delay, s.RunAt = nil, timestamppb.New(t) })
}

// IdempotencyKey makes a repeated enqueue with the same key in the same queue return the first task, with Ref.Duplicate set, for
// IdempotencyTTL. A repeat with another type or payload fails with ErrConflict.
func IdempotencyKey(key string) Option {
	return textOption("idempotency_key", key, func(s *pawlv1.TaskSpec, key *string) { s.IdempotencyKey = key })
}

// IdempotencyTTL sets how long the idempotency key is kept; default 24 h. It must be above 0.
func IdempotencyTTL(d time.Duration) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.IdempotencyTtl = durationpb.New(d) })
}

// RequestID identifies this request by a UUID: a repeat within ten minutes returns the first task. The client generates one for each call
// and keeps it for its own retries; set your own if you retry a call whose context ended.
func RequestID(uuid string) Option {
	return textOption("request_id", uuid, func(s *pawlv1.TaskSpec, uuid *string) { s.RequestId = uuid })
}

// MaxAttempts sets how often the task may fail before it becomes a dead letter; default: the queue's.
func MaxAttempts(n int) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) error {
		s.MaxAttempts = convert.Int32(n)
		return notZero("max_attempts", n)
	})
}

// Retry sets how long to wait after a failure; default: the queue's.
func Retry(p RetryPolicy) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.Retry = convert.RetryPolicyProto(p) })
}

// Timeout limits each run: when it expires, the handler's context ends and the attempt counts as a failure. It must be above 0.
func Timeout(d time.Duration) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.Timeout = durationpb.New(d) })
}

// ExpiresIn discards the task unless it starts within d. It must be above 0.
func ExpiresIn(d time.Duration) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.ExpiresIn = durationpb.New(d) })
}

// Retention sets how long the task is kept after it has ended; default: the queue's. With 0 it is removed as soon as it has ended: its
// result can't be read, and Wait may return ErrNotFound.
func Retention(d time.Duration) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.Retention = durationpb.New(d) })
}

// Key groups tasks for fairness and limits, by tenant or account for example.
func Key(key string) Option {
	return textOption("key", key, func(s *pawlv1.TaskSpec, key *string) { s.Key = key })
}

// Cost sets how many rate limit tokens the task takes when it starts, 1 to 1,000; default 1.
func Cost(tokens int) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) error {
		s.Cost = convert.Int32(tokens)
		return notZero("cost", tokens)
	})
}

// plain is an option that is never refused.
func plain(set func(*pawlv1.TaskSpec)) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) error {
		set(s)
		return nil
	})
}

// textOption sets a text. It refuses an empty one, such as an unset variable: the task would be in the default queue, or have no key.
func textOption(field, text string, set func(*pawlv1.TaskSpec, *string)) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) error {
		if text == "" {
			return convert.Invalid(field, "is empty: leave the option out")
		}
		set(s, &text)
		return nil
	})
}

// notZero refuses 0, which the broker would take for its default.
func notZero(field string, n int) error {
	if n == 0 {
		return convert.Invalid(field, "0 is less than 1")
	}
	return nil
}

// Tags adds tags by which the task can be found.
func Tags(tags ...string) Option {
	return plain(func(s *pawlv1.TaskSpec) { s.Tags = append(s.Tags, tags...) })
}

// Header adds a header, such as a correlation id, that the handler can read. The trace of the call's context is propagated without it: set
// traceparent and tracestate only for traces that come from elsewhere.
func Header(name, value string) Option {
	return plain(func(s *pawlv1.TaskSpec) {
		if s.Headers == nil {
			s.Headers = make(map[string]string, 1)
		}
		s.Headers[name] = value
	})
}

// Unique limits the queue to one task per key at a time:
//
//	client.Enqueue(ctx, args, pawl.Unique(pawl.UniqueOpts{Key: "report-7", OnConflict: pawl.OnConflictKeepLast}))
//
// The key is held from the enqueue until the task leaves UniqueOpts.States. By default it is released the instant the task ends, however
// it ends. With OnConflictReject the enqueue fails with ErrConflict if another task holds the key.
func Unique(u UniqueOpts) Option {
	return spec.Set(func(s *pawlv1.TaskSpec) (err error) {
		s.Unique, err = convert.UniqueProto(u)
		return err
	})
}
