package outbox

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/internal/client/spec"
	"github.com/pawlq/pawl/pawltype"
)

// everyOption sets every field of a task that options can set.
func everyOption() []pawl.Option {
	return []pawl.Option{
		pawl.Priority(pawl.High), pawl.In(90 * time.Second), pawl.IdempotencyKey("k<&>\x00\u2028"), pawl.IdempotencyTTL(time.Hour),
		pawl.MaxAttempts(7), pawl.Retry(pawl.RetryPolicy{Initial: pawltype.NoWait, Factor: 1.5, Max: time.Minute,
			Jitter: pawltype.NoJitter}),
		pawl.Timeout(time.Nanosecond), pawl.ExpiresIn(48 * time.Hour), pawl.Retention(0), pawl.Key("tenant"), pawl.Cost(3),
		pawl.Tags("b", "a"), pawl.Header("x", "1"), pawl.Header("traceparent", "t"), pawl.InGroup("g"),
		pawl.Unique(pawl.UniqueOpts{Key: "u", States: []pawltype.State{pawltype.StateReady}, OnConflict: pawltype.OnConflictKeepLast}),
		pawl.Then(pawl.RawTask{Type: "next", Payload: []byte("[1]")}, pawl.Queue("cpu"), pawl.At(time.Unix(1e9, 5)),
			pawl.Then(pawl.RawTask{Type: "last"})),
		pawl.Then(pawl.RawTask{Type: "other", Payload: []byte{0, 255}, ContentType: "image/png"}),
		pawl.Then(pawl.RawTask{Type: "named", Payload: []byte(`{ "a":1}`), ContentType: "application/json; charset=utf-8"}),
	}
}

// writeTask and readTask preserve every field of the API.
func TestTaskRoundTrips(t *testing.T) {
	args := pawl.RawTask{Type: "a", Payload: []byte("{ \"a\" :1e400,\n\"a\":\"\\u0041\\ud800<\"}")}
	want, err := spec.Of(args, everyOption())
	if err != nil {
		t.Fatal(err)
	}
	// columns, and those of the follow-up task
	missing := map[protoreflect.Name]bool{"queue": true, "request_id": true, "content_type": true, "run_at": true}
	fields := want.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); !want.ProtoReflect().Has(f) && !missing[f.Name()] {
			t.Errorf("everyOption does not set %s, which all fields must be", f.Name())
		}
	}
	text, err := writeTask(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readTask(text)
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("%s\nis read as %v, %v\nwant       %v", text, got, err, want)
	}
	if !strings.Contains(string(text), string(args.Payload)) {
		t.Errorf("the payload was changed: %s", text)
	}
}

// What a task leaves out is left out of the row, or it could not be read.
func TestPartsOfATaskRoundTrip(t *testing.T) {
	for _, opt := range []pawl.Option{
		pawl.Retry(pawl.RetryPolicy{Initial: time.Second}), pawl.Retry(pawl.RetryPolicy{Jitter: 0.5}), pawl.Unique(pawl.UniqueOpts{}),
		pawl.Tags(), pawl.Then(pawl.RawTask{Type: "next"}, pawl.Unique(pawl.UniqueOpts{OnConflict: pawltype.OnConflictReject})),
	} {
		want, err := spec.Of(pawl.RawTask{Type: "a"}, []pawl.Option{opt})
		if err != nil {
			t.Fatal(err)
		}
		text, err := writeTask(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readTask(text); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s is read as %v, %v, want %v", text, got, err, want)
		}
	}
}

// readTask accepts the options of the API and no others, and its errors name the field.
func TestReadTaskRefuses(t *testing.T) {
	for _, c := range []struct{ text, field, want string }{
		{`{"type":"a","retries":3}`, "retries", "unknown field"},
		{`{"type":"a","Priority":"high"}`, "Priority", "unknown field"},
		{`{"type":"a","then":[{"type":"b"},{"type":"c","retries":3}]}`, "then[1].retries", "unknown field"},
		{`{"type":7}`, "type", "7 is not a string"},
		{`{"type":"a","cost":1e12}`, "cost", "1e12"},
		{`[]`, "task", "is not a JSON object"},
		{`{"type":"a"`, "task", "it ends within a value"},
		{`{"type":"a"} {}`, "task", "after"},
		{``, "task", "is empty"},
		{`{"type":"a","queue":"q"}`, "queue", "queue column"},
		{`{"type":"a","request_id":"r"}`, "request_id", "id column"},
		{`{"type":"a","priority":"urgent"}`, "priority", "urgent"},
		{`{"type":"a","delay":"soon"}`, "delay", `"soon" is not a duration`},
		{`{"type":"a","run_at":"soon"}`, "run_at", `"soon" is not a time`},
		{`{"type":"a","retry":{"max":"1"}}`, "retry.max", `"1" is not a duration`},
		{`{"type":"a","unique":{"on_conflict":"fight"}}`, "unique.on_conflict", "fight"},
		{`{"type":"a","content_type":"image/png","payload":"?"}`, "payload", "base64"},
		{`{"type":"a","content_type":"image/png","payload":{}}`, "payload", "base64"},
		{`{"type":"a","then":[{"type":"b"},{"type":"c","delay":"x"}]}`, "then[1].delay", "x"},
	} {
		_, err := readTask([]byte(c.text))
		refusal, ok := errors.AsType[*pawltype.Error](err)
		if !ok || refusal.Code != pawltype.ErrInvalidArgument || refusal.Field != c.field || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error of field %q with %q", c.text, err, c.field, c.want)
		}
	}
}

// readTask accepts the durations and times that REST accepts.
func TestReadTaskByHand(t *testing.T) {
	got, err := readTask([]byte(` {"payload":{"to":"a"},"delay":"1h30m","run_at":"2026-01-31T12:00:00+01:00","type":"mail"} `))
	if err != nil || got.Type != "mail" || string(got.Payload) != `{"to":"a"}` || got.Delay.AsDuration() != 90*time.Minute ||
		!got.RunAt.AsTime().Equal(time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("readTask = %v, %v", got, err)
	}
}
