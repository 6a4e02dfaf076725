// Package apiproto converts between the messages of the API and the types of the broker and the cluster, and encodes the cursors of
// lists.
//
// XOf decodes and validates: its errors are refusals (task.Error) that name the field. XProto encodes. Messages share payloads, tags
// and headers with what they were made from. Everything here is a pure function: it knows no callers, no shards and no connections.
package apiproto

import (
	"math"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// The API's enums have the numbers of package task; a test keeps them in line.

// StateProto converts a state.
func StateProto(s task.State) pawlv1.State { return pawlv1.State(s) }

// priorityProto converts a priority.
func priorityProto(p task.Priority) pawlv1.Priority { return pawlv1.Priority(p) }
func outcomeProto(o task.Outcome) pawlv1.Outcome    { return pawlv1.Outcome(o) }

var statusByState = [...]pawlv1.Status{
	task.Scheduled: pawlv1.Status_STATUS_QUEUED,
	task.Ready:     pawlv1.Status_STATUS_QUEUED,
	task.Retrying:  pawlv1.Status_STATUS_QUEUED,
	task.Claimed:   pawlv1.Status_STATUS_PROCESSING,
	task.Succeeded: pawlv1.Status_STATUS_COMPLETED,
	task.Dead:      pawlv1.Status_STATUS_FAILED,
	task.Discarded: pawlv1.Status_STATUS_FAILED,
	task.Poisoned:  pawlv1.Status_STATUS_FAILED,
	task.Cancelled: pawlv1.Status_STATUS_CANCELLED,
}

// StatusProto returns the status that sums up a state.
func StatusProto(s task.State) pawlv1.Status {
	if int(s) < len(statusByState) {
		return statusByState[s]
	}
	return pawlv1.Status_STATUS_UNSPECIFIED
}

// priorityOf converts a priority; 0 if it is not set.
func priorityOf(p pawlv1.Priority) (task.Priority, error) {
	if p < 0 || p > pawlv1.Priority_PRIORITY_LOW {
		return 0, task.Invalid("priority", "%d is not high, normal or low", p)
	}
	return task.Priority(p), nil
}

// textProto omits a text that is not set.
func textProto(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// TimeProto omits a time that is not set.
func TimeProto(t broker.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	us := int64(t)
	s, rest := us/1e6, us%1e6
	if rest < 0 {
		s, rest = s-1, rest+1e6
	}
	return &timestamppb.Timestamp{Seconds: s, Nanos: int32(rest * 1000)}
}

// WallProto converts a time of the wall clock. It omits a time that is not set.
func WallProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// spanProto omits a duration of 0.
func spanProto(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// SpanOf converts a duration; 0 if it is absent.
func SpanOf(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, task.Invalid(field, "%ds %dns is not a duration", d.GetSeconds(), d.GetNanos())
	}
	return d.AsDuration(), nil
}

// TimeOf converts a time; the zero time if it is absent. It refuses what stands for no time in callers' languages.
func TimeOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if at := t.AsTime(); at.IsZero() || at.Equal(time.Unix(0, 0)) {
		return time.Time{}, task.Invalid(field, "%s stands for no time: leave it out", at.Format(time.RFC3339))
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, task.Invalid(field, "%ds %dns is not a time", t.GetSeconds(), t.GetNanos())
	}
	return t.AsTime(), nil
}

// Int32Of converts a number, and bounds it by what an int32 holds.
func Int32Of[N ~int | ~int64](n N) int32 {
	return int32(max(math.MinInt32, min(int64(n), math.MaxInt32)))
}

// WaitOf returns how long a call may wait for its answer.
func WaitOf(d *durationpb.Duration) (time.Duration, error) {
	wait, err := SpanOf("wait", d)
	if err != nil {
		return 0, err
	}
	if wait < 0 || wait > contract.MaxWait {
		return 0, task.Invalid("wait", "%v is not between 0 and %v", wait, contract.MaxWait)
	}
	return wait, nil
}

// LimitOf returns how many items a page of a list may have.
func LimitOf(n int32) (int, error) {
	if n == 0 {
		return contract.DefaultPage, nil
	}
	if n < 0 || n > contract.MaxPage {
		return 0, task.Invalid("limit", "%d is not between 1 and %d", n, contract.MaxPage)
	}
	return int(n), nil
}

// CheckData rejects a payload or result that does not match its content type, or is too large. It may be empty.
func CheckData(field string, data []byte, contentType string, l task.Limits) error {
	if len(data) > l.Payload {
		return &task.Error{Code: task.CodePayloadTooLarge, Field: field,
			Message: task.Invalid(field, "%d bytes, at most %d are allowed", len(data), l.Payload).Message}
	}
	if len(data) == 0 || !contract.IsJSON(contentType) {
		return nil
	}
	if err := apijson.CheckJSON(data); err != nil {
		return task.Invalid(field, "not a JSON value: %v; other bytes need a content_type", err)
	}
	return nil
}

// IDOf parses the id of a task, a group or an operation, which is required.
func IDOf(field, s string) (task.ID, error) {
	if s == "" {
		return task.ID{}, task.Invalid(field, "is required")
	}
	id, err := task.ParseID(s)
	if err != nil {
		return id, task.Invalid(field, "%v", err)
	}
	return id, nil
}

// OptionalID parses an id; "": the zero id, which therefore can't be given.
func OptionalID(field, s string) (task.ID, error) {
	if s == "" {
		return task.ID{}, nil
	}
	id, err := IDOf(field, s)
	if err == nil && id == (task.ID{}) {
		err = task.Invalid(field, "%q stands for no id: leave it out", s)
	}
	return id, err
}

// RequestIDOf parses the id that identifies retries of a request; "": a new one.
func RequestIDOf(s string) (task.ID, error) {
	if s == "" {
		return task.ID(uuid.New()), nil
	}
	return OptionalID("request_id", s)
}

// durationProto keeps a duration of 0, where it is meaningful.
func durationProto(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
