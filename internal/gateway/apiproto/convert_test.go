package apiproto

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// The API's enums use the numbers of package task, so that conversion needs no lookup.
func TestEnumsHaveTheSameNumbers(t *testing.T) {
	for _, s := range task.States {
		if want := "STATE_" + strings.ToUpper(s.String()); StateProto(s).String() != want {
			t.Errorf("state %d is %s in the API, want %s", s, StateProto(s), want)
		}
		if want := "STATUS_" + strings.ToUpper(s.Status()); StatusProto(s).String() != want {
			t.Errorf("status of %s is %s, want %s", s, StatusProto(s), want)
		}
	}
	if len(pawlv1.State_name) != len(task.States)+1 {
		t.Errorf("the API has %d states", len(pawlv1.State_name))
	}
	for _, p := range task.Priorities {
		if want := "PRIORITY_" + strings.ToUpper(p.String()); priorityProto(p).String() != want {
			t.Errorf("priority %d is %s in the API", p, priorityProto(p))
		}
	}
	for o := task.OutcomeSucceeded; o <= task.OutcomeLeaderless; o++ {
		if want := "OUTCOME_" + strings.ToUpper(o.String()); outcomeProto(o).String() != want {
			t.Errorf("outcome %d is %s in the API", o, outcomeProto(o))
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
		{"queue", &pawlv1.TaskSpec{Type: "a", Queue: new("a b")}},
		{"priority", &pawlv1.TaskSpec{Type: "a", Priority: 7}},
		{"priority", &pawlv1.TaskSpec{Type: "a", Priority: -1}},
		{"payload", &pawlv1.TaskSpec{Type: "a", Payload: []byte("{")}},
		{"payload", &pawlv1.TaskSpec{Type: "a", Payload: make([]byte, l.Payload+1), ContentType: "x/y"}},
		{"payload", &pawlv1.TaskSpec{Type: "a", Payload: []byte(`"` + "\xff" + `"`)}},
		{"delay", &pawlv1.TaskSpec{Type: "a", Delay: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{"delay", &pawlv1.TaskSpec{Type: "a", Delay: durationpb.New(-1)}},
		{"run_at", &pawlv1.TaskSpec{Type: "a", RunAt: &timestamppb.Timestamp{Seconds: 1 << 60}}},
		{"run_at", &pawlv1.TaskSpec{Type: "a", RunAt: timestamppb.New(time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC))}},
		{"idempotency_ttl", &pawlv1.TaskSpec{Type: "a", IdempotencyKey: new("k"), IdempotencyTtl: durationpb.New(-1)}},
		{"request_id", &pawlv1.TaskSpec{Type: "a", RequestId: new("7")}},
		{"max_attempts", &pawlv1.TaskSpec{Type: "a", MaxAttempts: -1}},
		{"retry.initial", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(-1)}}},
		{"retry.max", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Initial: durationpb.New(2), Max: durationpb.New(1)}}},
		{"retry.factor", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Factor: 0.5}}},
		{"timeout", &pawlv1.TaskSpec{Type: "a", Timeout: durationpb.New(-1)}},
		{"expires_in", &pawlv1.TaskSpec{Type: "a", ExpiresIn: durationpb.New(-1)}},
		{"expires_in", &pawlv1.TaskSpec{Type: "a", ExpiresIn: durationpb.New(0)}},
		{"timeout", &pawlv1.TaskSpec{Type: "a", Timeout: durationpb.New(0)}},
		{"idempotency_ttl", &pawlv1.TaskSpec{Type: "a", IdempotencyKey: new("k"), IdempotencyTtl: durationpb.New(0)}},
		{"retention", &pawlv1.TaskSpec{Type: "a", Retention: durationpb.New(-1)}},
		{"tags", &pawlv1.TaskSpec{Type: "a", Tags: make([]string, 33)}},
		{"unique.key", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{Key: new("a\nb")}}},
		{"unique.on_conflict", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{OnConflict: 5}}},
		{"unique.on_conflict", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{OnConflict: 1 << 8}}},
		{"priority", &pawlv1.TaskSpec{Type: "a", Priority: 1<<8 + 1}},
		{"priority", &pawlv1.TaskSpec{Type: "a", Priority: -1}},
		{"unique.on_conflict", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{OnConflict: -1}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{0}}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{10}}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{-1}}}},
		{"retry.max", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Max: &durationpb.Duration{Seconds: 1, Nanos: -1}}}},
		{"retry.initial", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Initial: &durationpb.Duration{Seconds: 1, Nanos: -1}}}},
		{"retry.factor", &pawlv1.TaskSpec{Type: "a", Retry: &pawlv1.RetryPolicy{Max: durationpb.New(time.Hour), Factor: 0.5}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{2, 2}}}},
		{"unique.states", &pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{States: []pawlv1.State{1, 2, 4}}}},
		{"headers", &pawlv1.TaskSpec{Type: "a", Headers: map[string]string{"": "x"}}},
		{"then[0].type", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{}}}},
		{"then[1].then[0].queue", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b"},
			{Type: "b", Then: []*pawlv1.TaskSpec{{Type: "c", Queue: new("/")}}}}}},
		{"then[0].request_id", &pawlv1.TaskSpec{Type: "a",
			Then: []*pawlv1.TaskSpec{{Type: "b", RequestId: new("0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001")}}}},
		{"then[0].payload", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Payload: []byte("{")}}}},
		{"then[1]", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b"}, nil}}},
		{"then[0].delay", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Delay: durationpb.New(-1)}}}},
		{"then", &pawlv1.TaskSpec{Type: "a", Then: many(task.MaxThen+1, &pawlv1.TaskSpec{Type: "b"})}},
		{"then", &pawlv1.TaskSpec{Type: "a", Then: many(task.MaxThen, &pawlv1.TaskSpec{Type: "b", Then: many(task.MaxThen,
			&pawlv1.TaskSpec{Type: "c", Then: many(1, &pawlv1.TaskSpec{Type: "d"})})})}},
		{"then" + strings.Repeat("[0].then", task.MaxChainDepth), chain(task.MaxChainDepth + 1)},
	} {
		_, err := SpecOf(c.spec, l)
		if e, ok := task.AsError(err); !ok || e.Field != c.field {
			t.Errorf("SpecOf(%v) = %v, want %s refused", c.spec, err, c.field)
		}
	}
}

