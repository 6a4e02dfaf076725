package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/pawl/internal/cli"
	"github.com/pawlq/pawl/cmd/pawl/internal/text"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/pawltype"
)

// Objects of the REST API that users write, in a flag or a file: how they are read, and the tasks in them.

// ReadObject reads a JSON object, or the file that @FILE names.
func ReadObject(flag, arg string, to any) error {
	data := []byte(arg)
	if name, isFile := strings.CutPrefix(arg, "@"); isFile {
		f, err := os.Open(name) // #nosec G304 -- the caller's own file
		if err != nil {
			return cli.AsUsage(err)
		}
		defer func() { _ = f.Close() }()
		if data, err = io.ReadAll(io.LimitReader(f, MaxPayload)); err != nil {
			return err
		}
	}
	if err := DecodeObject(data, to); err != nil {
		return cli.Usage("%s %s: %w", flag, text.Short(arg, 60), err)
	}
	return nil
}

// DecodeObject reads one JSON object. Fields that are not known are refused: a typing error must not pass for a default.
func DecodeObject(data []byte, to any) error {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return errors.New("it is not a JSON object: {…}")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber() // in payloads: a long id must not be rounded
	err := d.Decode(to)
	var syntax *json.SyntaxError
	var other *json.UnmarshalTypeError
	switch {
	case err == nil && d.More():
		return errors.New("something follows the object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the object has no end")
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not JSON from byte %d on", syntax.Offset)
	case errors.As(err, &other):
		return fmt.Errorf("%s: a JSON %s is not what it takes: %s", other.Field, other.Value, wanted(other))
	case err != nil:
		return errors.New(strings.TrimPrefix(err.Error(), "json: ")) // a field that is not known
	}
	return nil
}

// wanted says what a field takes.
func wanted(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind() {
	case reflect.String:
		return "a text"
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

// Item is what is sent of a task in a file, at a path in it.
func (t *ScheduledTask) Item(path string) (item pawl.Item, err error) {
	raw := pawl.RawTask{Type: t.Type, ContentType: t.ContentType}
	if raw.Payload, err = payloadOf(t, path); err != nil {
		return item, err
	}
	opts := t.words()
	for _, some := range []func(string) ([]pawl.Option, error){t.numbers, t.times, t.fate} {
		more, err := some(path)
		if err != nil {
			return item, err
		}
		opts = append(opts, more...)
	}
	return pawl.Item{Args: raw, Options: opts}, nil
}

// words are the options that go as they are: the SDK and the broker say what is wrong with them.
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

// numbers are the options of which the SDK would take 0 for none.
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

// times are the options that are durations or a time.
func (t *ScheduledTask) times(path string) (opts []pawl.Option, err error) {
	for _, f := range []struct {
		name, text string
		opt        func(time.Duration) pawl.Option
	}{{"timeout", t.Timeout, pawl.Timeout}, {"expires_in", t.ExpiresIn, pawl.ExpiresIn}, {"retention", t.Retention, pawl.Retention},
		{"delay", t.Delay, pawl.In}, {"idempotency_ttl", t.IdempotencyTTL, pawl.IdempotencyTTL}} {
		if f.text == "" {
			continue
		}
		d, err := humanize.Span(f.text)
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
	case t.Delay != "": // of two, the SDK takes the last
		return nil, fmt.Errorf("%s.run_at: %s is given beside delay: only one of them is allowed", path, t.RunAt)
	}
	return append(opts, pawl.At(at)), nil
}

// fate is what becomes of the task: how it is tried again, and what follows it.
func (t *ScheduledTask) fate(path string) (opts []pawl.Option, err error) {
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

// payloadOf is the payload of a task in a file: a JSON value, or with a content type of its own a text.
func payloadOf(t *ScheduledTask, path string) ([]byte, error) {
	switch text, isText := t.Payload.(string); {
	case t.Payload == nil:
		return nil, nil
	case t.ContentType == "" || t.ContentType == "application/json":
		return json.Marshal(t.Payload)
	case isText:
		return []byte(text), nil
	}
	return nil, fmt.Errorf("%s.payload: of content_type %q it must be a text", path, t.ContentType)
}

// policy reads a retry policy of a file; what it leaves out has its default.
func (v *Retry) policy(path string) (p pawltype.RetryPolicy, err error) {
	for _, f := range []struct {
		name, text string
		to         *time.Duration
	}{{"initial", v.Initial, &p.Initial}, {"max", v.Max, &p.Max}} {
		if f.text == "" {
			continue
		}
		d, err := humanize.Span(f.text)
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

// Explicit is a value that the user gave, of an SDK in which 0 stands for what nobody gave, and another for 0.
func Explicit[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}

// MaxPayload is beyond what any server takes: its refusal names the limit, and nothing larger fills our memory.
const MaxPayload = 15 << 20
