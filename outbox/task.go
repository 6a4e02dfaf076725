package outbox

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/pawltype"
)

// taskJSON is the column task: the body of POST /api/v1/tasks without the fields that have their own columns, queue and request_id.
// Follow-up tasks have a queue.
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
	Payload        jsontext.Value    `json:"payload,omitzero"` // read only: an encoder would change its whitespace
	Then           []taskJSON        `json:"then,omitempty"`   // read only: they have payloads
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

// isJSON reports whether a payload of this content type is embedded in the task unchanged. Others are base64 strings.
func isJSON(contentType string) bool { return contentType == "" || contentType == "application/json" }

// appendTask appends a task as JSON. Its payload keeps every byte: a repeat of an idempotency key must have the same payload.
func appendTask(out []byte, s *pawlv1.TaskSpec, path string) ([]byte, error) {
	fields, err := json.Marshal(fieldsOf(s), json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	out = append(out, fields[:len(fields)-1]...)
	switch {
	case len(s.Payload) == 0:
	case !isJSON(s.ContentType):
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

// readTask reads the column task.
func readTask(text []byte) (*pawlv1.TaskSpec, error) {
	var t taskJSON
	if err := json.Unmarshal(text, &t, json.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, notTask(err)
	}
	if t.Queue != "" {
		return nil, convert.Invalid("queue", "%q is set in the task column: it belongs in the queue column", t.Queue)
	}
	return t.spec("")
}

// notTask says what is wrong with a task's JSON, and in which of its fields.
func notTask(err error) error {
	at, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return convert.Invalid("task", "is not JSON: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	field := ""
	for name := range at.JSONPointer.Tokens() {
		switch _, err := strconv.Atoi(name); {
		case err == nil:
			field += "[" + name + "]"
		case field == "":
			field = name
		default:
			field += "." + name
		}
	}
	switch {
	case field == "":
		return convert.Invalid("task", "is not a JSON object")
	case errors.Is(at.Err, json.ErrUnknownName):
		return convert.Invalid(field, "is not a field of a task")
	case at.Err != nil:
		return convert.Invalid(field, "%s: %v", at.JSONValue, at.Err)
	}
	return convert.Invalid(field, "cannot be a JSON %v", at.JSONKind)
}

// spec returns the request for a task. path is its prefix for the names of fields in errors, with a dot.
func (t *taskJSON) spec(path string) (*pawlv1.TaskSpec, error) {
	s := &pawlv1.TaskSpec{
		Type: t.Type, ContentType: t.ContentType, Queue: convert.Text(t.Queue), IdempotencyKey: convert.Text(t.IdempotencyKey), MaxAttempts: t.MaxAttempts, Key: convert.Text(t.Key), Cost: t.Cost,
		Tags: t.Tags, Headers: t.Headers, GroupId: convert.Text(t.GroupID),
	}
	r := fieldReader{path: path}
	s.Payload = r.payload(t)
	s.Delay = r.duration("delay", t.Delay)
	s.RunAt = r.time("run_at", t.RunAt)
	s.IdempotencyTtl = r.duration("idempotency_ttl", t.IdempotencyTTL)
	s.Timeout = r.duration("timeout", t.Timeout)
	s.ExpiresIn = r.duration("expires_in", t.ExpiresIn)
	s.Retention = r.duration("retention", t.Retention)
	if t.Retry != nil {
		s.Retry = &pawlv1.RetryPolicy{Initial: r.duration("retry.initial", t.Retry.Initial), Factor: t.Retry.Factor, Max: r.duration("retry.max", t.Retry.Max), Jitter: t.Retry.Jitter}
	}
	var err error
	s.Priority, err = convert.PriorityProto(t.Priority)
	r.fail(err)
	if u := t.Unique; u != nil {
		s.Unique, err = convert.UniqueProto(pawltype.UniqueOpts{Key: u.Key, States: u.States, OnConflict: u.OnConflict})
		r.fail(err)
	}
	for i := range t.Then {
		next, err := t.Then[i].spec(fmt.Sprintf("%sthen[%d].", path, i))
		if err != nil {
			return nil, err
		}
		s.Then = append(s.Then, next)
	}
	return s, r.err
}

// fieldReader reads the fields of a task and keeps the first error.
type fieldReader struct {
	path string
	err  error
}

func (r *fieldReader) fail(err error) {
	if r.err == nil && err != nil {
		if refusal, ok := errors.AsType[*pawltype.Error](err); ok {
			refusal.Field = r.path + refusal.Field
		}
		r.err = err
	}
}

func (r *fieldReader) payload(t *taskJSON) []byte {
	if len(t.Payload) == 0 || isJSON(t.ContentType) {
		return t.Payload
	}
	var text string
	err := json.Unmarshal(t.Payload, &text)
	if err == nil {
		var bytes []byte
		if bytes, err = base64.StdEncoding.DecodeString(text); err == nil {
			return bytes
		}
	}
	r.fail(convert.Invalid("payload", "is not base64, which content type %q requires: %v", t.ContentType, err))
	return nil
}

func (r *fieldReader) duration(field string, text *string) *durationpb.Duration {
	if text == nil {
		return nil
	}
	d, err := time.ParseDuration(*text)
	if err != nil {
		r.fail(convert.Invalid(field, `%q is not a duration such as "30s" or "1h30m"`, *text))
	}
	return durationpb.New(d)
}

func (r *fieldReader) time(field string, text *string) *timestamppb.Timestamp {
	if text == nil {
		return nil
	}
	t, err := time.Parse(time.RFC3339, *text)
	if err != nil {
		r.fail(convert.Invalid(field, `%q is not a time such as "2026-01-31T12:00:00Z"`, *text))
	}
	return timestamppb.New(t)
}
