package apiproto

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// MaxNeedle bounds the text to search for in errors and payloads.
const MaxNeedle = 1 << 10

// FilterOf decodes and validates a filter of tasks.
func FilterOf(p *pawlv1.Filter, l task.Limits) (f broker.Filter, err error) {
	f = broker.Filter{Queue: p.GetQueue(), Type: p.GetType(), Tag: p.GetTag(), Key: p.GetKey(), Worker: p.GetWorker(), Error: p.GetError(),
		Fingerprint: p.GetFingerprint(), Text: p.GetQ()}
	if f.Queue != "" {
		if err := task.CheckQueue("queue", f.Queue, l); err != nil {
			return f, err
		}
	}
	for _, n := range []struct{ field, value string }{{"type", f.Type}, {"tag", f.Tag}, {"key", f.Key}, {"worker", f.Worker}} {
		if err := task.CheckName(n.field, n.value, l); err != nil {
			return f, err
		}
	}
	for _, n := range []struct{ field, value string }{{"error", f.Error}, {"q", f.Text}} {
		if len(n.value) > MaxNeedle {
			return f, task.Invalid(n.field, "%d bytes, at most %d are allowed", len(n.value), MaxNeedle)
		}
	}
	if f.Fingerprint != "" && !isFingerprint(f.Fingerprint) {
		return f, task.Invalid("fingerprint", "%q is not 16 digits of 0-9 and a-f, as in a group of dead letters",
			task.Cut(f.Fingerprint, 64))
	}
	if f.Operation, err = OptionalID("operation", p.GetOperation()); err != nil {
		return f, err
	}
	if f.States, err = StatesOf("state", p.GetStates()); err != nil {
		return f, err
	}
	for _, c := range p.GetPayload() {
		f.Payload = append(f.Payload, broker.PayloadField{Path: c.GetPath(), Value: c.GetValue()})
	}
	if err := broker.CheckPayload(f.Payload); err != nil {
		return f, err
	}
	if f.CreatedAfter, err = MomentOf("created_after", p.GetCreatedAfter()); err != nil {
		return f, err
	}
	f.CreatedBefore, err = MomentOf("created_before", p.GetCreatedBefore())
	return f, err
}

// isFingerprint reports whether a text has the form of a fingerprint.
func isFingerprint(s string) bool {
	return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == ""
}

// MomentOf converts a time to one that shards can compare; 0 if it is absent.
func MomentOf(field string, t *timestamppb.Timestamp) (broker.Time, error) {
	at, err := TimeOf(field, t)
	if at.IsZero() {
		return 0, err
	}
	if at.Year() < 1970 { // the upper bound is 9999 anyway
		return 0, task.Invalid(field, "%s is not between the years 1970 and 9999", at.Format(time.RFC3339))
	}
	return max(broker.TimeOf(at), 1), nil
}

// StatesOf returns the states in a field.
func StatesOf(field string, p []pawlv1.State) (states []task.State, err error) {
	if len(p) > len(task.States) {
		return nil, task.Invalid(field, "%d states, at most %d are allowed", len(p), len(task.States))
	}
	for _, s := range p {
		if s < pawlv1.State_STATE_SCHEDULED || s > pawlv1.State_STATE_CANCELLED {
			return nil, task.Invalid(field, "%d is not a state", s)
		}
		states = append(states, task.State(s))
	}
	return states, nil
}
