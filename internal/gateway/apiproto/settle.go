package apiproto

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// HoldOf decodes the claim that a request is about.
func HoldOf(ns, id, token string) (h broker.Hold, err error) {
	h.Namespace = ns
	if h.ID, err = IDOf("task_id", id); err != nil {
		return h, err
	}
	h.Token, err = task.ParseToken(token)
	return h, err
}

// AckOf decodes and validates an ack.
func AckOf(ns string, r *pawlv1.AckRequest, l task.Limits) (s broker.Settle, err error) {
	s = broker.Settle{Verb: broker.Ack, Result: broker.Result{Data: r.GetResult(), ContentType: contract.ContentType(r.GetContentType())}}
	if s.Hold, err = HoldOf(ns, r.GetTaskId(), r.GetClaimToken()); err != nil {
		return s, err
	}
	if err := task.CheckName("content_type", s.Result.ContentType, l); err != nil {
		return s, err
	}
	return s, CheckData("result", s.Result.Data, s.Result.ContentType, l)
}

// FailOf decodes and validates a fail. It cuts long texts of errors.
func FailOf(ns string, r *pawlv1.FailRequest, l task.Limits) (s broker.Settle, err error) {
	s = broker.Settle{Verb: broker.Fail}
	if s.Hold, err = HoldOf(ns, r.GetTaskId(), r.GetClaimToken()); err != nil {
		return s, err
	}
	switch r.GetOutcome() {
	case pawlv1.FailOutcome_FAIL_OUTCOME_UNSPECIFIED, pawlv1.FailOutcome_FAIL_OUTCOME_RETRY:
		s.Fail.Action = broker.FailRetry
	case pawlv1.FailOutcome_FAIL_OUTCOME_DEAD:
		s.Fail.Action = broker.FailDead
	case pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD:
		s.Fail.Action = broker.FailDiscard
	case pawlv1.FailOutcome_FAIL_OUTCOME_POISON:
		s.Fail.Action = broker.FailPoison
	default:
		return s, task.Invalid("outcome", "%d is not retry, dead, discard or poison", r.GetOutcome())
	}
	e := r.GetError()
	s.Fail.Failure = broker.Failure{Message: task.Cut(e.GetMessage(), task.MaxErrorText), Type: task.Cut(e.GetType(), l.Name),
		Stack: task.Cut(e.GetStack(), task.MaxErrorText)}
	if r.GetRetryIn() == nil {
		return s, nil
	}
	if s.Fail.Action != broker.FailRetry {
		return s, task.Invalid("retry_in", "is given with an outcome other than retry")
	}
	in, err := delayOf("retry_in", r.GetRetryIn())
	s.Fail.RetryIn = &in
	return s, err
}

// ExtendOf decodes and validates an extension.
func ExtendOf(ns string, r *pawlv1.ExtendRequest) (s broker.Settle, err error) {
	s = broker.Settle{Verb: broker.Extend}
	if s.Hold, err = HoldOf(ns, r.GetTaskId(), r.GetClaimToken()); err != nil {
		return s, err
	}
	if r.GetLease() != nil {
		if s.Extend.Lease, err = SpanOf("lease", r.GetLease()); err != nil {
			return s, err
		}
		if err := task.CheckLease("lease", s.Extend.Lease); err != nil {
			return s, err
		}
	}
	if p := r.GetProgress(); p != nil {
		if !(p.GetPercent() >= 0 && p.GetPercent() <= 100) {
			return s, task.Invalid("progress.percent", "%v is not between 0 and 100", p.GetPercent())
		}
		s.Extend.Progress = &broker.Progress{Percent: p.GetPercent() + 0, Text: task.Cut(p.GetMessage(), task.MaxProgressText)}
	}
	if r.Checkpoint != nil {
		if len(r.GetCheckpoint()) > task.MaxCheckpoint {
			return s, &task.Error{Code: task.CodePayloadTooLarge, Field: "checkpoint",
				Message: task.Invalid("checkpoint", "%d bytes, at most %d are allowed", len(r.GetCheckpoint()), task.MaxCheckpoint).Message}
		}
		checkpoint := r.GetCheckpoint()
		s.Extend.Checkpoint = &checkpoint
	}
	return s, nil
}

// ReleaseOf decodes and validates a release.
func ReleaseOf(ns string, r *pawlv1.ReleaseRequest) (s broker.Settle, err error) {
	s = broker.Settle{Verb: broker.Release}
	if s.Hold, err = HoldOf(ns, r.GetTaskId(), r.GetClaimToken()); err != nil {
		return s, err
	}
	s.Delay, err = delayOf("delay", r.GetDelay())
	return s, err
}

func delayOf(field string, p *durationpb.Duration) (time.Duration, error) {
	d, err := SpanOf(field, p)
	if err != nil {
		return 0, err
	}
	if d < 0 || d > task.MaxDelay {
		return 0, task.Invalid(field, "%v is not between 0 and %v", d, task.MaxDelay)
	}
	return d, nil
}

// SettledProto fills in the result of a verb that was not refused, in an answer allocated by the caller.
func SettledProto(to *pawlv1.Settled, verb broker.Verb, s *broker.Settled) {
	to.State, to.Status = StateProto(s.State), StatusProto(s.State)
	switch verb {
	case broker.Fail, broker.Release:
		to.NextRunAt = TimeProto(s.NextRunAt)
	case broker.Extend:
		to.LeaseExpiresAt = TimeProto(s.LeaseUntil)
	}
}
