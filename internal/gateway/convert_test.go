package gateway

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// The contract's enums have the numbers of package task, so that neither is looked up.
func TestEnumsHaveTheSameNumbers(t *testing.T) {
	for _, s := range task.States {
		if want := "STATE_" + strings.ToUpper(s.String()); stateProto(s).String() != want {
			t.Errorf("state %d is %s in the contract, want %s", s, stateProto(s), want)
		}
		if want := "STATUS_" + strings.ToUpper(s.Status()); statusProto(s).String() != want {
			t.Errorf("status of %s is %s, want %s", s, statusProto(s), want)
		}
	}
	if len(pawlv1.State_name) != len(task.States)+1 {
		t.Errorf("the contract has %d states", len(pawlv1.State_name))
	}
	for _, p := range task.Priorities {
		if want := "PRIORITY_" + strings.ToUpper(p.String()); priorityProto(p).String() != want {
			t.Errorf("priority %d is %s in the contract", p, priorityProto(p))
		}
	}
	for o := task.OutcomeSucceeded; o <= task.OutcomeLeaderless; o++ {
		if want := "OUTCOME_" + strings.ToUpper(o.String()); outcomeProto(o).String() != want {
			t.Errorf("outcome %d is %s in the contract", o, outcomeProto(o))
		}
	}
	for _, state := range task.States {
		if want := "STATUS_" + strings.ToUpper(state.Status()); statusProto(state).String() != want {
			t.Errorf("the status of state %s is %s in the contract, want %s", state, statusProto(state), want)
		}
	}
}

func TestSpecRefusals(t *testing.T) {
	l := task.DefaultLimits()
	for _, c := range []struct {
		field string
		spec  *pawlv1.TaskSpec
	}{
		{"task", nil},
		{"type", &pawlv1.TaskSpec{}},
		{"type", &pawlv1.TaskSpec{Type: strings.Repeat("x", 257)}},
		{"queue", &pawlv1.TaskSpec{Type: "a", Queue: "a b"}},
		{"priority", &pawlv1.TaskSpec{Type: "a", Priority: 7}},
		{"priority", &pawlv1.TaskSpec{Type: "a", Priority: -1}},
		{"payload", &pawlv1.TaskSpec{Type: "a", Payload: []byte("{")}},
		{"payload", &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, l.Payload+1), ContentType: "x/y"}},
		{"payload", &pawlv1.TaskSpec{Type: "a", Payload: []byte(`"` + "\xff" + `"`)}},
		{"delay", &pawlv1.TaskSpec{Type: "a", Delay: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{"delay", &pawlv1.TaskSpec{Type: "a", Delay: durationpb.New(-1)}},
		{"run_at", &pawlv1.TaskSpec{Type: "a", RunAt: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{"run_at", &pawlv1.TaskSpec{Type: "a", RunAt: timestamppb.New(time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC))}},
		{"idempotency_ttl", &pawlv1.TaskSpec{Type: "a", IdempotencyKey: "k", IdempotencyTtl: durationpb.New(-1)}},
		{"request_id", &pawlv1.TaskSpec{Type: "a", RequestId: "7"}},
		{"max_attempts", &pawlv1.TaskSpec{Type: "a", MaxAttempts: -1}},
		{"retry.initial", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(-1)}}},
		{"retry.max", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(2), Max: durationpb.New(1)}}},
		{"retry.factor", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Factor: 0.5}}},
		{"timeout", &pawlv1.TaskSpec{Type: "a", Timeout: durationpb.New(-1)}},
		{"expires_in", &pawlv1.TaskSpec{Type: "a", ExpiresIn: durationpb.New(-1)}},
		{"expires_in", &pawlv1.TaskSpec{Type: "a", ExpiresIn: durationpb.New(0)}},
		{"timeout", &pawlv1.TaskSpec{Type: "a", Timeout: durationpb.New(0)}},
		{"idempotency_ttl", &pawlv1.TaskSpec{Type: "a", IdempotencyKey: "k", IdempotencyTtl: durationpb.New(0)}},
		{"retention", &pawlv1.TaskSpec{Type: "a", Retention: durationpb.New(-1)}},
		{"tags", &pawlv1.TaskSpec{Type: "a", Tags: make([]string, 33)}},
		{"unique.key", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{Key: "a\nb"}}},
		{"unique.on_conflict", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{OnConflict: 5}}},
		{"unique.on_conflict", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{OnConflict: -1}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{0}}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{10}}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{2, 2}}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{1, 2, 4}}}},
		{"headers", &pawlv1.TaskSpec{Type: "a", Headers: map[string]string{"": "x"}}},
		{"then[0].type", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{}}}},
		{"then[1].then[0].queue", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b"}, {Type: "b", Then: []*pawlv1.TaskSpec{{Type: "c", Queue: "/"}}}}}},
		{"then[0].request_id", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", RequestId: "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"}}}},
		{"then[0].payload", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Payload: []byte("{")}}}},
		{"then[0].delay", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Delay: durationpb.New(-1)}}}},
		{"then", &pawlv1.TaskSpec{Type: "a", Then: many(task.MaxThen+1, &pawlv1.TaskSpec{Type: "b"})}},
		{"then", &pawlv1.TaskSpec{Type: "a", Then: many(task.MaxThen, &pawlv1.TaskSpec{Type: "b", Then: many(task.MaxThen, &pawlv1.TaskSpec{Type: "c", Then: many(1, &pawlv1.TaskSpec{Type: "d"})})})}},
		{"then" + strings.Repeat("[0].then", task.MaxChainDepth), chain(task.MaxChainDepth + 1)},
	} {
		_, err := specOf(c.spec, l)
		if e, ok := task.AsError(err); !ok || e.Field != c.field {
			t.Errorf("%v: got %v, want a refusal of %s", c.spec, err, c.field)
		}
	}
}