// A policy that sets some fields gets the defaults for the others.
func TestRetryDefaults(t *testing.T) {
	r, err := retryOf(&pawlv1.RetryPolicy{Initial: durationpb.New(time.Hour)})
	if err != nil || *r != (task.Retry{Initial: time.Hour, Factor: 2, Max: time.Hour, Jitter: 0.25}) {
		t.Errorf("policy with only initial = %+v, %v", r, err)
	}
	if r, err = retryOf(&pawlv1.RetryPolicy{Factor: 3}); err != nil || *r != (task.Retry{Initial: task.DefaultRetry.Initial, Factor: 3,
		Max: task.DefaultRetry.Max, Jitter: task.DefaultRetry.Jitter}) {
		t.Errorf("policy with only factor = %+v, %v", r, err)
	}
	zero := 0.0
	r, err = retryOf(&pawlv1.RetryPolicy{Initial: durationpb.New(0), Jitter: &zero})
	if err != nil || *r != (task.Retry{Factor: 2, Max: 30 * time.Minute}) {
		t.Errorf("policy with initial and jitter 0 = %+v, %v", r, err)
	}
}

func TestTimesKeepTheirMicroseconds(t *testing.T) {
	for _, at := range []time.Time{time.Unix(1, 5000), time.Unix(-1, 999999000), time.Unix(1<<40, 1000)} {
		if got := TimeProto(broker.TimeOf(at)).AsTime(); !got.Equal(at) {
			t.Errorf("%v was converted to %v", at, got)
		}
	}
	if TimeProto(0) != nil {
		t.Error("the zero time was converted to a timestamp")
	}
}

// chain returns a task with a chain of n follow-ups.
func chain(n int) *pawlv1.TaskSpec {
	t := &pawlv1.TaskSpec{Type: "a"}
	for range n {
		t = &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{t}}
	}
	return t
}

// A task's follow-ups are limited in number and in total bytes.
func TestChainBounds(t *testing.T) {
	l := task.DefaultLimits()
	if _, err := SpecOf(chain(task.MaxChainDepth), l); err != nil {
		t.Errorf("SpecOf the longest chain: %v", err)
	}
	// 1 + 8 + 16
	few := &pawlv1.TaskSpec{Type: "b", Then: many(task.MaxThen, &pawlv1.TaskSpec{Type: "c", Then: many(2, &pawlv1.TaskSpec{Type: "d"})})}
	if _, err := SpecOf(&pawlv1.TaskSpec{Type: "a", Then: many(task.MaxChain/25, few)}, l); err != nil {
		t.Errorf("SpecOf a task with the maximum of follow-ups: %v", err)
	}
	half := &pawlv1.TaskSpec{Type: "b", Payload: append(append([]byte{'"'}, bytes.Repeat([]byte("x"), l.Payload/2)...), '"')}
	if _, err := SpecOf(&pawlv1.TaskSpec{Type: "a", Payload: half.Payload, Then: many(1, half)}, l); err != nil {
		t.Errorf("SpecOf a task whose follow-ups have half the maximum of bytes: %v", err)
	}
	_, err := SpecOf(&pawlv1.TaskSpec{Type: "a", Then: many(2, half)}, l)
	if e, ok := task.AsError(err); !ok || e.Code != task.CodePayloadTooLarge || e.Field != "then" {
		t.Errorf("SpecOf a task whose follow-ups have too many bytes: %v, want then refused", err)
	}
}

func TestFailsAreRead(t *testing.T) {
	l := task.DefaultLimits()
	in := durationpb.New(time.Minute)
	for _, c := range []struct {
		field string // "": it is valid
		r     *pawlv1.FailRequest
		want  broker.FailResult
	}{
		{"", &pawlv1.FailRequest{}, broker.FailRetry}, {"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_RETRY,
			RetryIn: in},
			broker.FailRetry},
		{"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DEAD}, broker.FailDead},
		{"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD}, broker.FailDiscard},
		{"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_POISON}, broker.FailPoison},
		{"outcome", &pawlv1.FailRequest{Outcome: 9}, 0}, {"retry_in", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DEAD,
			RetryIn: in}, 0}, {"retry_in", &pawlv1.FailRequest{RetryIn: durationpb.New(-1)}, 0},
		{"retry_in", &pawlv1.FailRequest{RetryIn: durationpb.New(task.MaxDelay + 1)}, 0},
		{"", &pawlv1.FailRequest{RetryIn: durationpb.New(task.MaxDelay)}, broker.FailRetry},
	} {
		c.r.TaskId, c.r.ClaimToken = someID, claimToken
		s, err := FailOf("n", c.r, l)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("FailOf(%v) = %v, want field %q refused", c.r, err, c.field)
		} else if err == nil && (s.Verb != broker.Fail || s.Fail.Action != c.want || (s.Fail.RetryIn != nil) != (c.r.RetryIn != nil) ||
			s.Hold.Namespace != "n" || s.Hold.Token.Fence != 2) {
			t.Errorf("FailOf(%v) = %+v", c.r, s)
		}
	}
}

