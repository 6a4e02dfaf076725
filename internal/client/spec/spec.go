// Package spec builds the API's request for a task from its arguments and options. It does not know which options there are.
package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
)

// Args is the payload of a task as a Go value.
type Args interface{ TaskType() string }

// Option sets how a task is enqueued. Only this package implements it.
type Option interface {
	apply(spec *pawlv1.TaskSpec) error
}

// Set is an option as a function.
type Set func(*pawlv1.TaskSpec) error

func (f Set) apply(s *pawlv1.TaskSpec) error { return f(s) }

// raw are arguments whose payload is sent unchanged.
type raw interface {
	RawPayload() (payload []byte, contentType string)
}

// Of returns the request for a task. The arguments' own options, from a method TaskOptions, come first.
func Of[O Option](args Args, opts []O) (*pawlv1.TaskSpec, error) {
	if args == nil {
		return nil, convert.Invalid("args", "is nil")
	}
	spec := &pawlv1.TaskSpec{Type: args.TaskType()}
	if r, ok := args.(raw); ok {
		spec.Payload, spec.ContentType = r.RawPayload()
	} else {
		payload, err := json.Marshal(args)
		if err != nil {
			return nil, fmt.Errorf("payload of type %q: %w", spec.Type, err)
		}
		spec.Payload = payload
	}
	if own, ok := args.(interface{ TaskOptions() []O }); ok {
		opts = slices.Concat(own.TaskOptions(), opts)
	}
	for _, opt := range opts {
		if err := opt.apply(spec); err != nil {
			return nil, err
		}
	}
	return spec, check(spec)
}

// Made is a request that was decoded, as arguments and as their only option.
type Made struct{ *pawlv1.TaskSpec }

// TaskType implements Args.
func (m Made) TaskType() string { return m.GetType() }

// RawPayload leaves the payload to the option.
func (m Made) RawPayload() ([]byte, string) { return nil, "" }

func (m Made) apply(s *pawlv1.TaskSpec) error {
	proto.Merge(s, m.TaskSpec)
	return nil
}

// check rejects what would make the whole batch unreadable, exceed a message, or lose an option on the way; all other
// rules are the broker's.
func check(s *pawlv1.TaskSpec) error {
	if s.GetType() == "" {
		return convert.Invalid("type", "is empty")
	}
	if len(s.GetPayload()) > rpc.MaxMessage-convert.MaxTaskOverhead {
		return &pawltype.Error{Code: pawltype.ErrPayloadTooLarge, Field: "payload",
			Message: fmt.Sprintf("payload of type %q: %d bytes exceed the message limit of %d", s.GetType(), len(s.GetPayload()),
				rpc.MaxMessage)}
	}
	for _, f := range [...]struct{ name, value string }{
		{"type", s.Type}, {"content_type", s.ContentType}, {"queue", s.GetQueue()}, {"idempotency_key", s.GetIdempotencyKey()},
		{"request_id", s.GetRequestId()}, {"key", s.GetKey()}, {"unique.key", s.GetUnique().GetKey()}, {"group_id", s.GetGroupId()},
	} {
		if err := convert.CheckText(f.name, f.value); err != nil {
			return err
		}
	}
	for _, tag := range s.Tags {
		if err := convert.CheckText("tags", tag); err != nil {
			return err
		}
	}
	for name, value := range s.Headers {
		if err := errors.Join(convert.CheckText("headers", name), convert.CheckText("headers", value)); err != nil {
			return err
		}
	}
	return nil
}
