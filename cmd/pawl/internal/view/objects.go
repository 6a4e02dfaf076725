package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

// REST API objects that users write in a flag or a file: parsing them, and converting the tasks in them.

// ReadObject parses a JSON object, given directly or as @FILE.
func ReadObject(flag, arg string, to any) error {
	data := []byte(arg)
	if name, isFile := strings.CutPrefix(arg, "@"); isFile {
		var err error
		if data, err = cli.ReadFile(name, MaxPayload); err != nil {
			return err
		}
	}
	if err := DecodeObject(data, to); err != nil {
		return cli.Usage("%s %s: %w", flag, text.Short(arg, 60), err)
	}
	return nil
}

// DecodeObject decodes one JSON object. Unknown fields are rejected: a typo must not pass for a default.
func DecodeObject(data []byte, to any) error {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return errors.New("it is not a JSON object: {…}")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	var syntax *json.SyntaxError
	var other *json.UnmarshalTypeError
	switch {
	case err == nil && d.More():
		return errors.New("there is more after the object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the object is incomplete")
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not valid JSON at byte %d", syntax.Offset)
	case errors.As(err, &other):
		return fmt.Errorf("%s: want %s, not a JSON %s", other.Field, expectedType(other), other.Value)
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: ")) // an unknown field
	}
	return nil
}

// expectedType describes the type that a field takes.
func expectedType(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// Item converts a task in a file. path is its position in the file, for errors.
func (t *ScheduledTask) Item(path string) (item pawl.Item, err error) {
	raw := pawl.RawTask{Type: t.Type, ContentType: t.ContentType}
	if raw.Payload, err = payloadOf(t, path); err != nil {
		return item, err
	}
	opts := t.words()
	for _, some := range []func(string) ([]pawl.Option, error){t.numbers, t.times, t.lifecycle} {
		more, err := some(path)
		if err != nil {
			return item, err
		}
		opts = append(opts, more...)
	}
	return pawl.Item{Args: raw, Options: opts}, nil
}

// words returns the options that are passed on unchanged: the SDK and the broker validate them.
func (t *ScheduledTask) words() (opts []pawl.Option) {
	set := func(given bool, opt pawl.Option) {
		if given {
			opts = append(opts, opt)
		}
	}
	set(t.Queue != "", pawl.Queue(t.Queue))
	set(t.Priority != "", pawl.Priority(t.Priority))
	set(t.Key != "", pawl.Key(t.Key))
	set(t.IdempotencyKey != "", pawl.IdempotencyKey(t.IdempotencyKey))
	set(len(t.Tags) > 0, pawl.Tags(t.Tags...))
	for name, value := range t.Headers {
		set(true, pawl.Header(name, value))
	}
	if u := t.Unique; u != nil {
		set(true, pawl.Unique(pawltype.UniqueOpts{Key: u.Key, States: u.States, OnConflict: u.OnConflict}))
	}
	return opts
}

// numbers returns the options that are numbers above 0.
func (t *ScheduledTask) numbers(path string) (opts []pawl.Option, err error) {
	for _, f := range []struct {
		name string
		n    *int
		opt  func(int) pawl.Option
	}{{"max_attempts", t.MaxAttempts, pawl.MaxAttempts}, {"cost", t.Cost, pawl.Cost}} {
		switch {
		case f.n == nil:
		case *f.n < 1:
			return nil, fmt.Errorf("%s.%s: %d is less than 1", path, f.name, *f.n)
		default:
			opts = append(opts, f.opt(*f.n))
		}
	}
	return opts, nil
}

// times returns the options that are durations or times.
func (t *ScheduledTask) times(path string) (opts []pawl.Option, err error) {
	for _, f := range []struct {
		name, text string
		opt        func(time.Duration) pawl.Option
	}{{"timeout", t.Timeout, pawl.Timeout}, {"expires_in", t.ExpiresIn, pawl.ExpiresIn}, {"retention", t.Retention, pawl.Retention},
		{"delay", t.Delay, pawl.In}, {"idempotency_ttl", t.IdempotencyTTL, pawl.IdempotencyTTL}} {
		if f.text == "" {
			continue
		}
		d, err := humanize.Duration(f.text)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", path, f.name, err)
		}
		opts = append(opts, f.opt(d))
	}
	if t.RunAt == "" {
		return opts, nil
	}
	at, err := time.Parse(time.RFC3339, t.RunAt)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s.run_at: %q is not a time such as 2026-01-31T12:00:00Z", path, t.RunAt)
	case t.Delay != "": // of two options, the SDK would take the last
		return nil, fmt.Errorf("%s.run_at: %s and delay exclude each other", path, t.RunAt)
	}
	return append(opts, pawl.At(at)), nil
}

// lifecycle returns the options for how the task is retried and what follows it.
func (t *ScheduledTask) lifecycle(path string) (opts []pawl.Option, err error) {
	if t.Retry != nil {
		retry, err := t.Retry.policy(path + ".retry")
		if err != nil {
			return nil, err
		}
		opts = append(opts, pawl.Retry(retry))
	}
	for i := range t.Then {
		next, err := t.Then[i].Item(fmt.Sprintf("%s.then[%d]", path, i))
		if err != nil {
			return nil, err
		}
		opts = append(opts, pawl.Then(next.Args, next.Options...))
	}
	return opts, nil
}

// payloadOf returns the payload of a task in a file: the JSON as it is written, or decoded base64 if the task has another content type.
func payloadOf(t *ScheduledTask, path string) (payload []byte, err error) {
	switch {
	case string(t.Payload) == "null":
		return nil, nil
	case len(t.Payload) == 0 || isJSON(t.ContentType):
		return t.Payload, nil
	}
	if t.Payload[0] != '"' || json.Unmarshal(t.Payload, &payload) != nil {
		return nil, fmt.Errorf("%s.payload: %s is not a base64 string, which content_type %q requires", path, text.Short(string(t.Payload), 60), t.ContentType)
	}
	return payload, nil
}

// policy parses a retry policy in a file. Omitted fields have their defaults.
func (v *Retry) policy(path string) (p pawltype.RetryPolicy, err error) {
	for _, f := range []struct {
		name, text string
		to         *time.Duration
	}{{"initial", v.Initial, &p.Initial}, {"max", v.Max, &p.Max}} {
		if f.text == "" {
			continue
		}
		d, err := humanize.Duration(f.text)
		if err != nil {
			return p, fmt.Errorf("%s.%s: %w", path, f.name, err)
		}
		*f.to = Explicit(d, pawltype.NoWait)
	}
	if v.Factor != nil {
		if p.Factor = *v.Factor; p.Factor < 1 {
			return p, fmt.Errorf("%s.factor: %g is less than 1", path, p.Factor)
		}
	}
	if v.Jitter != nil {
		p.Jitter = Explicit(*v.Jitter, pawltype.NoJitter)
	}
	return p, nil
}

// Explicit returns value for an SDK option in which 0 means unset, and zero is how to say 0.
func Explicit[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}

// MaxPayload is more than any server accepts, so that the server's error names its limit, yet no larger input fills our memory.
const MaxPayload = 15 << 20
