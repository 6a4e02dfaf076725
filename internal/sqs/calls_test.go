package sqs

import (
	"context"
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// recorder is a Core that records what it is asked for, field by field.
type recorder struct {
	Core
	queues  map[string]queues.Queue
	claimed []broker.Claimed
	moves   []*broker.Operation
	refused map[broker.Verb]error
	calls   []string
}

func (c *recorder) record(format string, args ...any) {
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}

func (c *recorder) Namespace(context.Context) string { return "team" }

func (c *recorder) FreshQueue(ctx context.Context, name string) (queues.Queue, bool, error) {
	return c.Queue(ctx, name)
}

func (c *recorder) Queue(_ context.Context, name string) (queues.Queue, bool, error) {
	q, ok := c.queues[name]
	return q, ok, nil
}

func (c *recorder) Queues(_ context.Context, pattern, after string, limit int) (all []queues.Queue, err error) {
	c.record("queues %q after %q, up to %d", pattern, after, limit)
	for _, q := range c.queues {
		all = append(all, q)
	}
	slices.SortFunc(all, func(a, b queues.Queue) int { return strings.Compare(a.Name, b.Name) })
	return all[:min(limit, len(all))], nil
}

func (c *recorder) PutQueue(_ context.Context, name string, change func(*task.QueueConfig) error) error {
	config := c.queues[name].Config
	err := change(&config)
	c.record("put %s: %s", name, shown(config))
	return err
}

func (c *recorder) DropQueue(_ context.Context, q queues.Queue) error {
	c.record("drop %s", q.Name)
	return nil
}

func (c *recorder) Purge(_ context.Context, q queues.Queue) error {
	c.record("purge %s", q.Name)
	return nil
}

func (c *recorder) Depth(_ context.Context, q queues.Queue) (broker.QueueInfo, error) {
	return broker.QueueInfo{Ready: [3]int64{1, 20, 300}, Claimed: 4000, Scheduled: 50_000, Retrying: 600_000}, nil
}

func (c *recorder) Enqueue(_ context.Context, q queues.Queue, specs []task.Spec) []broker.Enqueued {
	out := make([]broker.Enqueued, len(specs))
	for i := range specs {
		c.record("enqueue in %s: %s", q.Name, shown(specs[i]))
		out[i].ID, out[i].Order = task.NewID(1, int64(i), 0), 7
	}
	return out
}

func (c *recorder) Claim(_ context.Context, call broker.ClaimCall, wait time.Duration) ([]broker.Claimed, error) {
	c.record("claim, waiting %v: %s", wait, shown(call))
	return c.claimed, nil
}

func (c *recorder) Settle(_ context.Context, calls []broker.Settle) []broker.Settled {
	out := make([]broker.Settled, len(calls))
	for i := range calls {
		c.record("settle: %s", shown(calls[i]))
		out[i].Err = c.refused[calls[i].Verb]
	}
	return out
}

func (c *recorder) FirstClaimed(context.Context, task.ID) (time.Time, error) {
	return time.Unix(1e9, 0), nil
}

func (c *recorder) StartOperation(_ context.Context, spec broker.OperationSpec) error {
	copy(spec.Request[:13], "mmmmmmmmmmmmm") // random
	c.record("start: %s", shown(spec))
	return nil
}

func (c *recorder) Operations(context.Context, task.ID, int) (broker.OperationPage, error) {
	return broker.OperationPage{Operations: c.moves}, nil
}

func (c *recorder) AbortOperation(_ context.Context, id task.ID) error {
	c.record("abort %s", id)
	return nil
}

// shown returns the fields of a struct that are set, and those within them.
func shown(v any) string {
	var text func(reflect.Value) string
	text = func(v reflect.Value) string {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			return text(v.Elem())
		case reflect.Struct:
			if s, ok := v.Interface().(fmt.Stringer); ok {
				return s.String()
			}
			var fields []string
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() && !v.Field(i).IsZero() {
					fields = append(fields, f.Name+": "+text(v.Field(i)))
				}
			}
			return "{" + strings.Join(fields, ", ") + "}"
		case reflect.Map:
			var all []string
			for _, k := range v.MapKeys() {
				all = append(all, fmt.Sprintf("%v: %s", k, text(v.MapIndex(k))))
			}
			sort.Strings(all)
			return "{" + strings.Join(all, ", ") + "}"
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Uint8 {
				return fmt.Sprintf("%q", v.Bytes())
			}
			var all []string
			for i := range v.Len() {
				all = append(all, text(v.Index(i)))
			}
			return "[" + strings.Join(all, ", ") + "]"
		case reflect.String:
			return fmt.Sprintf("%q", v)
		}
		return fmt.Sprint(v)
	}
	return text(reflect.ValueOf(v))
}

