package outbox

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// taskJSON is what appendTask encodes of the column task: the body of POST /api/v1/tasks without the fields that have their own columns,
// queue and request_id. Follow-up tasks have a queue. An encoder would change the whitespace of payloads, which are appended to it.
type taskJSON struct {
	Type           string            `json:"type"`
	ContentType    string            `json:"content_type,omitzero"`
	Queue          string            `json:"queue,omitzero"`
	Priority       pawltype.Priority `json:"priority,omitzero"`
	Delay          *string           `json:"delay,omitzero"`
	RunAt          *string           `json:"run_at,omitzero"`
	IdempotencyKey string            `json:"idempotency_key,omitzero"`
	IdempotencyTTL *string           `json:"idempotency_ttl,omitzero"`
	MaxAttempts    int32             `json:"max_attempts,omitzero"`
	Retry          *retryJSON        `json:"retry,omitzero"`
	Timeout        *string           `json:"timeout,omitzero"`
	ExpiresIn      *string           `json:"expires_in,omitzero"`
	Retention      *string           `json:"retention,omitzero"`
	Key            string            `json:"key,omitzero"`
	Cost           int32             `json:"cost,omitzero"`
	Tags           []string          `json:"tags,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"`
	Unique         *uniqueJSON       `json:"unique,omitzero"`
	GroupID        string            `json:"group_id,omitzero"`
}

type retryJSON struct {
	Initial *string  `json:"initial,omitzero"`
	Factor  float64  `json:"factor,omitzero"`
	Max     *string  `json:"max,omitzero"`
	Jitter  *float64 `json:"jitter,omitzero"`
}

type uniqueJSON struct {
	Key        string              `json:"key,omitzero"`
	States     []pawltype.State    `json:"states,omitempty"`
	OnConflict pawltype.OnConflict `json:"on_conflict,omitzero"`
}

// appendTask appends a task as JSON. Its payload keeps every byte: a repeat of an idempotency key must have the same payload.
func appendTask(out []byte, s *pawlv1.TaskSpec, path string) ([]byte, error) {
	fields, err := json.Marshal(fieldsOf(s), json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	out = append(out, fields[:len(fields)-1]...)
	switch {
	case len(s.Payload) == 0:
	case !contract.IsJSON(s.ContentType): // as the reader decides
		out = append(append(out, `,"payload":"`...), base64.StdEncoding.EncodeToString(s.Payload)...)
		out = append(out, '"')
	case !jsontext.Value(s.Payload).IsValid(asWritten...):
		return nil, convert.Invalid(path+"payload", "is not JSON, which content type %q requires", s.ContentType)
	default:
		out = append(append(out, `,"payload":`...), s.Payload...)
	}
	for i, next := range s.Then {
		if i == 0 {
			out = append(out, `,"then":[`...)
		} else {
			out = append(out, ',')
		}
		if out, err = appendTask(out, next, fmt.Sprintf("%sthen[%d].", path, i)); err != nil {
			return nil, err
		}
	}
	if len(s.Then) > 0 {
		out = append(out, ']')
	}
	return append(out, '}'), nil
}

// asWritten accepts what Pawl accepts in a payload: duplicate names, and escapes of half a surrogate pair.
var asWritten = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func fieldsOf(s *pawlv1.TaskSpec) *taskJSON {
	t := &taskJSON{
		Type: s.Type, ContentType: s.ContentType, Queue: s.GetQueue(), Priority: convert.Priority(s.Priority), Delay: durationText(s.Delay),
		IdempotencyKey: s.GetIdempotencyKey(), IdempotencyTTL: durationText(s.IdempotencyTtl), MaxAttempts: s.MaxAttempts, Timeout: durationText(s.Timeout),
		ExpiresIn: durationText(s.ExpiresIn), Retention: durationText(s.Retention), Key: s.GetKey(), Cost: s.Cost, Tags: s.Tags, Headers: s.Headers,
		GroupID: s.GetGroupId(),
	}
	if s.RunAt != nil {
		at := s.RunAt.AsTime().Format(time.RFC3339Nano)
		t.RunAt = &at
	}
	if r := s.Retry; r != nil {
		t.Retry = &retryJSON{Initial: durationText(r.Initial), Factor: r.Factor, Max: durationText(r.Max), Jitter: r.Jitter}
	}
	if u := convert.Unique(s.Unique); u != nil {
		t.Unique = &uniqueJSON{Key: u.Key, States: u.States, OnConflict: u.OnConflict}
	}
	return t
}

func durationText(d *durationpb.Duration) *string {
	if d == nil {
		return nil
	}
	s := d.AsDuration().String()
	return &s
}

// readTask reads the column task, as REST reads the body of an enqueue.
func readTask(text []byte) (*pawlv1.TaskSpec, error) {
	s := &pawlv1.TaskSpec{}
	if err := apijson.Decode("task", text, s); err != nil {
		refusal, _ := task.AsError(err)
		return nil, &pawltype.Error{Code: pawltype.ErrorCode(refusal.Code), Field: refusal.Field, Message: refusal.Message}
	}
	switch {
	case s.GetQueue() != "":
		return nil, convert.Invalid("queue", "%q is set in the task column: it belongs in the queue column", s.GetQueue())
	case s.GetRequestId() != "":
		return nil, convert.Invalid("request_id", "%q is set in the task column: it belongs in the id column", s.GetRequestId())
	}
	return s, nil
}
