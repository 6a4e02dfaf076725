package gateway

import (
	"math"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// The API's enums have the numbers of package task; a test keeps them in line.

func stateProto(s task.State) pawlv1.State          { return pawlv1.State(s) }
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

func statusProto(s task.State) pawlv1.Status {
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

// timeProto omits a time that is not set.
func timeProto(t broker.Time) *timestamppb.Timestamp {
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

func wallProto(t time.Time) *timestamppb.Timestamp {
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

// spanOf converts a duration; 0 if it is absent.
func spanOf(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, task.Invalid(field, "%ds %dns is not a duration", d.GetSeconds(), d.GetNanos())
	}
	return d.AsDuration(), nil
}

// timeOf converts a time; the zero time if it is absent.
func timeOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, task.Invalid(field, "%ds %dns is not a time", t.GetSeconds(), t.GetNanos())
	}
	return t.AsTime(), nil
}

func int32Of[N ~int | ~int64](n N) int32 {
	return int32(max(math.MinInt32, min(int64(n), math.MaxInt32)))
}

// waitOf returns how long a call may wait for its answer.
func waitOf(d *durationpb.Duration) (time.Duration, error) {
	wait, err := spanOf("wait", d)
	if err != nil {
		return 0, err
	}
	if wait < 0 || wait > contract.MaxWait {
		return 0, task.Invalid("wait", "%v is not between 0 and %v", wait, contract.MaxWait)
	}
	return wait, nil
}

// limitOf returns how many items a page of a list may have.
func limitOf(n int32) (int, error) {
	if n == 0 {
		return contract.DefaultPage, nil
	}
	if n < 0 || n > contract.MaxPage {
		return 0, task.Invalid("limit", "%d is not between 1 and %d", n, contract.MaxPage)
	}
	return int(n), nil
}

// checkData rejects a payload or result that does not match its content type, or is too large. It may be empty.
func checkData(field string, data []byte, contentType string, l task.Limits) error {
	if len(data) > l.Payload {
		return &task.Error{Code: task.CodePayloadTooLarge, Field: field,
			Message: task.Invalid(field, "%d bytes, at most %d are allowed", len(data), l.Payload).Message}
	}
	if len(data) == 0 || !contract.IsJSON(contentType) {
		return nil
	}
	if err := rest.CheckJSON(data); err != nil {
		return task.Invalid(field, "not a JSON value: %v; other bytes need a content_type", err)
	}
	return nil
}

// idOf parses the id of a task, a group or an operation. A malformed id in a path means not found; in a body it is invalid.
func idOf(field, s string) (task.ID, error) {
	if s == "" {
		return task.ID{}, task.Invalid(field, "is required")
	}
	return optionalID(field, s)
}

// optionalID parses an id; "": the zero id.
func optionalID(field, s string) (id task.ID, err error) {
	if s == "" {
		return id, nil
	}
	if id, err = task.ParseID(s); err != nil {
		return id, task.Invalid(field, "%v", err)
	}
	return id, nil
}

// requestIDOf parses the id that identifies retries of a request; "": a new one.
func requestIDOf(s string) (task.ID, error) {
	if s == "" {
		return task.ID(uuid.New()), nil
	}
	return optionalID("request_id", s)
}

// durationProto keeps a duration of 0, where it is meaningful.
func durationProto(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
