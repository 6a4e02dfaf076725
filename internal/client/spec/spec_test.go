package spec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
)

// mail is sent as JSON, and has its own queue.
type mail struct{ To string }

func (mail) TaskType() string { return "mail" }
func (mail) TaskOptions() []Set {
	return []Set{set(func(s *pawlv1.TaskSpec) { s.Queue, s.Key = new("own"), new("own") })}
}

// channel can't be sent.
type channel chan int

func (channel) TaskType() string { return "channel" }

// bytes are sent unchanged.
type bytes struct {
	typ  string
	data []byte
}

func (b bytes) TaskType() string             { return b.typ }
func (b bytes) RawPayload() ([]byte, string) { return b.data, "text/plain" }

func set(f func(*pawlv1.TaskSpec)) Set {
	return func(s *pawlv1.TaskSpec) error { f(s); return nil }
}

// Arguments are sent as JSON or unchanged; their own options come before those of the call.
func TestOf(t *testing.T) {
	queue := set(func(s *pawlv1.TaskSpec) { s.Queue = new(s.GetQueue() + "+given") })
	for _, x := range []struct {
		args Args
		want string
	}{
		{mail{To: "ann"}, `mail {"To":"ann"} "" in own+given of own`},
		{bytes{"raw", []byte("{")}, `raw { "text/plain" in +given of `},
	} {
		s, err := Of(x.args, []Set{queue})
		if got := fmt.Sprintf("%s %s %q in %s of %s", s.GetType(), s.GetPayload(), s.GetContentType(), s.GetQueue(),
			s.GetKey()); err != nil ||
			got != x.want {
			t.Errorf("%#v: got %s, %v, want %s", x.args, got, err, x.want)
		}
	}
	boom := errors.New("boom")
	if s, err := Of(mail{}, []Set{func(*pawlv1.TaskSpec) error { return boom }, queue}); !errors.Is(err, boom) || s != nil {
		t.Errorf("Of with a failing option = %v, %v", s, err)
	}
	if s, err := Of[Set](channel(nil), nil); err == nil || !strings.HasPrefix(err.Error(), `payload of type "channel": `) {
		t.Errorf("Of with args that are not JSON = %v, %v", s, err)
	}
	if s, err := Of[Set](nil, nil); fieldOf(err) != "args" {
		t.Errorf("Of(nil) = %v, %v", s, err)
	}
}

// What would make a batch unreadable is refused before it is sent, in whatever field it is.
func TestRefusals(t *testing.T) {
	const limit = rpc.MaxMessage - convert.MaxTaskOverhead
	if _, err := Of[Set](bytes{"a", make([]byte, limit)}, nil); err != nil {
		t.Errorf("the largest payload was refused: %v", err)
	}
	if _, err := Of[Set](bytes{"a", make([]byte, limit+1)}, nil); !errors.Is(err, pawltype.ErrPayloadTooLarge) ||
		fieldOf(err) != "payload" {
		t.Errorf("a payload over the limit: %v, want payload_too_large", err)
	}
	if _, err := Of[Set](bytes{}, nil); fieldOf(err) != "type" {
		t.Errorf("args without a type: %v", err)
	}
	const bad = "\xff"
	for field, change := range map[string]func(s *pawlv1.TaskSpec){
		"type":            func(s *pawlv1.TaskSpec) { s.Type = bad },
		"content_type":    func(s *pawlv1.TaskSpec) { s.ContentType = bad },
		"queue":           func(s *pawlv1.TaskSpec) { s.Queue = new(bad) },
		"idempotency_key": func(s *pawlv1.TaskSpec) { s.IdempotencyKey = new(bad) },
		"request_id":      func(s *pawlv1.TaskSpec) { s.RequestId = new(bad) },
		"key":             func(s *pawlv1.TaskSpec) { s.Key = new(bad) },
		"unique.key":      func(s *pawlv1.TaskSpec) { s.Unique = &pawlv1.Unique{Key: new(bad)} },
		"group_id":        func(s *pawlv1.TaskSpec) { s.GroupId = new(bad) },
		"tags":            func(s *pawlv1.TaskSpec) { s.Tags = []string{"good", bad} },
		"headers":         func(s *pawlv1.TaskSpec) { s.Headers = many("name", bad) },
		"headers ":        func(s *pawlv1.TaskSpec) { s.Headers = many(bad, "value") },
	} {
		if _, err := Of(mail{}, []Set{set(change)}); !errors.Is(err, pawltype.ErrInvalidArgument) ||
			fieldOf(err) != strings.TrimSpace(field) {
			t.Errorf("%s: got %v, want invalid_argument for this field", field, err)
		}
	}
	if _, err := Of(mail{}, []Set{set(func(s *pawlv1.TaskSpec) {
		s.Tags, s.Headers = []string{"a"},
			map[string]string{"name": "value"}
	})}); err != nil {
		t.Errorf("valid tags and headers were refused: %v", err)
	}
}

// many returns many headers, including the given one.
func many(name, value string) map[string]string {
	headers := map[string]string{name: value}
	for i := range 20 {
		headers[fmt.Sprint(i)] = "good"
	}
	return headers
}

// fieldOf returns the field that a refusal names.
func fieldOf(err error) string {
	refused, _ := errors.AsType[*pawltype.Error](err)
	if refused == nil {
		return ""
	}
	return refused.Field
}