func TestExtendsAreRead(t *testing.T) {
	for _, c := range []struct {
		field string
		r     *pawlv1.ExtendRequest
		want  broker.Extension
	}{
		{"", &pawlv1.ExtendRequest{}, broker.Extension{}}, {"", &pawlv1.ExtendRequest{Lease: durationpb.New(time.Minute)},
			broker.Extension{Lease: time.Minute}},
		{"lease", &pawlv1.ExtendRequest{Lease: durationpb.New(0)}, broker.Extension{}},
		{"lease", &pawlv1.ExtendRequest{Lease: &durationpb.Duration{Seconds: 1, Nanos: -1}}, broker.Extension{}},
		{"", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: 100, Message: "done"}},
			broker.Extension{Progress: &broker.Progress{Percent: 100, Text: "done"}}},
		{"", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{}},
			broker.Extension{Progress: &broker.Progress{}}},
		{"progress.percent", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: 100.1}}, broker.Extension{}},
		{"progress.percent", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: -1}}, broker.Extension{}},
		{"progress.percent", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: math.NaN()}}, broker.Extension{}},
		{"", &pawlv1.ExtendRequest{Checkpoint: make([]byte, task.MaxCheckpoint)}, broker.Extension{Checkpoint: new([]byte)}},
		{"checkpoint", &pawlv1.ExtendRequest{Checkpoint: make([]byte, task.MaxCheckpoint+1)}, broker.Extension{}},
	} {
		c.r.TaskId, c.r.ClaimToken = someID, claimToken
		s, err := ExtendOf("n", c.r)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("ExtendOf for %+v: %v, want field %q refused", c.want, err, c.field)
		} else if got := s.Extend; err == nil && (s.Verb != broker.Extend || got.Lease != c.want.Lease ||
			(got.Checkpoint != nil) != (c.want.Checkpoint != nil) || !reflect.DeepEqual(got.Progress, c.want.Progress)) {
			t.Errorf("ExtendOf = %+v, want %+v", got, c.want)
		}
	}
}

func TestReleasesAndAcksAreRead(t *testing.T) {
	l := task.DefaultLimits()
	for _, d := range []*durationpb.Duration{nil, durationpb.New(time.Minute)} {
		if s, err := ReleaseOf("n", &pawlv1.ReleaseRequest{TaskId: someID, ClaimToken: claimToken, Delay: d}); err != nil ||
			s.Verb != broker.Release || s.Delay != d.AsDuration() {
			t.Errorf("ReleaseOf with delay %v = %+v, %v", d, s, err)
		}
	}
	_, late := ReleaseOf("n", &pawlv1.ReleaseRequest{TaskId: someID, ClaimToken: claimToken, Delay: durationpb.New(-1)})
	_, of := ReleaseOf("n", &pawlv1.ReleaseRequest{TaskId: "7", ClaimToken: claimToken, Delay: durationpb.New(1)})
	if e, ok := task.AsError(of); !ok || e.Field != "task_id" {
		t.Errorf("ReleaseOf an invalid task id: %v, want task_id refused", of)
	}
	_, kind := AckOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: claimToken, ContentType: strings.Repeat("x", l.Name+1)}, l)
	_, data := AckOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: claimToken, Result: []byte("{")}, l)
	_, id := AckOf("n", &pawlv1.AckRequest{TaskId: "7", ClaimToken: claimToken}, l)
	for field, err := range map[string]error{"delay": late, "content_type": kind, "result": data, "task_id": id} {
		if e, ok := task.AsError(err); !ok || e.Field != field {
			t.Errorf("got %v, want field %s refused", err, field)
		}
	}
	if s, err := AckOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: claimToken, Result: []byte("{}")}, l); err != nil ||
		s.Verb != broker.Ack || string(s.Result.Data) != "{}" {
		t.Errorf("AckOf = %+v, %v", s, err)
	}
	if _, err := AckOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: "x"}, l); err == nil {
		t.Error("AckOf accepted an invalid claim token")
	}
}