// TestCalls: what each action asks the broker for, and what it answers, with each of its parameters. Every field that gets lost on the way
// shows.
func TestCalls(t *testing.T) {
	used := map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		datadriven.RunTest(t, "testdata/calls.txt", func(t *testing.T, d *datadriven.TestData) string {
			used[d.Cmd] = true
			id, token := task.NewID(3, 1, 2), task.Token{Epoch: 1, Fence: 1, Nonce: 7}
			text := strings.NewReplacer("$mail", handle("mail", id, token), "$fifo", handle("mail.fifo", id, token)).Replace(d.Input)
			in, err := wire.ReadJSON([]byte(text))
			if err != nil {
				t.Fatalf("%s: %v", d.Input, err)
			}
			use(used, "", in)
			for i := range in.Entries {
				use(used, "Entry.", &in.Entries[i])
			}
			core := newRecorder(id)
			if d.Cmd == "StartMessageMoveTask" {
				core.moves = nil // one at a time
			}
			if d.HasArg("stale") {
				core.refused = map[broker.Verb]error{broker.Ack: task.ErrStaleClaim, broker.Extend: task.ErrStaleClaim}
			}
			r := httptest.NewRequest("POST", "http://pawl/", nil)
			x := &exchange{Handler: New(Config{Core: core}), ctx: t.Context(), r: r, in: in, action: d.Cmd}
			if err := actions[d.Cmd](x); err != nil {
				core.record("error: %v", err)
			} else {
				x.out.TaskHandle = strings.Repeat("?", len(x.out.TaskHandle)) // random
				core.record("%s", wire.JSON(&x.out))
			}
			return strings.Join(core.calls, "\n") + "\n"
		})
	})
	for name := range actions {
		if !used[name] {
			t.Errorf("testdata/calls.txt has no %s", name)
		}
	}
	for name, is := range used {
		if !is {
			t.Errorf("testdata/calls.txt has no call with the parameter %s", name)
		}
	}
}

// use records which fields of a request are set.
func use(used map[string]bool, prefix string, in any) {
	v := reflect.ValueOf(in).Elem()
	for i := range v.NumField() {
		name := prefix + v.Type().Field(i).Name
		used[name] = used[name] || !v.Field(i).IsZero()
	}
}

// newRecorder returns a Core with some queues, a message that was received too often and another, and a move task of this id.
func newRecorder(id task.ID) *recorder {
	c := &recorder{queues: map[string]queues.Queue{}, claimed: []broker.Claimed{received(2), received(4)}}
	const redrives = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":3}`
	for name, attributes := range map[string]map[string]string{
		"mail": {"DelaySeconds": "3", "MessageRetentionPeriod": "120", "ReceiveMessageWaitTimeSeconds": "4",
			"RedrivePolicy": redrives},
		"other":      {"RedrivePolicy": redrives, "Policy": `{"Version":"2008-10-17","Statement":[{"Sid":"l"},{"Sid":"k"}]}`},
		"dead":       {},
		"mail.fifo":  {"FifoQueue": "true", "ContentBasedDeduplication": "true"},
		"group.fifo": {"FifoQueue": "true", "DeduplicationScope": "messageGroup"},
	} {
		notes := map[string]string{noteTag + "of": "a"}
		for attribute, value := range attributes {
			notes[noteAttribute+attribute] = value
		}
		if name == "group.fifo" {
			notes[notePurged] = "946684800"
		}
		config := task.QueueConfig{Version: 3, Annotations: notes, CreatedAt: time.Unix(1e9, 0),
			Settings: task.Settings{Lease: 50 * time.Second}}
		c.queues[name] = queues.Queue{Name: name, Config: config}
	}
	move := &broker.Operation{ID: id, Spec: broker.OperationSpec{Action: task.Move, Request: task.ID([]byte("sqmmmmmmmmmmm\x00\x00\x01")),
		Total: 9, Rate: 5, ToQueue: "mail", Filter: broker.Filter{Queue: "dead"}}}
	move.Done = 4
	c.moves = []*broker.Operation{move}
	return c
}

// received returns a message that is received for the nth time.
func received(n uint64) broker.Claimed {
	e := &schema.Envelope{ID: task.NewID(1, int64(n), n), Namespace: "team", Queue: "mail", Key: "g", Payload: []byte("body"),
		ContentType: textBody}
	e.Headers = map[string]string{headerTrace: "Root=1",
		headerAttributes: `{"a":{"DataType":"String","StringValue":"v"},"b":{"DataType":"Number","StringValue":"1"}}`}
	x := &schema.Exec{Claim: schema.Claim{Repeated: n == 2}}
	return broker.Claimed{Envelope: e, Exec: x, Token: task.Token{Epoch: 1, Fence: n, Nonce: n}}
}