// A policy that says little gets the defaults for the rest.
func TestRetryDefaults(t *testing.T) {
	r, err := retryOf(&pawlv1.RetryPolicy{Initial: durationpb.New(time.Hour)})
	if err != nil || *r != (task.Retry{Initial: time.Hour, Factor: 2, Max: time.Hour, Jitter: 0.25}) {
		t.Errorf("got %+v, %v", r, err)
	}
	zero := 0.0
	r, err = retryOf(&pawlv1.RetryPolicy{Initial: durationpb.New(0), Jitter: &zero})
	if err != nil || *r != (task.Retry{Factor: 2, Max: 30 * time.Minute}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestTimesKeepTheirMicroseconds(t *testing.T) {
	for _, at := range []time.Time{time.Unix(1, 5000), time.Unix(-1, 999999000), time.Unix(1<<40, 1000)} {
		if got := timeProto(broker.TimeOf(at)).AsTime(); !got.Equal(at) {
			t.Errorf("%v becomes %v", at, got)
		}
	}
	if timeProto(0) != nil {
		t.Error("no time is a time")
	}
}

// many is a list of the same task.
func many(n int, t *pawlv1.TaskSpec) []*pawlv1.TaskSpec {
	list := make([]*pawlv1.TaskSpec, n)
	for i := range list {
		list[i] = t
	}
	return list
}

// chain is a task behind which n others come one by one.
func chain(n int) *pawlv1.TaskSpec {
	t := &pawlv1.TaskSpec{Type: "a"}
	for range n {
		t = &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{t}}
	}
	return t
}

// What may follow a task is bounded in all, in bytes too.
func TestChainBounds(t *testing.T) {
	l := task.DefaultLimits()
	if _, err := specOf(chain(task.MaxChainDepth), l); err != nil {
		t.Errorf("the longest chain: %v", err)
	}
	half := &pawlv1.TaskSpec{Type: "b", Payload: append(append([]byte{'"'}, bytes.Repeat([]byte("x"), l.Payload/2)...), '"')}
	if _, err := specOf(&pawlv1.TaskSpec{Type: "a", Payload: half.Payload, Then: many(1, half)}, l); err != nil {
		t.Errorf("half of what may follow: %v", err)
	}
	_, err := specOf(&pawlv1.TaskSpec{Type: "a", Then: many(2, half)}, l)
	if e, ok := task.AsError(err); !ok || e.Code != task.CodePayloadTooLarge || e.Field != "then" {
		t.Errorf("more than may follow: %v", err)
	}
}