func TestClaimsAreRead(t *testing.T) {
	l := task.DefaultLimits()
	for _, c := range []struct {
		field string
		r     *pawlv1.ClaimRequest
	}{
		{"", &pawlv1.ClaimRequest{}}, {"", &pawlv1.ClaimRequest{Max: task.MaxClaim, MaxBytes: contract.MaxClaimBytes,
			Lease: durationpb.New(time.Minute)}},
		{"max", &pawlv1.ClaimRequest{Max: -1}}, {"max", &pawlv1.ClaimRequest{Max: task.MaxClaim + 1}},
		{"max_bytes", &pawlv1.ClaimRequest{MaxBytes: -1}}, {"max_bytes", &pawlv1.ClaimRequest{MaxBytes: contract.MaxClaimBytes + 1}},
		{"lease", &pawlv1.ClaimRequest{Lease: durationpb.New(0)}},
		{"lease", &pawlv1.ClaimRequest{Lease: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		{"worker", &pawlv1.ClaimRequest{Worker: strings.Repeat("x", l.Name+1)}},
		{"claim_key", &pawlv1.ClaimRequest{ClaimKey: new(strings.Repeat("x", l.Name+1))}},
	} {
		c.r.Queues = []*pawlv1.QueueShare{{Queue: "q"}}
		got, err := ClaimOf("n", c.r, l)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("ClaimOf(%v) = %v, want field %q refused", c.r, err, c.field)
		} else if err == nil && (got.Max != max(int(c.r.Max), 1) || got.MaxBytes != cmp.Or(int(c.r.MaxBytes), defaultClaimBytes) ||
			got.Lease != c.r.Lease.AsDuration()) {
			t.Errorf("ClaimOf(%v) = %+v", c.r, got)
		}
	}
}

func TestQueuesAreShown(t *testing.T) {
	one := broker.QueueInfo{Ready: [3]int64{1, 20, 300}, Scheduled: 4, Claimed: 5, Retrying: 6, Held: 7, Dead: 8, Poisoned: 9}
	q := queues.Queue{Name: "q", Shard: 1}
	p := QueueProto(q, one, []broker.QueueInfo{one})
	if d := p.GetDepth(); d.GetReady() != 321 || d.GetScheduled() != 4 || d.GetClaimed() != 5 || d.GetRetrying() != 6 || d.GetHeld() != 7 ||
		d.GetDead() != 8 || d.GetPoisoned() != 9 || len(p.GetParts()) != 0 {
		t.Errorf("QueueProto of a queue in one shard = %v", p)
	}
	q.Parts = []queues.Part{{Shard: 1, Slots: 7, Next: 3}, {Shard: 2, Next: 4}}
	p = QueueProto(q, one, []broker.QueueInfo{one, one})
	if d := p.GetDepth(); d.GetReady() != 321 || p.GetReadyByPriority().GetHigh() != 1 || p.GetReadyByPriority().GetLow() != 300 ||
		len(p.GetParts()) != 2 || p.GetParts()[0].GetSlots() != 3 || !p.GetParts()[0].GetMoving() ||
		p.GetParts()[1].GetDepth().GetReady() != 321 {
		t.Errorf("QueueProto of a queue in two shards = %v", p)
	}
	q.Own, q.Parts = true, append(q.Parts, queues.Part{Shard: 3, Slots: 8})
	if p := QueueProto(q, one, []broker.QueueInfo{one, one, one}).GetParts(); p[0].GetShard() != 3 || p[0].GetOwn() ||
		!p[1].GetOwn() || !p[2].GetOwn() {
		t.Errorf("parts of a queue in two shards of its own and one that it is leaving = %v", p)
	}
	if rateProto(task.Rate{}) != nil {
		t.Error("a zero rate was converted to a rate")
	}
	if r := rateProto(task.Rate{Limit: 3, Period: time.Second, Burst: 9}); r.GetLimit() != 3 || r.GetPeriod().AsDuration() != time.Second ||
		r.GetBurst() != 9 {
		t.Errorf("rateProto = %v", r)
	}
}

// Decoding a task, a filter, a queue's settings, a schedule or an operation and encoding it again preserves every field.
func TestRoundTrips(t *testing.T) {
	l := task.DefaultLimits()
	const spec = `"type":"a","payload":"eyJ4IjoxfQ==","content_type":"application/json","queue":"q","priority":"PRIORITY_HIGH","idempotency_key":"i","idempotency_ttl":"61s","max_attempts":7,
		"retry":{"initial":"2s","factor":3,"max":"60s","jitter":0.5},"timeout":"62s","expires_in":"3600s","retention":"64s","key":"k","tags":["t","u"],"headers":{"h":"v"},"cost":3,
		"unique":{"key":"u","states":["STATE_SCHEDULED","STATE_READY","STATE_CLAIMED","STATE_RETRYING","STATE_SUCCEEDED"],"on_conflict":"ON_CONFLICT_REJECT"}`
	for _, c := range []struct {
		said string
		back func(said []byte) (read, shown proto.Message, err error)
	}{
		{`{` + spec + `,"delay":"5s","then":[{` + spec + `,"delay":"6s"}]}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.TaskSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := SpecOf(p, l)
			return p, specProto(&s), errors.Join(err, err2)
		}},
		{`{"type":"a","queue":"default","priority":"PRIORITY_NORMAL","run_at":"2030-01-02T03:04:05.000006Z"}`,
			func(said []byte) (proto.Message,
				proto.Message, error) {
				p := &pawlv1.TaskSpec{}
				err := protojson.Unmarshal(said, p)
				s, err2 := SpecOf(p, l)
				return p, specProto(&s), errors.Join(err, err2)
			}},
		{`{"queue":"q","type":"a","tag":"t","key":"k","worker":"w","error":"e","fingerprint":"0123456789abcdef","q":"n","operation":"` + someID + `","states":["STATE_DEAD","STATE_READY"],
			"payload":[{"path":"x.y","value":"1"}],"created_after":"2030-01-02T03:04:05Z","created_before":"2031-01-02T03:04:05Z"}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.Filter{}
			err := protojson.Unmarshal(said, p)
			f, err2 := FilterOf(p, l)
			return p, filterProto(&f), errors.Join(err, err2)
		}},
		{`{"weights":{"high":5,"normal":3,"low":2},"retry":{"initial":"2s","factor":3,"max":"60s","jitter":0.5},"max_attempts":7,"lease":"61s","timeout":"62s","max_wait":"63s","max_length":"64","max_running":65,
			"rate":{"limit":6,"period":"7s","burst":8},"per_key":{"max_running":9,"rate":{"limit":10,"period":"11s","burst":12}},"keys":{"k":{"max_running":3,"rate":{"limit":14,"period":"15s","burst":16},"weight":17}},
			"key_order":"KEY_ORDER_STRICT","retention":{"succeeded":"71s","discarded":"72s","cancelled":"73s","dead":"74s","poisoned":"75s"}}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.QueueSettings{}
			err := protojson.Unmarshal(said, p)
			s, err2 := SettingsOf(p)
			return p, settingsProto(s), errors.Join(err, err2)
		}},
		{`{"name":"s","cron":"0 3 * * ` +
			`*","time_zone":"Europe/Paris","jitter":"61s","missed":"MISSED_ALL","overlap":"OVERLAP_ALLOW","owner":"o","task":{` +
			strings.Replace(spec, `"idempotency_key":"i","idempotency_ttl":"61s",`, "", 1) + `}}`, func(said []byte) (proto.Message,
			proto.Message, error) {
			p := &pawlv1.ScheduleSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := ScheduleOf(p, l)
			return p, scheduleSpecProto(&s), errors.Join(err, err2)
		}},
		{`{"action":"ACTION_MOVE","filter":{"queue":"q","states":["STATE_READY"]},"to_queue":"r","max":"9","canary":"8","rate":7}`,
			func(said []byte) (proto.Message, proto.Message, error) {
				p := &pawlv1.OperationSpec{}
				err := protojson.Unmarshal(said, p)
				s, err2 := OperationOf(p, l)
				return p, OperationProto(&broker.Operation{Spec: s}, "").GetSpec(), errors.Join(err, err2)
			}},
		{`{"action":"ACTION_SET_PRIORITY","filter":{"states":["STATE_READY"]},"priority":"PRIORITY_LOW"}`, func(said []byte) (proto.Message,
			proto.Message, error) {
			p := &pawlv1.OperationSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := OperationOf(p, l)
			return p, OperationProto(&broker.Operation{Spec: s}, "").GetSpec(), errors.Join(err, err2)
		}},
	} {
		if read, shown, err := c.back([]byte(c.said)); err != nil || !proto.Equal(read, shown) {
			t.Errorf("decoded: %v\nencoded: %v\n%v", read, shown, err)
		}
	}
}

// A task is returned with all its fields. Its own settings take precedence over those of its queue.
func TestTasksAreShown(t *testing.T) {
	id := func(n uint64) task.ID { return task.NewID(1, 1, n) }
	at := func(s int) broker.Time { return broker.TimeOf(time.Unix(int64(s), 0)) }
	span := 9 * time.Second
	full := &broker.View{
		Envelope: &schema.Envelope{ID: id(1), Namespace: "n", Queue: "q", Type: "a", Key: "k", Payload: []byte("1"), ContentType: "c",
			IdempotencyKey: "i", Retry: &task.Retry{Initial: 1, Factor: 2, Max: 3, Jitter: 0.5}, Timeout: time.Second, Tags: []string{"t"},
			Headers: map[string]string{"h": "v"}, Parent: &task.Parent{ID: id(2), Group: id(3), Result: []byte("7"), ContentType: "x",
				Omitted: true}, MovedFrom: id(5)},
		Exec: &schema.Exec{State: task.Claimed, Priority: task.Low, Queue: "q", Type: "a", MaxAttempts: 4, Failures: 1,
			Crashes: 2, Releases: 3, Snoozes: 4, Fence: 12, Reason: "r", Retention: &span, Cost: 2, CreatedAt: at(1), RunAt: at(2),
			ReadyAt: at(3), EndedAt: at(4), ExpiresAt: at(5), KeptUntil: at(6), MovedTo: id(6), Links: &schema.Links{Group: id(3)},
			Progress: 50, ProgressText: "half", Claim: schema.Claim{Worker: "w", At: at(10), Until: at(11)}},
		Settings: task.DefaultSettings(), WaitsFor: id(4), Checkpoint: []byte("cp"),
		Result: broker.Result{Data: []byte("8"), ContentType: "y"}, Attempts: []*broker.Attempt{{Fence: 9, Number: 3, Worker: "v",
			StartedAt: at(7), EndedAt: at(8), Outcome: task.OutcomeFailed, Failure: broker.Failure{Message: "m", Type: "E", Stack: "s"},
			Waited: time.Second, NextRunAt: at(9)}},
	}
	bare := &broker.View{Envelope: &schema.Envelope{ID: id(1)}, Exec: &schema.Exec{State: task.Succeeded}, Settings: task.DefaultSettings(),
		Attempts: []*broker.Attempt{{Number: 2}}}
	var got bytes.Buffer
	for _, v := range []*broker.View{full, bare} {
		b, err := protojson.Marshal(TaskProto(v, v == full))
		if err = errors.Join(err, json.Compact(&got, b)); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
	}
	golden(t, "testdata/tasks.json", got.Bytes())
}

// The total of an operation is reported as far as it is known, and capped by its maximum.
func TestTotalsOfOperations(t *testing.T) {
	for _, c := range []struct {
		total, matched, most int64
		soFar                bool
		want                 string
	}{
		{5, 3, 0, true, "5 true"}, {5, 3, 0, false, "5 false"}, {5, 7, 0, true, "7 true"}, {5, 3, 9, true, "5 true"},
		{5, 3, 9, false, "5 false"}, {5, 3, 5, true, "5 false"}, {5, 3, 4, true, "4 false"}, {5, 7, 6, false, "6 false"},
	} {
		o := &broker.Operation{}
		o.Spec.Total, o.Spec.TotalSoFar, o.Spec.Max, o.Matched = c.total, c.soFar, c.most, c.matched
		p := OperationProto(o, "")
		if got := fmt.Sprint(p.GetTotal(), " ", p.GetTotalIsLowerBound()); got != c.want {
			t.Errorf("total of %+v = %s", c, got)
		}
	}
}

// The parent of a task is returned as a task or as a group.
func TestParentsAreShown(t *testing.T) {
	id := task.NewID(1, 1, 1)
	if p := parentProto(&task.Parent{ID: id}); p.GetTaskId() != id.String() || p.GetGroupId() != "" {
		t.Errorf("parent that is a task = %v", p)
	}
	if p := parentProto(&task.Parent{Group: id}); p.GetGroupId() != id.String() || p.GetTaskId() != "" {
		t.Errorf("parent that is a group = %v", p)
	}
	if p := followerProto(&broker.Follower{Type: "a"}); p.GetTaskId() != "" {
		t.Errorf("follow-up that does not exist yet = %v, want no id", p)
	}
	if p := MemberProto(&broker.GroupMember{Type: "a"}); p.GetTaskId() != "" {
		t.Errorf("member that does not exist yet = %v, want no id", p)
	}
}

// Every rate needs a period, and errors in a queue's rules name the rule.
func TestRulesAreChecked(t *testing.T) {
	rate := &pawlv1.Rate{Limit: 1}
	odd := &durationpb.Duration{Seconds: 1, Nanos: -1}
	for field, p := range map[string]*pawlv1.QueueSettings{
		"rate.period": {Rate: rate}, "per_key.rate.period": {PerKey: &pawlv1.KeyRules{Rate: rate}},
		"keys.a.rate.period": {Keys: map[string]*pawlv1.KeyRules{"a": {Rate: rate}}},
		"breaker.window":     {Breaker: &pawlv1.Breaker{Window: odd}}, "breaker.hold": {Breaker: &pawlv1.Breaker{Hold: odd}},
		"breaker.max_hold": {Breaker: &pawlv1.Breaker{MaxHold: odd}}, "breaker.off": {Breaker: &pawlv1.Breaker{Off: true, Probes: 1}},
		"breakers.t.window": {Breakers: map[string]*pawlv1.Breaker{
			"t": {Window: durationpb.New(0)}}},
	} {
		_, err := SettingsOf(p)
		if e, _ := task.AsError(err); e == nil || e.Field != field {
			t.Errorf("SettingsOf(%v) = %v, want %s refused", p, err, field)
		}
	}
	s, err := SettingsOf(&pawlv1.QueueSettings{Breakers: map[string]*pawlv1.Breaker{"t": {Probes: 3}, "u": {Off: true}},
		Keys: map[string]*pawlv1.KeyRules{"a": {MaxRunning: 1}, "b": {MaxRunning: 2, Weight: 5}}})
	if err != nil || len(s.Breakers) != 2 || s.Breakers["t"].Probes != 3 || s.Breakers["t"].Window == 0 || s.Breakers["u"].IsSet() ||
		len(s.Keys) != 2 || s.Keys["b"].MaxRunning != 2 || s.Keys["b"].Weight != 5 {
		t.Errorf("SettingsOf = %+v, %v", s, err)
	}
}

// A queue's breakers are ordered by how long they have been open, and breakers of parts name their shard.
func TestBreakersOfParts(t *testing.T) {
	is := func(typ string, since broker.Time) broker.BreakerInfo {
		return broker.BreakerInfo{Type: typ, Since: since, State: broker.BreakerOpen}
	}
	one := broker.QueueInfo{BreakersOpen: 3, Breakers: []broker.BreakerInfo{is("c", 7), is("b", 5), is("a", 5)}}
	other := broker.QueueInfo{BreakersOpen: 1, Breakers: []broker.BreakerInfo{is("d", 6)}}
	parts := []queues.Part{{Shard: 1, Slots: 1, Next: 1}, {Shard: 2, Slots: 2, Next: 2}}
	for _, c := range []struct {
		q     queues.Queue
		parts []broker.QueueInfo
		want  string
		open  int
	}{
		{queues.Queue{Name: "q", Shard: 1}, []broker.QueueInfo{one}, "a of 0, b of 0, c of 0", 3},
		{queues.Queue{Name: "q", Parts: parts}, []broker.QueueInfo{one, other}, "a of 1, b of 1, d of 2, c of 1", 4},
	} {
		var got []string
		told, open := breakersProto(c.q, c.parts)
		for _, p := range told {
			got = append(got, fmt.Sprintf("%s of %d", p.Type, p.Shard))
		}
		if strings.Join(got, ", ") != c.want || open != c.open {
			t.Errorf("%d breakers are open, want %d: got %q, want %q", open, c.open, got, c.want)
		}
	}
	if _, err := breakerOf("breaker", &pawlv1.Breaker{Window: &durationpb.Duration{Seconds: 1, Nanos: -1}}); err == nil ||
		!strings.Contains(err.Error(), "is not a duration") {
		t.Errorf("breakerOf an invalid window: %v", err)
	}
}

// Unknown values are encoded as unspecified, missing ones are left out, and a claim's fields are all decoded.
func TestConversionsOfParts(t *testing.T) {
	for _, s := range []task.State{task.State(len(statusByState)), 99} {
		if got := StatusProto(s); got != pawlv1.Status_STATUS_UNSPECIFIED {
			t.Errorf("StatusProto(%d) = %v, want unspecified", s, got)
		}
	}
	if got := OnceStateProto(99); got != pawlv1.OnceState_ONCE_STATE_UNSPECIFIED {
		t.Errorf("OnceStateProto of an unknown state = %v, want unspecified", got)
	}
	for verb, want := range map[broker.Verb][2]bool{broker.Ack: {}, broker.Fail: {true, false}, broker.Release: {true, false},
		broker.Extend: {false, true}} {
		p := &pawlv1.Settled{}
		SettledProto(p, verb, &broker.Settled{NextRunAt: 5, LeaseUntil: 6})
		if got := [2]bool{p.NextRunAt != nil, p.LeaseExpiresAt != nil}; got != want {
			t.Errorf("SettledProto of verb %v = %v", verb, p)
		}
	}
	for _, x := range []struct {
		e    broker.Tick
		want *pawlv1.Tick
	}{
		{broker.Tick{Planned: 5, At: 7, Outcome: schema.TickFired, Task: task.NewID(1, 1, 1)},
			&pawlv1.Tick{TaskId: task.NewID(1, 1, 1).String(),
				Late: durationpb.New(2 * time.Microsecond)}},
		{broker.Tick{Planned: 5, At: 7, Outcome: broker.TickSkipped}, &pawlv1.Tick{}},
		{broker.Tick{Planned: 5, At: 5, Outcome: schema.TickFired},
			&pawlv1.Tick{}},
		{broker.Tick{Planned: 7, At: 5, Outcome: schema.TickFired}, &pawlv1.Tick{}},
	} {
		if p := TickProto(&x.e); p.TaskId != x.want.TaskId || !proto.Equal(p.Late, x.want.Late) {
			t.Errorf("TickProto(%+v) = %v", x.e, p)
		}
	}
	for what, r := range map[string]*pawlv1.ClaimRequest{
		"worker": {Queues: shares("q"), Lease: durationpb.New(time.Minute), Worker: "a\nb"}, "types": {Queues: shares("q"),
			Types: []string{"a", ""}},
	} {
		if _, err := ClaimOf("default", r, task.DefaultLimits()); err == nil || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("ClaimOf with a wrong %s: %v", what, err)
		}
	}
	both := []*pawlv1.QueueShare{{Queue: "b", Weight: 2}, {Queue: "a", Weight: 1}}
	for order, want := range map[pawlv1.Order]string{pawlv1.Order_ORDER_STRICT: "[{b 0} {a 0}] false",
		pawlv1.Order_ORDER_WEIGHTED: "[{a 1} {b 2}] true", 0: "[{a 1} {b 2}] true"} {
		got, weighted, err := sharesOf(both, order, task.DefaultLimits())
		if text := fmt.Sprint(got, " ", weighted); text != want || err != nil {
			t.Errorf("sharesOf in order %v = %s, %v, want %s", order, text, err, want)
		}
	}
	if _, err := SettingsOf(&pawlv1.QueueSettings{PerKey: &pawlv1.KeyRules{Rate: &pawlv1.Rate{Limit: 1}}}); err == nil ||
		!strings.Contains(err.Error(), "per_key.rate.period: is required") {
		t.Errorf("SettingsOf a rate without a period: %v", err)
	}
	if _, err := OperationOf(&pawlv1.OperationSpec{Action: 99}, task.DefaultLimits()); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("OperationOf an unknown action: %v", err)
	}
	for _, said := range []*durationpb.Duration{nil, durationpb.New(time.Minute)} {
		group, err := GroupOf(&pawlv1.CreateGroupRequest{Tasks: many(1, &pawlv1.TaskSpec{Type: "a"}), Retention: said},
			task.DefaultLimits())
		if err != nil || (group.Retention == nil) != (said == nil) || said != nil && *group.Retention != time.Minute {
			t.Errorf("GroupOf with retention %v = %v, %v", said, group.Retention, err)
		}
	}
	if p := OperationProto(&broker.Operation{Spec: broker.OperationSpec{Max: 1, Total: 5, TotalSoFar: true}}, ""); p.Total != 1 ||
		p.TotalIsLowerBound {
		t.Errorf("OperationProto of an operation on one of five or more tasks = %v", p)
	}
}

