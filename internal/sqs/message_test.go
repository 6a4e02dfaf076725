package sqs

import (
	"bytes"
	"context"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// limited is a Core that checks tasks as the API does, and keeps the last.
type limited struct {
	oneQueue
	got task.Spec
}

func (c *limited) Queue(_ context.Context, name string) (queues.Queue, bool, error) {
	return queues.Queue{Name: name, Config: c.q.Config}, true, nil
}

func (c *limited) Enqueue(_ context.Context, _ queues.Queue, specs []task.Spec) []broker.Enqueued {
	c.got = specs[0]
	return []broker.Enqueued{{Err: specs[0].Check(Limits(task.DefaultLimits()))}}
}

func (c *limited) Settle(_ context.Context, calls []broker.Settle) []broker.Settled {
	return make([]broker.Settled, len(calls))
}

func value(s string) wire.Attribute { return wire.Attribute{DataType: "String", StringValue: &s} }

// A message is accepted up to 1 MiB with its attributes, whatever they are, and received as it was sent.
func TestFullMessages(t *testing.T) {
	binary := func(n int) wire.Attribute {
		return wire.Attribute{DataType: "Binary.x", BinaryValue: bytes.Repeat([]byte{0xff}, n)}
	}
	many := map[string]wire.Attribute{}
	for i := range maxAttributes {
		many[strings.Repeat(string(rune('a'+i)), 256)] = wire.Attribute{DataType: "Binary." + strings.Repeat("t", 249),
			BinaryValue: []byte{byte(i)}}
	}
	for name, attributes := range map[string]map[string]wire.Attribute{
		"none":          nil,
		"small":         {"a": value("v")},
		"to be escaped": {"a": value(strings.Repeat("<", 8000))},
		"large": {"a": binary(300 << 10), "b": value(strings.Repeat("<", 100<<10)), "c": {DataType: "Number",
			StringValue: new(string("7"))}},
		"as large as this": {"a": binary(maxMessage - 1 - len("a") - len("Binary.x"))},
		"many":             many,
	} {
		core := &limited{}
		x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil)}
		body := strings.Repeat("é", (maxMessage-sizeOf(attributes))/2) + strings.Repeat("e", (maxMessage-sizeOf(attributes))%2)
		x.in = &wire.Input{QueueURL: "mail", Body: body, MessageAttrs: attributes}
		if err := send(x); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, gotAttributes := bodyOf(core.got.Payload, core.got.ContentType, core.got.Headers)
		if got != body || len(attributes) > 0 && !reflect.DeepEqual(gotAttributes, attributes) || len(attributes) == 0 &&
			len(gotAttributes) > 0 {
			t.Errorf("%s: a message of %d bytes is received with %d, and attributes %.200v", name, len(body), len(got), gotAttributes)
		}
		x.in.Body += "e"
		if err := send(x); err == nil || !strings.Contains(err.Error(), "shorter than 1048576 bytes") {
			t.Errorf("%s: one byte more is accepted: %v", name, err)
		}
	}
}

// A payload that only says it were packed is returned like that of any other producer.
func TestForeignPackedPayloads(t *testing.T) {
	whole := pack(map[string]wire.Attribute{"a": value("v")}, "body")
	for cut := range len(whole) - len("body") {
		if body, attributes := bodyOf(whole[:cut], packedBody, nil); body == "body" || len(attributes) > 0 {
			t.Errorf("%d bytes of %d: %q, %v", cut, len(whole), body, attributes)
		}
	}
	if attributes, body, ok := unpack(pack(map[string]wire.Attribute{"a": value("v")}, "")); !ok || body != "" || len(attributes) != 1 {
		t.Errorf("an empty body is unpacked as %q, %v, %t", body, attributes, ok)
	}
	for _, b := range [][]byte{nil, {0x80}, {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, {0, 0xff}} {
		if body, attributes := bodyOf(b, packedBody, nil); len(attributes) > 0 || len(b) > 0 && body == "" {
			t.Errorf("%x: %q, %v", b, body, attributes)
		}
	}
}

// Whatever a task has, it can be moved to the dead-letter queue, with its priority.
func TestAnyTaskCanBeMoved(t *testing.T) {
	headers := map[string]string{}
	for i := range 64 {
		headers[strings.Repeat("h", 1+i)] = strings.Repeat("v", 256-1-i)
	}
	tags := make([]string, task.MaxTags)
	for i := range tags {
		tags[i] = strings.Repeat("t", 1+i)
	}
	long := strings.Repeat("q", 256)
	e := &schema.Envelope{ID: task.NewID(1, 1, 1), Queue: long, Headers: headers, Tags: tags, Payload: make([]byte, 1<<20),
		Key: strings.Repeat("k", 256), ContentType: "x"}
	m := broker.Claimed{Envelope: e, Exec: &schema.Exec{Type: "job", Priority: task.High}, Token: task.Token{Fence: 4}}
	m.Type = "job"
	core := &limited{}
	core.q.Name = long
	x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: httptest.NewRequest("POST", "http://pawl/", nil)}
	target := "arn:aws:sqs:us-east-1:000000000000:" + strings.Repeat("d", 256)
	left, err := x.redrive(&queues.Queue{Name: long}, redrive{Target: target, Max: 3}, []broker.Claimed{m})
	if err != nil || len(left) > 0 {
		t.Fatalf("%d messages are left, %v: %v", len(left), err, core.got.Check(Limits(task.DefaultLimits())))
	}
	if core.got.Priority != task.High || core.got.MaxAttempts != maxReceives || len(core.got.Headers) != len(headers)+deadLetterHeaders {
		t.Errorf("priority %v, %d attempts, %d headers", core.got.Priority, core.got.MaxAttempts, len(core.got.Headers))
	}
}