// many returns a list of n references to one task.
func many(n int, t *pawlv1.TaskSpec) []*pawlv1.TaskSpec {
	list := make([]*pawlv1.TaskSpec, n)
	for i := range list {
		list[i] = t
	}
	return list
}

// claimToken is a valid claim token.
var claimToken = task.Token{Epoch: 1, Fence: 2, Nonce: 3}.String()

const someID = "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares got with a golden file. -rewrite rewrites the file.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\ngot\n%swant\n%s", path, err, got, want)
	}
}

func shares(text string) (queues []*pawlv1.QueueShare) {
	for _, f := range strings.Fields(text) {
		name, weight, _ := strings.Cut(f, "=")
		q := &pawlv1.QueueShare{Queue: name}
		fmt.Sscan(weight, &q.Weight)
		queues = append(queues, q)
	}
	return queues
}

// Nothing is returned along with an error.
func TestNoValueBesideError(t *testing.T) {
	l, two := task.DefaultLimits(), []*pawlv1.QueueShare{{Queue: "q", Weight: 1}, {Queue: "r", Weight: 2}}
	refused := map[string]func() (told any, err error){
		"limit":    func() (any, error) { return LimitOf(-1) },
		"priority": func() (any, error) { return priorityOf(4) },
		"wait":     func() (any, error) { return WaitOf(durationpb.New(-1)) },
		"duration": func() (any, error) { return SpanOf("x", &durationpb.Duration{Seconds: 1, Nanos: -1}) },
		"page": func() (any, error) {
			n, _, err := PageOf(&pawlv1.ListTokensRequest{Limit: -1}, TokenCursor)
			return n, err
		},
		"too many queues": func() (any, error) { _, w, err := sharesOf(nil, pawlv1.Order_ORDER_WEIGHTED, l); return w, err },
		"order":           func() (any, error) { _, w, err := sharesOf(two, 7, l); return w, err },
		"queue of a claim": func() (any, error) {
			_, w, err := sharesOf([]*pawlv1.QueueShare{{Queue: "a b", Weight: 1}}, 0, l)
			return w, err
		},
		"weight": func() (any, error) {
			_, w, err := sharesOf([]*pawlv1.QueueShare{{Queue: "a", Weight: -1}}, 0, l)
			return w, err
		},
		"moment":       func() (any, error) { return MomentOf("x", &timestamppb.Timestamp{Nanos: -1}) },
		"early moment": func() (any, error) { return MomentOf("x", &timestamppb.Timestamp{Seconds: -9}) },
	}
	for what, do := range refused {
		if told, err := do(); err == nil || !reflect.ValueOf(told).IsZero() {
			t.Errorf("%s: got %v with error %v, want the zero value and an error", what, told, err)
		}
	}
}

// Long input is quoted only in part.
func TestLongInputIsTruncated(t *testing.T) {
	long := strings.Repeat("x", 5000)
	_, print := FilterOf(&pawlv1.Filter{Fingerprint: new(long)}, task.DefaultLimits())
	for what, err := range map[string]error{
		"cursor": BadCursor(long), "fingerprint": print, "other queue": checkTargets(&broker.OperationSpec{Action: task.Cancel,
			ToQueue: long},
			task.Limits{}),
	} {
		if repeated := regexp.MustCompile("x{9,}").FindString(fmt.Sprint(err)); len(repeated) != 64 {
			t.Errorf("%s: the error repeats %d bytes, want 64: %.400v", what, len(repeated), err)
		}
	}
}

func TestFollowersAreShown(t *testing.T) {
	id := task.NewID(1, 1, 7)
	if p := followersProto([]broker.Follower{{ID: id, Type: "a"}, {Type: "b"}}); len(p) != 2 || p[0].TaskId != id.String() ||
		p[1].TaskId != "" || p[1].Type != "b" {
		t.Errorf("followersProto = %v", p)
	}
}

// A list ordered by end times continues at an end time, and any other list at an id.
func TestListPositions(t *testing.T) {
	if at := placeTime(PlaceOf(&broker.View{Envelope: &schema.Envelope{ID: task.NewID(1, 5000, 7)}, Exec: &schema.Exec{EndedAt: 9_000_000}},
		true)); at.Unix() != 9 {
		t.Errorf("place of a task that ended at 9 s = %v", at)
	}
	if at := placeTime(PlaceOf(&broker.View{Envelope: &schema.Envelope{ID: task.NewID(1, 5000, 7)}, Exec: &schema.Exec{EndedAt: 9_000_000}},
		false)); at.Unix() != 5 {
		t.Errorf("place of a task that was created at 5 s = %v", at)
	}
}

// JSON is stored with one content type, however it was named.
func TestContentTypesOfJSON(t *testing.T) {
	const named = "application/json; charset=utf-8"
	s, err := SpecOf(&pawlv1.TaskSpec{Type: "a", Payload: []byte("{}"), ContentType: named,
		Then: []*pawlv1.TaskSpec{{Type: "b", Payload: []byte("1"), ContentType: named}}}, task.DefaultLimits())
	if err != nil || s.ContentType != "application/json" || s.Then[0].ContentType != "application/json" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := SpecOf(&pawlv1.TaskSpec{Type: "a", Payload: []byte("{"), ContentType: named}, task.DefaultLimits()); err == nil {
		t.Error("a payload that is no JSON is accepted as such")
	}
	id, token := task.NewID(1, 1, 1), task.Token{Fence: 1, Nonce: 1}
	a, err := AckOf("default", &pawlv1.AckRequest{TaskId: id.String(), ClaimToken: token.String(), Result: []byte("1"), ContentType: named},
		task.DefaultLimits())
	if err != nil || a.Result.ContentType != "application/json" {
		t.Errorf("%+v, %v", a, err)
	}
}
