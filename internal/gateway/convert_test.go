package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pawlq/pawl/api/keda"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/stats"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb/verbtest"
)

// The API's enums have the numbers of package task, so that they need no lookup.
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
		{"then[1].then[0].queue", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b"}, {Type: "b", Then: []*pawlv1.TaskSpec{{Type: "c", Queue: "/"}}}}}},
		{"then[0].request_id", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", RequestId: "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"}}}},
		{"then[0].payload", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Payload: []byte("{")}}}},
		{"then[1]", &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b"}, nil}}},
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

// A sparse policy gets the defaults for the rest.
func TestRetryDefaults(t *testing.T) {
	r, err := retryOf(&pawlv1.RetryPolicy{Initial: durationpb.New(time.Hour)})
	if err != nil || *r != (task.Retry{Initial: time.Hour, Factor: 2, Max: time.Hour, Jitter: 0.25}) {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err = retryOf(&pawlv1.RetryPolicy{Factor: 3}); err != nil || *r != (task.Retry{Initial: task.DefaultRetry.Initial, Factor: 3, Max: task.DefaultRetry.Max, Jitter: task.DefaultRetry.Jitter}) {
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

// many returns a list of n references to one task.
func many(n int, t *pawlv1.TaskSpec) []*pawlv1.TaskSpec {
	list := make([]*pawlv1.TaskSpec, n)
	for i := range list {
		list[i] = t
	}
	return list
}

// chain returns a task with a chain of n follow-ups.
func chain(n int) *pawlv1.TaskSpec {
	t := &pawlv1.TaskSpec{Type: "a"}
	for range n {
		t = &pawlv1.TaskSpec{Type: "a", Then: []*pawlv1.TaskSpec{t}}
	}
	return t
}

// The follow-ups of a task are limited in total, in bytes too.
func TestChainBounds(t *testing.T) {
	l := task.DefaultLimits()
	if _, err := specOf(chain(task.MaxChainDepth), l); err != nil {
		t.Errorf("the longest chain: %v", err)
	}
	few := &pawlv1.TaskSpec{Type: "b", Then: many(task.MaxThen, &pawlv1.TaskSpec{Type: "c", Then: many(2, &pawlv1.TaskSpec{Type: "d"})})} // 1 + 8 + 16
	if _, err := specOf(&pawlv1.TaskSpec{Type: "a", Then: many(task.MaxChain/25, few)}, l); err != nil {
		t.Errorf("as many as may follow: %v", err)
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

// claimToken is a valid claim token.
var claimToken = task.Token{Epoch: 1, Fence: 2, Nonce: 3}.String()

const someID = "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"

func TestFailsAreRead(t *testing.T) {
	l := task.DefaultLimits()
	in := durationpb.New(time.Minute)
	for _, c := range []struct {
		field string // "": it is valid
		r     *pawlv1.FailRequest
		want  broker.FailResult
	}{
		{"", &pawlv1.FailRequest{}, broker.FailRetry}, {"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_RETRY, RetryIn: in}, broker.FailRetry},
		{"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DEAD}, broker.FailDead}, {"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DISCARD}, broker.FailDiscard},
		{"", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_POISON}, broker.FailPoison}, {"outcome", &pawlv1.FailRequest{Outcome: 9}, 0},
		{"retry_in", &pawlv1.FailRequest{Outcome: pawlv1.FailOutcome_FAIL_OUTCOME_DEAD, RetryIn: in}, 0}, {"retry_in", &pawlv1.FailRequest{RetryIn: durationpb.New(-1)}, 0},
		{"retry_in", &pawlv1.FailRequest{RetryIn: durationpb.New(task.MaxDelay + 1)}, 0}, {"", &pawlv1.FailRequest{RetryIn: durationpb.New(task.MaxDelay)}, broker.FailRetry},
	} {
		c.r.TaskId, c.r.ClaimToken = someID, claimToken
		s, err := failOf("n", c.r, l)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("%v: got %v, want a refusal of %q", c.r, err, c.field)
		} else if err == nil && (s.Verb != broker.Fail || s.Fail.Action != c.want || (s.Fail.RetryIn != nil) != (c.r.RetryIn != nil) || s.Hold.Namespace != "n" || s.Hold.Token.Fence != 2) {
			t.Errorf("%v: read as %+v", c.r, s)
		}
	}
}

func TestExtendsAreRead(t *testing.T) {
	for _, c := range []struct {
		field string
		r     *pawlv1.ExtendRequest
		want  broker.Extension
	}{
		{"", &pawlv1.ExtendRequest{}, broker.Extension{}}, {"", &pawlv1.ExtendRequest{Lease: durationpb.New(time.Minute)}, broker.Extension{Lease: time.Minute}},
		{"lease", &pawlv1.ExtendRequest{Lease: durationpb.New(0)}, broker.Extension{}}, {"lease", &pawlv1.ExtendRequest{Lease: &durationpb.Duration{Seconds: 1, Nanos: -1}}, broker.Extension{}},
		{"", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: 100, Message: "done"}}, broker.Extension{Progress: &broker.Progress{Percent: 100, Text: "done"}}},
		{"", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{}}, broker.Extension{Progress: &broker.Progress{}}},
		{"progress.percent", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: 100.1}}, broker.Extension{}}, {"progress.percent", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: -1}}, broker.Extension{}},
		{"progress.percent", &pawlv1.ExtendRequest{Progress: &pawlv1.Progress{Percent: math.NaN()}}, broker.Extension{}},
		{"", &pawlv1.ExtendRequest{Checkpoint: make([]byte, task.MaxCheckpoint)}, broker.Extension{Checkpoint: new([]byte)}},
		{"checkpoint", &pawlv1.ExtendRequest{Checkpoint: make([]byte, task.MaxCheckpoint+1)}, broker.Extension{}},
	} {
		c.r.TaskId, c.r.ClaimToken = someID, claimToken
		s, err := extendOf("n", c.r)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("%+v: got %v, want a refusal of %q", c.want, err, c.field)
		} else if got := s.Extend; err == nil && (s.Verb != broker.Extend || got.Lease != c.want.Lease || (got.Checkpoint != nil) != (c.want.Checkpoint != nil) || !reflect.DeepEqual(got.Progress, c.want.Progress)) {
			t.Errorf("read as %+v, want %+v", got, c.want)
		}
	}
}

func TestReleasesAndAcksAreRead(t *testing.T) {
	l := task.DefaultLimits()
	for _, d := range []*durationpb.Duration{nil, durationpb.New(time.Minute)} {
		if s, err := releaseOf("n", &pawlv1.ReleaseRequest{TaskId: someID, ClaimToken: claimToken, Delay: d}); err != nil || s.Verb != broker.Release || s.Delay != d.AsDuration() {
			t.Errorf("a release with delay %v is read as %+v, %v", d, s, err)
		}
	}
	_, late := releaseOf("n", &pawlv1.ReleaseRequest{TaskId: someID, ClaimToken: claimToken, Delay: durationpb.New(-1)})
	_, of := releaseOf("n", &pawlv1.ReleaseRequest{TaskId: "7", ClaimToken: claimToken, Delay: durationpb.New(1)})
	if e, ok := task.AsError(of); !ok || e.Field != "task_id" {
		t.Errorf("a release of a task that is none: %v", of)
	}
	_, kind := ackOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: claimToken, ContentType: strings.Repeat("x", l.Name+1)}, l)
	_, data := ackOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: claimToken, Result: []byte("{")}, l)
	_, id := ackOf("n", &pawlv1.AckRequest{TaskId: "7", ClaimToken: claimToken}, l)
	for field, err := range map[string]error{"delay": late, "content_type": kind, "result": data, "task_id": id} {
		if e, ok := task.AsError(err); !ok || e.Field != field {
			t.Errorf("got %v, want a refusal of %s", err, field)
		}
	}
	if s, err := ackOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: claimToken, Result: []byte("{}")}, l); err != nil || s.Verb != broker.Ack || string(s.Result.Data) != "{}" {
		t.Errorf("an ack is read as %+v, %v", s, err)
	}
	if _, err := ackOf("n", &pawlv1.AckRequest{TaskId: someID, ClaimToken: "x"}, l); err == nil {
		t.Error("a token that is none is read")
	}
}

func TestClaimsAreRead(t *testing.T) {
	l := task.DefaultLimits()
	for _, c := range []struct {
		field string
		r     *pawlv1.ClaimRequest
	}{
		{"", &pawlv1.ClaimRequest{}}, {"", &pawlv1.ClaimRequest{Max: task.MaxClaim, MaxBytes: contract.MaxClaimBytes, Lease: durationpb.New(time.Minute)}},
		{"max", &pawlv1.ClaimRequest{Max: -1}}, {"max", &pawlv1.ClaimRequest{Max: task.MaxClaim + 1}}, {"max_bytes", &pawlv1.ClaimRequest{MaxBytes: -1}},
		{"max_bytes", &pawlv1.ClaimRequest{MaxBytes: contract.MaxClaimBytes + 1}}, {"lease", &pawlv1.ClaimRequest{Lease: durationpb.New(0)}},
		{"lease", &pawlv1.ClaimRequest{Lease: &durationpb.Duration{Seconds: 1, Nanos: -1}}}, {"worker", &pawlv1.ClaimRequest{Worker: strings.Repeat("x", l.Name+1)}},
		{"claim_key", &pawlv1.ClaimRequest{ClaimKey: strings.Repeat("x", l.Name+1)}},
	} {
		c.r.Queues = []*pawlv1.QueueShare{{Queue: "q"}}
		got, err := claimOf("n", c.r, l)
		if e, _ := task.AsError(err); (err == nil) != (c.field == "") || err != nil && e.Field != c.field {
			t.Errorf("%v: got %v, want a refusal of %q", c.r, err, c.field)
		} else if err == nil && (got.Max != max(int(c.r.Max), 1) || got.MaxBytes != cmp.Or(int(c.r.MaxBytes), defaultClaimBytes) || got.Lease != c.r.Lease.AsDuration()) {
			t.Errorf("%v: read as %+v", c.r, got)
		}
	}
}

func TestQueuesAreShown(t *testing.T) {
	one := broker.QueueInfo{Ready: [3]int64{1, 20, 300}, Scheduled: 4, Claimed: 5, Retrying: 6, Held: 7, Dead: 8, Poisoned: 9}
	q := queues.Queue{Name: "q", Shard: 1}
	p := queueProto(q, one, []broker.QueueInfo{one})
	if d := p.GetDepth(); d.GetReady() != 321 || d.GetScheduled() != 4 || d.GetClaimed() != 5 || d.GetRetrying() != 6 || d.GetHeld() != 7 || d.GetDead() != 8 || d.GetPoisoned() != 9 || len(p.GetParts()) != 0 {
		t.Errorf("in one shard: %v", p)
	}
	q.Parts = []queues.Part{{Shard: 1, Slots: 7, Next: 3}, {Shard: 2, Next: 4}}
	p = queueProto(q, one, []broker.QueueInfo{one, one})
	if d := p.GetDepth(); d.GetReady() != 321 || p.GetReadyByPriority().GetHigh() != 1 || p.GetReadyByPriority().GetLow() != 300 || len(p.GetParts()) != 2 || p.GetParts()[0].GetSlots() != 3 || !p.GetParts()[0].GetMoving() || p.GetParts()[1].GetDepth().GetReady() != 321 {
		t.Errorf("in two shards: %v", p)
	}
	q.Own, q.Parts = true, append(q.Parts, queues.Part{Shard: 3, Slots: 8})
	if p := queueProto(q, one, []broker.QueueInfo{one, one, one}).GetParts(); p[0].GetShard() != 3 || p[0].GetOwn() || !p[1].GetOwn() || !p[2].GetOwn() {
		t.Errorf("in two shards of its own, and one that it leaves: %v", p)
	}
	if rateProto(task.Rate{}) != nil {
		t.Error("no rate is a rate")
	}
	if r := rateProto(task.Rate{Limit: 3, Period: time.Second, Burst: 9}); r.GetLimit() != 3 || r.GetPeriod().AsDuration() != time.Second || r.GetBurst() != 9 {
		t.Errorf("a rate is %v", r)
	}
}

func TestSettingsAreRead(t *testing.T) {
	for _, n := range []int32{0, 1, 7} {
		s, err := settingsOf(&pawlv1.QueueSettings{MaxAttempts: n})
		if want := cmp.Or(int(n), task.DefaultSettings().MaxAttempts); err != nil || s.MaxAttempts != want {
			t.Errorf("%d attempts are read as %d, %v", n, s.MaxAttempts, err)
		}
	}
	if _, err := timeOf("at", &timestamppb.Timestamp{Nanos: -1}); err == nil {
		t.Error("a time that is none is read")
	}
	for name, want := range map[string]string{"/pawl.v1.ProducerService/Enqueue": "ProducerService/Enqueue", "/grpc.health.v1.Health/Check": "grpc.health.v1.Health/Check"} {
		if got := rpcName(name); got != want {
			t.Errorf("%s is counted as %s, want %s", name, got, want)
		}
	}
}

// countedStats return a test's figures for a minute and for a day, and record what is asked.
type countedStats struct {
	figures
	brief   stats.Brief
	day     stats.Report
	windows []stats.Window
	counts  broker.CountsQuery
}

type figures = Stats

func (c *countedStats) Briefs(context.Context, string, []string) []stats.Brief {
	return []stats.Brief{c.brief}
}

func (c *countedStats) Stats(_ context.Context, _ stats.Queue, w stats.Window) (stats.Report, []stats.LateTick, []string) {
	c.windows = append(c.windows, w)
	return c.day, nil, nil
}

func (c *countedStats) QueueCounts(_ context.Context, q broker.CountsQuery) []broker.QueueCount {
	c.counts = q
	return nil
}

// The run time of tasks is taken from the day if none has ended recently and some wait or arrived; otherwise the day is not asked
// for.
func TestScaleOfAQueueThatRests(t *testing.T) {
	for _, c := range []struct {
		ended, ready int
		readied      uint32
		want         float64 // seconds; 0: unknown
	}{{0, 0, 0, 0}, {0, 1, 0, 60}, {0, 0, 1, 60}, {1, 1, 1, 1}, {2, 1, 1, 1}, {1, 0, 0, 1}} {
		g := newGateway(newFake())
		ctx, _ := begin(t.Context(), "grpc", "test")
		put(t, g, ctx, "q", 1, "1")
		if c.ready == 0 {
			claimText(t, g, ctx, &pawlv1.ClaimRequest{Queues: shares("q")})
		}
		counted := &countedStats{brief: stats.Brief{Span: time.Minute, Rates: stats.Rates{Readied: c.readied}, Run: histogramOf(c.ended, time.Second)}, day: stats.Report{Run: histogramOf(3, time.Minute)}}
		g.cfg.Stats = counted
		p, err := statsService{Gateway: g}.GetQueueScale(ctx, &pawlv1.GetQueueScaleRequest{Queue: "q"})
		if err != nil || p.GetRunSeconds() != c.want || slices.Contains(counted.windows, stats.Day) != (c.want == 60) {
			t.Errorf("%+v: %v, %v, after asking for %v", c, p, err, counted.windows)
		}
	}
}

// A list of queues with a trait asks for exactly those counts.
func TestCountsOfQueues(t *testing.T) {
	for having, want := range map[string]broker.CountsQuery{contract.QueueDead: {State: task.Dead}, contract.QueuePoisoned: {State: task.Poisoned}, contract.QueueNoWorker: {State: task.Ready, NoWorker: true}, "": {Most: 7}} {
		g, counted := newGateway(newFake()), &countedStats{}
		g.cfg.Stats = counted
		want.Namespace, want.Pattern = "default", "a*"
		q := queueList{ns: "default", pattern: "a*", having: having, most: having == "", limit: 7}
		if _, _, err := g.listed(t.Context(), q); err != nil || counted.counts != want {
			t.Errorf("queues having %q: asked for %+v, want %+v (%v)", having, counted.counts, want, err)
		}
	}
}

// histogramOf returns a histogram of n durations.
func histogramOf(n int, d time.Duration) stats.Histogram {
	e := stats.Event{Namespace: "n", Queue: "q", Type: "t", Ran: d}
	e.Counts = e.Counts.With(stats.Succeeded)
	now := time.Now()
	book := stats.New(now.Add(-time.Hour))
	for range n {
		book.Record(now, []stats.Event{e})
	}
	return book.Briefs(now, "n", []string{"q"})[0].Run
}

// How many slots a queue needs: for what arrives and for the backlog, at least those in use, at most those that may run.
func TestScale(t *testing.T) {
	ran := func(mean time.Duration) (b stats.Brief) {
		if mean > 0 {
			b.Run = histogramOf(1, mean)
		}
		return b
	}
	for _, c := range []struct {
		name            string
		info            broker.QueueInfo
		most            int
		brief           stats.Brief
		readied, claims uint64 // per minute
		slots           float64
		workers         int64
		active          bool
	}{
		{"nothing", broker.QueueInfo{}, 0, ran(0), 0, 0, 0, 0, false},
		{"a backlog, nobody knows how long tasks run", broker.QueueInfo{Ready: [3]int64{10, 10, 10}}, 0, ran(0), 0, 0, 3, 2, true},
		{"a small one needs one slot", broker.QueueInfo{Ready: [3]int64{1, 0, 0}}, 0, ran(0), 0, 0, 1, 1, true},
		{"tasks of four seconds", broker.QueueInfo{Ready: [3]int64{0, 30, 0}}, 0, ran(4 * time.Second), 0, 0, 12, 6, true},
		{"as many as may run", broker.QueueInfo{Ready: [3]int64{0, 30, 0}}, 5, ran(4 * time.Second), 0, 0, 5, 3, true},
		{"what is held is none", broker.QueueInfo{Ready: [3]int64{0, 30, 0}, Held: 30}, 0, ran(4 * time.Second), 0, 0, 0, 0, false},
		{"what runs", broker.QueueInfo{Claimed: 3}, 0, ran(0), 0, 0, 3, 2, true},
		{"what comes in", broker.QueueInfo{}, 0, ran(4 * time.Second), 60, 60, 4, 2, true},
		{"of what comes in and is not claimed yet, all", broker.QueueInfo{}, 0, ran(4 * time.Second), 60, 15, 4, 2, true},
		{"of what is held back, what gets through", broker.QueueInfo{Ready: [3]int64{0, 1, 0}, Held: 1}, 0, ran(4 * time.Second), 60, 15, 1, 1, true},
	} {
		if c.readied > 0 {
			c.brief.Span, c.brief.Rates.Readied, c.brief.Rates.Claimed = time.Minute, uint32(c.readied), uint32(c.claims) // #nosec G115 -- a few
		}
		p := scale("q", c.info, c.most, &c.brief, 10*time.Second, 2)
		if math.Abs(p.GetSlots()-c.slots) > 0.3 || p.GetWorkers() != c.workers || p.GetActive() != c.active || (p.RunSeconds != nil) != (c.brief.Run.Count() > 0) {
			t.Errorf("%s: %v, want %v slots of %d workers", c.name, p, c.slots, c.workers)
		}
	}
}

func TestPagesGoOnBehindTheLast(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	for _, c := range []struct{ behind, page, next string }{{"", "ab", "b"}, {"a", "bc", "c"}, {"b", "cd", ""}, {"bb", "cd", ""}, {"c", "d", ""}, {"d", "", ""}, {"x", "", ""}} {
		page, next := pageBehind(all, c.behind, 2, func(s string) string { return s })
		if strings.Join(page, "") != c.page || next != c.next {
			t.Errorf("behind %q: %v, then behind %q", c.behind, page, next)
		}
	}
	good := encodeCursor(taskCursor, []byte("x"))
	for cursor, want := range map[string]bool{good: true, "": true, encodeCursor(taskCursor, make([]byte, maxCursor/4*3-2)): true, good + "A": false, encodeCursor(queueCursor, []byte("x")): false, "AnR4": false, "AXQ": false, encodeCursor(taskCursor, make([]byte, maxCursor)): false} {
		if at, err := decodeCursor(taskCursor, cursor); (err == nil) != want || cursor == good && string(at) != "x" {
			t.Errorf("the cursor %.20q is %q, %v", cursor, at, err)
		}
	}
}

// Queues take turns by weight. An empty queue provides what it gave, and accrues no credit.
func TestTurnsByWeight(t *testing.T) {
	queues := []broker.Share{{Queue: "a", Weight: 3}, {Queue: "b", Weight: 1}}
	for _, c := range []struct {
		got   []int
		empty []bool
		n     int
		want  string
	}{
		{[]int{0, 0}, []bool{false, false}, 4, "[3 1]"}, {[]int{0, 0}, []bool{false, false}, 8, "[6 2]"}, {[]int{1, 0}, []bool{true, false}, 4, "[1 3]"},
		{[]int{0, 0}, []bool{true, false}, 4, "[0 4]"}, {[]int{1, 1}, []bool{true, true}, 4, "[1 1]"}, {[]int{0, 0}, []bool{true, true}, 4, "[0 0]"},
	} {
		credit := make([]int, 2)
		got := fmt.Sprint(plan(credit, queues, c.got, c.empty, c.n))
		if c.empty[0] && credit[0] != 0 || c.empty[1] && credit[1] != 0 {
			t.Errorf("%d of queues that gave %v, empty: %v: credit %v is saved", c.n, c.got, c.empty, credit)
		}
		if got != c.want {
			t.Errorf("%d of queues that gave %v, empty: %v: %s, want %s", c.n, c.got, c.empty, got, c.want)
		}
	}
}

// Decoding a task, a filter, a queue's settings, a schedule or an operation and encoding it again preserves every field.
func TestWhatIsReadIsShown(t *testing.T) {
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
			s, err2 := specOf(p, l)
			return p, specProto(&s), errors.Join(err, err2)
		}},
		{`{"type":"a","queue":"default","priority":"PRIORITY_NORMAL","run_at":"2030-01-02T03:04:05.000006Z"}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.TaskSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := specOf(p, l)
			return p, specProto(&s), errors.Join(err, err2)
		}},
		{`{"queue":"q","type":"a","tag":"t","key":"k","worker":"w","error":"e","fingerprint":"0123456789abcdef","q":"n","operation":"` + someID + `","states":["STATE_DEAD","STATE_READY"],
			"payload":[{"path":"x.y","value":"1"}],"created_after":"2030-01-02T03:04:05Z","created_before":"2031-01-02T03:04:05Z"}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.Filter{}
			err := protojson.Unmarshal(said, p)
			f, err2 := filterOf(p, l)
			return p, filterProto(&f), errors.Join(err, err2)
		}},
		{`{"weights":{"high":5,"normal":3,"low":2},"retry":{"initial":"2s","factor":3,"max":"60s","jitter":0.5},"max_attempts":7,"lease":"61s","timeout":"62s","max_wait":"63s","max_length":"64","max_running":65,
			"rate":{"limit":6,"period":"7s","burst":8},"per_key":{"max_running":9,"rate":{"limit":10,"period":"11s","burst":12}},"keys":{"k":{"max_running":3,"rate":{"limit":14,"period":"15s","burst":16},"weight":17}},
			"key_order":"KEY_ORDER_STRICT","retention":{"succeeded":"71s","discarded":"72s","cancelled":"73s","dead":"74s","poisoned":"75s"}}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.QueueSettings{}
			err := protojson.Unmarshal(said, p)
			s, err2 := settingsOf(p)
			return p, settingsProto(s), errors.Join(err, err2)
		}},
		{`{"name":"s","cron":"0 3 * * *","time_zone":"Europe/Paris","jitter":"61s","missed":"MISSED_ALL","overlap":"OVERLAP_ALLOW","owner":"o","task":{` + strings.Replace(spec, `"idempotency_key":"i","idempotency_ttl":"61s",`, "", 1) + `}}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.ScheduleSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := scheduleOf(p, l)
			return p, scheduleSpecProto(&s), errors.Join(err, err2)
		}},
		{`{"action":"ACTION_MOVE","filter":{"queue":"q","states":["STATE_READY"]},"to_queue":"r","max":"9","canary":"8","rate":7}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.OperationSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := operationOf(p, l)
			return p, operationProto(&broker.Operation{Spec: s}, "").GetSpec(), errors.Join(err, err2)
		}},
		{`{"action":"ACTION_SET_PRIORITY","filter":{"states":["STATE_READY"]},"priority":"PRIORITY_LOW"}`, func(said []byte) (proto.Message, proto.Message, error) {
			p := &pawlv1.OperationSpec{}
			err := protojson.Unmarshal(said, p)
			s, err2 := operationOf(p, l)
			return p, operationProto(&broker.Operation{Spec: s}, "").GetSpec(), errors.Join(err, err2)
		}},
	} {
		if read, shown, err := c.back([]byte(c.said)); err != nil || !proto.Equal(read, shown) {
			t.Errorf("read:  %v\nshown: %v\n%v", read, shown, err)
		}
	}
}

// A task is returned with all that it has: its own settings take precedence over its queue's.
func TestTasksAreShown(t *testing.T) {
	id := func(n uint64) task.ID { return task.NewID(1, 1, n) }
	at := func(s int) broker.Time { return broker.TimeOf(time.Unix(int64(s), 0)) }
	span := 9 * time.Second
	full := &broker.View{
		Envelope: &schema.Envelope{ID: id(1), Namespace: "n", Queue: "q", Type: "a", Key: "k", Payload: []byte("1"), ContentType: "c", IdempotencyKey: "i", Retry: &task.Retry{Initial: 1, Factor: 2, Max: 3, Jitter: 0.5},
			Timeout: time.Second, Tags: []string{"t"}, Headers: map[string]string{"h": "v"}, Parent: &task.Parent{ID: id(2), Group: id(3), Result: []byte("7"), ContentType: "x", Omitted: true}, MovedFrom: id(5)},
		Exec: &schema.Exec{State: task.Claimed, Priority: task.Low, Queue: "q", Type: "a", MaxAttempts: 4, Failures: 1, Crashes: 2, Releases: 3, Snoozes: 4, Fence: 12, Reason: "r", Retention: &span, Cost: 2,
			CreatedAt: at(1), RunAt: at(2), ReadyAt: at(3), EndedAt: at(4), ExpiresAt: at(5), KeptUntil: at(6), MovedTo: id(6), Links: &schema.Links{Group: id(3)}, Progress: 50, ProgressText: "half",
			Claim: schema.Claim{Worker: "w", At: at(10), Until: at(11)}},
		Settings: task.DefaultSettings(), WaitsFor: id(4), Checkpoint: []byte("cp"), Result: broker.Result{Data: []byte("8"), ContentType: "y"},
		Attempts: []*broker.Attempt{{Fence: 9, Number: 3, Worker: "v", StartedAt: at(7), EndedAt: at(8), Outcome: task.OutcomeFailed, Failure: broker.Failure{Message: "m", Type: "E", Stack: "s"}, Waited: time.Second, NextRunAt: at(9)}},
	}
	bare := &broker.View{Envelope: &schema.Envelope{ID: id(1)}, Exec: &schema.Exec{State: task.Succeeded}, Settings: task.DefaultSettings(), Attempts: []*broker.Attempt{{Number: 2}}}
	var got bytes.Buffer
	for _, v := range []*broker.View{full, bare} {
		b, err := protojson.Marshal(taskProto(v, v == full))
		if err = errors.Join(err, json.Compact(&got, b)); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
	}
	golden(t, "testdata/tasks.json", got.Bytes())
}

// golden compares with a file, which -rewrite rewrites.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\ngot\n%swant\n%s", path, err, got, want)
	}
}

// A dead letter that can't be restored is refused individually: one of another namespace or of a queue beyond the token, and one
// whose record is broken.
func TestBrokenDeadLettersAreNotRestored(t *testing.T) {
	for what, c := range map[string]struct {
		spoil func(*broker.ArchivedTask)
		code  task.Code // "": an internal error
	}{
		"another namespace": {func(a *broker.ArchivedTask) { a.Namespace = "other" }, task.CodeNotFound}, "another queue": {func(a *broker.ArchivedTask) { a.Queue = "sms" }, task.CodeNotFound},
		"its id": {func(a *broker.ArchivedTask) { a.ID = "x" }, ""}, "its parent": {func(a *broker.ArchivedTask) { a.Parent.TaskID = "x" }, ""}, "its group": {func(a *broker.ArchivedTask) { a.Parent.GroupID = "x" }, ""},
		"what follows": {func(a *broker.ArchivedTask) { a.Then = [][]byte{{0xff}} }, ""},
	} {
		f := newFake()
		a := fakeArchived()
		c.spoil(&a)
		f.archive = []broker.ArchivedTask{a}
		g := newGateway(f)
		ctx, _ := begin(t.Context(), "grpc", "test")
		ctx = task.WithScope(ctx, task.Scope{Queues: []string{"mail"}})
		_, _, err := g.archivedSpec(ctx, "a:1")
		if e, ok := task.AsError(err); err == nil || ok != (c.code != "") || ok && e.Code != c.code {
			t.Errorf("%s: %v", what, err)
		}
		if list, err := (operatorService{Gateway: g}).ListArchive(ctx, &pawlv1.ListArchiveRequest{}); err != nil || (len(list.Items) == 1) != (a.Queue == "mail") {
			t.Errorf("%s: listed as %v, %v", what, list, err)
		}
	}
	g := newGateway(newFake())
	for _, place := range []string{strings.Repeat("x", maxPlace), strings.Repeat("x", maxPlace+1)} {
		if _, _, err := g.archivedSpec(t.Context(), place); errors.Is(err, task.ErrInvalidArgument) != (len(place) > maxPlace) {
			t.Errorf("a place of %d bytes: %v", len(place), err)
		}
	}
	a := broker.ArchivedTask{ID: task.NewID(1, 5, 5).String(), State: "dead", CreatedAt: time.Unix(1, 0), Attempts: []broker.ArchivedAttempt{{Outcome: "moonlight"}, {Message: "m"}, {ErrorType: "t"}, {Stack: "s"}, {Outcome: task.OutcomeLeaderless.String()}}}
	if p := archivedProto(&a, "x").GetTask(); p.Retry != nil || p.Retention != nil || p.Unique != nil || p.Parent != nil || p.ExpiresAt != nil || p.Cost != 1 || p.AttemptLog[0].Outcome != 0 {
		t.Errorf("a bare dead letter is shown as %v", p)
	} else if log := p.AttemptLog; log[0].Error != nil || log[1].Error.GetMessage() != "m" || log[2].Error.GetType() != "t" || log[3].Error.GetStack() != "s" || log[4].Outcome != pawlv1.Outcome_OUTCOME_LEADERLESS {
		t.Errorf("its attempts are shown as %v", log)
	}
}

// A restored dead letter keeps its parent, if any, and has a deterministic id, so that restoring it from two places restores it
// once.
func TestDeadLettersAreRestoredOnce(t *testing.T) {
	id, group := task.NewID(1, 5, 6), task.NewID(1, 5, 7)
	for what, c := range map[string]struct {
		parent *broker.ArchivedParent
		want   *task.Parent
	}{
		"nothing": {nil, nil}, "a task": {&broker.ArchivedParent{TaskID: id.String()}, &task.Parent{ID: id}}, "a group": {&broker.ArchivedParent{GroupID: group.String()}, &task.Parent{Group: group}},
		"what is not known": {&broker.ArchivedParent{}, &task.Parent{}},
	} {
		f := newFake()
		a := fakeArchived()
		a.Parent, a.IdempotencyTTL = c.parent, 0
		f.archive = []broker.ArchivedTask{a, a}
		var specs []task.Spec
		f.enqueues = func(_ context.Context, all []task.Spec) { specs = append(specs, all...) }
		ctx, _ := begin(t.Context(), "grpc", "test")
		got, err := operatorService{Gateway: newGateway(f)}.RestoreArchive(ctx, &pawlv1.RestoreArchiveRequest{Places: []string{"a:1", "a:2"}})
		if err != nil || len(specs) != 2 {
			t.Fatalf("%s: %v, %v", what, got, err)
		}
		for _, s := range specs {
			if !reflect.DeepEqual(s.Parent, c.want) || s.Archived.String() != a.ID || s.RequestID == (task.ID{}) || s.RequestID != specs[0].RequestID || len(s.Then) != 1 {
				t.Errorf("one that follows %s comes back as %+v", what, s)
			}
		}
	}
}

// A claim has the id of its group, a follow-up the id it has, and pages of large items end before they are too large for a message.
func TestWhatIsShownBeside(t *testing.T) {
	id := task.NewID(1, 1, 1)
	c := &broker.Claimed{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{Links: &schema.Links{Group: id}}}
	if p := claimedProto(c); p.GroupId != id.String() {
		t.Errorf("a claim of a group's member: %v", p)
	}
	for _, links := range []*schema.Links{nil, {}} {
		c.Exec.Links = links
		if p := claimedProto(c); p.GroupId != "" {
			t.Errorf("a claim of no group's: %v", p)
		}
	}
	v := &broker.View{Envelope: &schema.Envelope{ID: id}, Exec: &schema.Exec{Links: &schema.Links{}}, Settings: task.Settings{Timeout: time.Minute}}
	if p := taskProto(v, false); p.GroupId != "" || p.Progress != nil || p.Timeout.AsDuration() != time.Minute {
		t.Errorf("a task that says nothing of itself: %v", p)
	}
	v.Exec.Links.Group, v.Envelope.Timeout = id, time.Second
	for _, x := range []schema.Exec{{Progress: 50, Links: v.Exec.Links}, {ProgressText: "half", Links: v.Exec.Links}} {
		v.Exec = &x
		if p := taskProto(v, false); p.GroupId != id.String() || p.Progress.GetPercent() != x.Progress || p.Progress.GetMessage() != x.ProgressText || p.Timeout.AsDuration() != time.Second {
			t.Errorf("%+v is shown as %v", x, p)
		}
	}
	if p := followersProto([]broker.Follower{{ID: id, Type: "a"}, {Type: "b"}}); len(p) != 2 || p[0].TaskId != id.String() || p[1].TaskId != "" || p[1].Type != "b" {
		t.Errorf("followers: %v", p)
	}
	view := func(payload int) *broker.View {
		return &broker.View{Envelope: &schema.Envelope{ID: id, Payload: make([]byte, payload), Parent: &task.Parent{Result: []byte("1")}}, Exec: &schema.Exec{}, Settings: task.DefaultSettings(),
			Result: broker.Result{Data: []byte("2")}, Checkpoint: []byte("3")}
	}
	for _, x := range []struct {
		sizes []int
		want  int
	}{{[]int{1, 1}, 2}, {[]int{maxPageBytes + 1, 1}, 1}, {[]int{maxPageBytes - 1000, 1}, 2}, {[]int{maxPageBytes / 2, maxPageBytes/2 + 1, 1}, 1}} {
		var views []*broker.View
		for _, n := range x.sizes {
			views = append(views, view(n))
		}
		if items, fit := tasksProto(views, true); fit != x.want || len(items) != fit || items[0].Parent.Result == nil || items[0].Result == nil || items[0].Checkpoint == nil {
			t.Errorf("tasks of %v bytes: %d fit, want %d", x.sizes, fit, x.want)
		}
		if items, fit := tasksProto(views, false); fit != len(views) || items[0].Payload != nil || items[0].Parent.Result != nil || items[0].Result != nil || items[0].Checkpoint != nil {
			t.Errorf("tasks of %v bytes without payloads: %d fit", x.sizes, fit)
		}
	}
	// exact returns a task that takes exactly n bytes of an answer.
	exact := func(n int) *broker.View {
		v := view(n)
		v.Payload = v.Payload[proto.Size(taskProto(v, true))-n:]
		return v
	}
	for second, want := range map[int]int{1000: 2, 1001: 1} {
		if _, fit := tasksProto([]*broker.View{exact(maxPageBytes - 1000), exact(second)}, true); fit != want {
			t.Errorf("%d tasks fit, the second with %d bytes where 1000 are left", fit, second)
		}
	}
	for _, x := range []struct{ sizes, want []int }{{[]int{maxPageBytes + 1, 1}, []int{1, 1}}, {[]int{maxPageBytes/2 - 1, maxPageBytes/2 - 1, 1}, []int{2, 1}}, {[]int{maxPageBytes / 2, maxPageBytes/2 + 1}, []int{1, 1}}} {
		f := newFake()
		for _, n := range x.sizes {
			a := fakeArchived()
			a.Payload = make([]byte, n)
			f.archive = append(f.archive, a)
		}
		cursor := ""
		for _, want := range x.want {
			p, err := operatorService{Gateway: newGateway(f)}.ListArchive(t.Context(), &pawlv1.ListArchiveRequest{Cursor: cursor})
			if err != nil || len(p.Items) != want {
				t.Errorf("archived tasks of %v bytes: a page of %d behind %q, want %d (%v)", x.sizes, len(p.GetItems()), cursor, want, err)
			}
			cursor = p.GetNextCursor()
		}
		if cursor != "" {
			t.Errorf("archived tasks of %v bytes: more behind %q", x.sizes, cursor)
		}
	}
	l := task.Limits{Payload: 3}
	for data, code := range map[string]task.Code{"": "", "123": "", "1234": task.CodePayloadTooLarge, "{": task.CodeInvalidArgument} {
		if e, _ := task.AsError(checkData("payload", []byte(data), "", l)); (e == nil) != (code == "") || e != nil && (e.Code != code || e.Field != "payload") {
			t.Errorf("the payload %q: %v, want %q", data, e, code)
		}
	}
	if err := checkData("payload", []byte("{"), "text/plain", l); err != nil {
		t.Error(err)
	}
	s := broker.ScheduleView{Schedule: task.Schedule{Cron: "@daily"}, Coming: []broker.Time{1, 2}}
	if p := scheduleProto(&s); len(p.Coming) != 2 || p.Last != nil || p.Paused {
		t.Errorf("a schedule: %v", p)
	}
	for _, n := range []*pawlv1.TaskSpec{{Type: "a", Then: []*pawlv1.TaskSpec{nil}}, {Type: "a", Then: []*pawlv1.TaskSpec{{Type: "b", Priority: 9}}}} {
		if e, _ := task.AsError(func() error { _, err := specOf(n, task.DefaultLimits()); return err }()); e == nil || !strings.HasPrefix(e.Field, "then[0]") {
			t.Errorf("%v: %v", n, e)
		}
	}
	if _, err := settingsOf(&pawlv1.QueueSettings{Weights: &pawlv1.PriorityWeights{}}); err == nil {
		t.Error("no weights are weights")
	}
	if _, err := settingsOf(&pawlv1.QueueSettings{Keys: map[string]*pawlv1.KeyRules{"k": {Rate: &pawlv1.Rate{}}}}); err == nil {
		t.Error("a key's rate without a period is a rate")
	}
}

// Pages end early where the answer would not fit into a message, and the next one continues after them.
func TestPagesThatFitAMessage(t *testing.T) {
	const size, tasks = 1 << 20, 14
	f := newFake()
	f.rows = 100
	g := newGateway(f)
	ctx, _ := begin(t.Context(), "grpc", "test")
	put(t, g, ctx, "q", tasks, `"`+strings.Repeat("x", size-2)+`"`)
	var pages []int
	seen := map[string]bool{}
	for cursor := ""; ; {
		r, err := producerService{Gateway: g}.ListTasks(ctx, &pawlv1.ListTasksRequest{Limit: 100, Cursor: cursor, WithPayload: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range r.Items {
			seen[i.TaskId] = true
		}
		pages = append(pages, len(r.Items))
		if cursor = r.NextCursor; cursor == "" {
			break
		}
	}
	if fmt.Sprint(pages) != "[11 3]" || len(seen) != tasks {
		t.Errorf("pages have %v tasks, %d in all", pages, len(seen))
	}
	one := func(n int) []*broker.View {
		return []*broker.View{{Envelope: &schema.Envelope{Payload: make([]byte, n)}, Exec: &schema.Exec{}}, {Envelope: &schema.Envelope{}, Exec: &schema.Exec{}}}
	}
	if _, fit := tasksProto(one(maxPageBytes+1), true); fit != 1 {
		t.Errorf("%d tasks fit, want 1 that is too large by itself", fit)
	}
	if _, fit := tasksProto(one(maxPageBytes+1), false); fit != 2 {
		t.Errorf("%d tasks fit without their payloads", fit)
	}
	if at := placeTime(placeOf(&broker.View{Envelope: &schema.Envelope{ID: task.NewID(1, 5000, 7)}, Exec: &schema.Exec{EndedAt: 9_000_000}}, true)); at.Unix() != 9 {
		t.Errorf("one that ended at 9 s is placed at %v", at)
	}
	if at := placeTime(placeOf(&broker.View{Envelope: &schema.Envelope{ID: task.NewID(1, 5000, 7)}, Exec: &schema.Exec{EndedAt: 9_000_000}}, false)); at.Unix() != 5 {
		t.Errorf("one that was made at 5 s is placed at %v", at)
	}
}

// The figures before and after a time are returned with the length of each period.
func TestPeriodsAreShown(t *testing.T) {
	p := &stats.Period{From: 100, Seconds: 10, Rates: stats.Rates{Enqueued: 50, Readied: 50, Succeeded: 30, Failed: 10}}
	got := typePeriodProto(p)
	if got.GetStart().AsTime().Unix() != 100 || got.GetStart().GetNanos() != 0 || got.GetLength().AsDuration() != 10*time.Second || got.GetFailureRate() != 0.25 || got.GetTotals().GetSucceeded() != 30 ||
		got.GetRates().GetIn() != float64(p.Rates.In())/10 || got.GetRates().GetOut() != float64(p.Rates.Out())/10 || got.GetRates().GetFailed() != 1 {
		t.Errorf("shown as %v", got)
	}
}

// A refusal whose message is not valid text keeps its code.
func TestRefusalsOfBadText(t *testing.T) {
	g := newGateway(newFake())
	gone, leave := context.WithCancel(t.Context())
	leave()
	late, end := context.WithTimeout(t.Context(), 0)
	defer end()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: gone, codes.DeadlineExceeded: late, codes.NotFound: t.Context()} {
		if got := status.Code(g.statusOf(ctx, task.NotFound("task", "x"))); got != want {
			t.Errorf("a caller of whom %v is told %v, want %v", ctx.Err(), got, want)
		}
		if err := g.statusOf(ctx, nil); err != nil {
			t.Errorf("no error is %v", err)
		}
	}
	if own := status.Error(codes.Aborted, "x"); g.statusOf(t.Context(), own) != own {
		t.Error("a status is another")
	}
	err := g.statusOf(t.Context(), &task.Error{Code: task.CodeNotFound, Reason: "\xff", Message: "no such task"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "no such task") {
		t.Errorf("got %v", err)
	}
}

// An error comes with nothing that could be taken for an answer.
func TestNothingIsToldBesideAnError(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	limited, c := begin(task.WithScope(t.Context(), task.Scope{Queues: []string{"mail"}}), "grpc", "test")
	c.principal = principal{Principal: auth.Anonymous}
	l, two := task.DefaultLimits(), []*pawlv1.QueueShare{{Queue: "q", Weight: 1}, {Queue: "r", Weight: 2}}
	refused := map[string]func() (told any, err error){
		"limit":    func() (any, error) { return limitOf(-1) },
		"priority": func() (any, error) { return priorityOf(4) },
		"wait":     func() (any, error) { return waitOf(durationpb.New(-1)) },
		"duration": func() (any, error) { return spanOf("x", &durationpb.Duration{Seconds: 1, Nanos: -1}) },
		"page": func() (any, error) {
			n, _, err := pageOf(&pawlv1.ListTokensRequest{Limit: -1}, tokenCursor)
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
		"places": func() (any, error) {
			_, one, err := g.placesOf(limited, broker.ClaimCall{Queues: []broker.Share{{Queue: "q"}}})
			return one, err
		},
		"queue":        func() (any, error) { _, ok, err := g.cluster.Queue(limited, "default", "q"); return ok, err },
		"queue of SQS": func() (any, error) { _, ok, err := sqsCore{g}.Queue(limited, "q"); return ok, err },
		"number": func() (any, error) {
			return triggerNumber(&keda.ScaledObjectRef{ScalerMetadata: map[string]string{"x": "0"}}, "x", 9)
		},
		"trigger": func() (any, error) {
			_, n, err := scaler{Gateway: g}.scaleOf(limited, &keda.ScaledObjectRef{})
			return n, err
		},
		"slots of trigger": func() (any, error) {
			_, n, err := scaler{Gateway: g}.scaleOf(limited, &keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q", "slotsPerWorker": "x"}})
			return n, err
		},
		"target of trigger": func() (any, error) {
			_, n, err := scaler{Gateway: g}.scaleOf(limited, &keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q", "targetSeconds": "x"}})
			return n, err
		},
		"window":          func() (any, error) { return windowOf(durationpb.New(time.Second)) },
		"broken window":   func() (any, error) { return windowOf(&durationpb.Duration{Seconds: 1, Nanos: -1}) },
		"window of types": func() (any, error) { return typeWindowOf(durationpb.New(2 * time.Minute)) },
		"broken of types": func() (any, error) { return typeWindowOf(&durationpb.Duration{Seconds: 1, Nanos: -1}) },
		"life":            func() (any, error) { return lifeOf(durationpb.New(1), false) },
		"broken life":     func() (any, error) { return lifeOf(&durationpb.Duration{Seconds: 1, Nanos: -1}, false) },
		"life for ever":   func() (any, error) { return lifeOf(durationpb.New(time.Hour), true) },
		"digest":          func() (any, error) { return digestOf(&pawlv1.WatchEventsRequest{Digest: durationpb.New(1)}) },
		"broken digest": func() (any, error) {
			return digestOf(&pawlv1.WatchEventsRequest{Digest: &durationpb.Duration{Seconds: 1, Nanos: -1}})
		},
		"digest and cursor": func() (any, error) {
			return digestOf(&pawlv1.WatchEventsRequest{Digest: durationpb.New(time.Second), Cursor: "x"})
		},
		"moment":       func() (any, error) { return momentOf("x", &timestamppb.Timestamp{Nanos: -1}) },
		"early moment": func() (any, error) { return momentOf("x", &timestamppb.Timestamp{Seconds: -9}) },
	}
	for what, do := range refused {
		if told, err := do(); err == nil || !reflect.ValueOf(told).IsZero() {
			t.Errorf("%s: %v, %v", what, told, err)
		}
	}
}

// Long input is quoted only in part.
func TestLongWordsAreCut(t *testing.T) {
	long := strings.Repeat("x", 5000)
	ctx, _ := begin(task.WithScope(t.Context(), task.Scope{Queues: []string{"mail"}}), "grpc", "test")
	callOf(ctx).principal = principal{Principal: auth.Anonymous}
	f := newFake()
	f.auth = auth.NewAuthenticator(auth.Config{Mode: auth.Never})
	g := newGateway(f)
	var logged strings.Builder
	g.log = slog.New(slog.NewTextHandler(&logged, nil))
	_, number := triggerNumber(&keda.ScaledObjectRef{ScalerMetadata: map[string]string{"x": long}}, "x", 9)
	_, scale := scaler{Gateway: g}.GetMetrics(t.Context(), &keda.GetMetricsRequest{ScaledObjectRef: &keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q"}}, MetricName: long})
	g.cfg.Stats = newFakeStats()
	_, metric := scaler{Gateway: g}.GetMetrics(t.Context(), &keda.GetMetricsRequest{ScaledObjectRef: &keda.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "q"}}, MetricName: long})
	_, print := filterOf(&pawlv1.Filter{Fingerprint: long}, task.DefaultLimits())
	_, hosts := ParseHosts([]string{long + "/"})
	w := httptest.NewRecorder()
	OnlyLocal(http.NotFoundHandler()).ServeHTTP(w, &http.Request{Host: long})
	stray := g.misdirected(&http.Request{Host: long})
	for what, c := range map[string]struct {
		said any
		most int
	}{
		"queue": {mayUse(ctx, long), 64}, "cursor": {badCursor(long), 64}, "pattern": {checkTypePattern(strings.Repeat("*", 9)+long, task.Limits{Name: 9999}), 64 - 9}, "number": {number, 64},
		"metric": {metric, 256}, "fingerprint": {print, 64}, "hosts": {hosts, 300}, "host": {stray, 300}, "local host": {w.Body, 300}, "host in the log": {logged.String(), 300}, "address": {hostOf(long), maxSource}, "other queue": {checkTargets(&broker.OperationSpec{Action: task.Cancel, ToQueue: long}, task.Limits{}), 64}, "host of an address": {hostOf(long + ":1"), maxSource},
	} {
		if repeated := regexp.MustCompile("x{9,}").FindString(fmt.Sprint(c.said)); len(repeated) != c.most {
			t.Errorf("%s: %d bytes are repeated, want %d: %.400v", what, len(repeated), c.most, c.said)
		}
	}
	put(t, newGateway(f), ctx, "mail", 1, "1")
	_, stats := statsService{Gateway: newGateway(f)}.GetQueueStats(ctx, &pawlv1.GetQueueStatsRequest{Queue: "mail"})
	if scale != errNoStats || stats != errNoStats {
		t.Errorf("a scaler without statistics: %v; a queue: %v", scale, stats)
	}
}

// Missing settings of a gateway get their defaults, and given ones stay.
func TestGatewaysHaveDefaults(t *testing.T) {
	f := newFake()
	for _, c := range []struct{ said, want [2]int }{{[2]int{}, [2]int{defaultMaxConns, defaultMaxConnsPerAddress}}, {[2]int{7, 3}, [2]int{7, 3}}} {
		g := New(Config{Broker: f, Cluster: fakeCluster{f}, MaxConns: c.said[0], MaxConnsPerAddress: c.said[1]})
		if got := [2]int{g.acceptor.max, g.acceptor.perAddress}; got != c.want || g.registry == nil {
			t.Errorf("of %v connections %v are let in, the registry is %v", c.said, got, g.registry)
		}
	}
}

// Missing limits get their defaults, and given ones stay.
func TestLimitsHaveDefaults(t *testing.T) {
	said := task.Limits{Payload: 1, Name: 2, Batch: 3}
	if got := withDefaults(said); got != said {
		t.Errorf("said were %+v, got %+v", said, got)
	}
	if got := withDefaults(task.Limits{}); got != task.DefaultLimits() {
		t.Errorf("by default got %+v", got)
	}
	l := task.Limits{Payload: 1}
	if d := task.DefaultLimits(); withDefaults(l).Name != d.Name || withDefaults(l).Batch != d.Batch || withDefaults(l).Payload != 1 {
		t.Errorf("beside one that was said: %+v", withDefaults(l))
	}
}

// Unknown values are encoded as unset, missing ones are left out, and a claim is decoded whole.
func TestConversionsOfParts(t *testing.T) {
	for _, s := range []task.State{task.State(len(statusByState)), 99} {
		if got := statusProto(s); got != pawlv1.Status_STATUS_UNSPECIFIED {
			t.Errorf("state %d is shown as %v", s, got)
		}
	}
	if got := onceStateProto(99); got != pawlv1.OnceState_ONCE_STATE_UNSPECIFIED {
		t.Errorf("an unknown state of a once key is shown as %v", got)
	}
	for verb, want := range map[broker.Verb][2]bool{broker.Ack: {}, broker.Fail: {true, false}, broker.Release: {true, false}, broker.Extend: {false, true}} {
		p := &pawlv1.Settled{}
		newGateway(newFake()).settledProto(p, verb, &broker.Settled{NextRunAt: 5, LeaseUntil: 6})
		if got := [2]bool{p.NextRunAt != nil, p.LeaseExpiresAt != nil}; got != want {
			t.Errorf("the answer to verb %v is %v", verb, p)
		}
	}
	for _, x := range []struct {
		e    broker.Tick
		want *pawlv1.Tick
	}{
		{broker.Tick{Planned: 5, At: 7, Outcome: schema.TickFired, Task: task.NewID(1, 1, 1)}, &pawlv1.Tick{TaskId: task.NewID(1, 1, 1).String(), Late: durationpb.New(2 * time.Microsecond)}},
		{broker.Tick{Planned: 5, At: 7, Outcome: broker.TickSkipped}, &pawlv1.Tick{}}, {broker.Tick{Planned: 5, At: 5, Outcome: schema.TickFired}, &pawlv1.Tick{}},
		{broker.Tick{Planned: 7, At: 5, Outcome: schema.TickFired}, &pawlv1.Tick{}},
	} {
		if p := tickProto(&x.e); p.TaskId != x.want.TaskId || !proto.Equal(p.Late, x.want.Late) {
			t.Errorf("%+v is shown as %v", x.e, p)
		}
	}
	for what, r := range map[string]*pawlv1.ClaimRequest{
		"worker": {Queues: shares("q"), Lease: durationpb.New(time.Minute), Worker: "a\nb"}, "types": {Queues: shares("q"), Types: []string{"a", ""}},
	} {
		if _, err := claimOf("default", r, task.DefaultLimits()); err == nil || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("a claim with a wrong %s: %v", what, err)
		}
	}
	both := []*pawlv1.QueueShare{{Queue: "b", Weight: 2}, {Queue: "a", Weight: 1}}
	for order, want := range map[pawlv1.Order]string{pawlv1.Order_ORDER_STRICT: "[{b 0} {a 0}] false", pawlv1.Order_ORDER_WEIGHTED: "[{a 1} {b 2}] true", 0: "[{a 1} {b 2}] true"} {
		got, weighted, err := sharesOf(both, order, task.DefaultLimits())
		if text := fmt.Sprint(got, " ", weighted); text != want || err != nil {
			t.Errorf("order %v: read as %s, %v, want %s", order, text, err, want)
		}
	}
	if _, err := settingsOf(&pawlv1.QueueSettings{PerKey: &pawlv1.KeyRules{Rate: &pawlv1.Rate{Limit: 1}}}); err == nil || !strings.Contains(err.Error(), "per_key.rate.period: is required") {
		t.Errorf("a rate without a period: %v", err)
	}
	if _, err := operationOf(&pawlv1.OperationSpec{Action: 99}, task.DefaultLimits()); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("no action: %v", err)
	}
	for _, said := range []*durationpb.Duration{nil, durationpb.New(time.Minute)} {
		group, err := groupOf(&pawlv1.CreateGroupRequest{Tasks: many(1, &pawlv1.TaskSpec{Type: "a"}), Retention: said}, task.DefaultLimits())
		if err != nil || (group.Retention == nil) != (said == nil) || said != nil && *group.Retention != time.Minute {
			t.Errorf("a group kept for %v: %v, %v", said, group.Retention, err)
		}
	}
	if p := operationProto(&broker.Operation{Spec: broker.OperationSpec{Max: 1, Total: 5, TotalSoFar: true}}, ""); p.Total != 1 || p.TotalIsLowerBound {
		t.Errorf("an operation on one of five or more: %v", p)
	}
}

// A cluster is returned in the order of its nodes' names; what is unknown of a node is left out.
func TestClustersAreShown(t *testing.T) {
	o := cluster.Overview{Nodes: []cluster.NodeOverview{{Node: cluster.Node{Number: 1, Name: "zoe"}, Heard: true, Report: cluster.Report{DiskFree: 5}},
		{Node: cluster.Node{Number: 2, Name: "abe"}, Report: cluster.Report{DiskFree: 6}}},
		Shards: []cluster.ShardOverview{{Shard: cluster.Shard{ID: 1}, Leader: 1, Members: []cluster.ReplicaOverview{{Node: 1}, {Node: 2}, {Node: 7}}}, {Shard: cluster.Shard{ID: 2}}}}
	p := newGateway(newFake()).overviewProto(o)
	if n := p.Nodes; len(n) != 2 || n[0].Name != "abe" || n[0].DiskFreeBytes != 0 || n[1].DiskFreeBytes != 5 {
		t.Errorf("nodes: %v", n)
	}
	if s := p.Shards[0]; s.Leader != "zoe" || s.Preferred != "" || len(s.Members) != 3 || s.Members[0].Node != "abe" || s.Members[1].Node != "n7" || s.Members[2].Node != "zoe" {
		t.Errorf("a shard: %v", s)
	}
	if s := p.Shards[1]; s.Leader != "" || s.Preferred != "" {
		t.Errorf("a shard without a leader: %v", s)
	}
}

// A restored unique key is not taken from the task that has it by now.
func TestRestoredUniqueKeys(t *testing.T) {
	if got := restoredUnique(nil); got != nil {
		t.Errorf("none is restored as %v", got)
	}
	if got := restoredUnique(&broker.ArchivedUnique{Key: "u", OnConflict: "replace"}); got.GetKey() != "u" || got.GetOnConflict() != pawlv1.OnConflict_ON_CONFLICT_REJECT {
		t.Errorf("restored as %v", got)
	}
}

// Percentages are never negative, members are checked together, and a worker is returned with all that is known of it.
func TestOddsAndEnds(t *testing.T) {
	s, err := extendOf("n", &pawlv1.ExtendRequest{TaskId: someID, ClaimToken: claimToken, Progress: &pawlv1.Progress{Percent: math.Copysign(0, -1)}})
	if err != nil || math.Signbit(s.Extend.Progress.Percent) {
		t.Errorf("progress is read as %v, %v", s.Extend, err)
	}
	stage := newStage(t)
	eight := `{"type":"a","content_type":"x/y","payload":"` + strings.Repeat("AAAA", task.MaxGroupBytes/8/3) + `"}`
	for n, good := range map[int]bool{7: true, 9: false} {
		_, err := stage.call("GroupService/AddGroupTasks", stage.fill(`{"group_id":"$group","tasks":`+copies(n, eight)+`}`))
		if e, _ := task.AsError(err); (err == nil) != good || err != nil && (e == nil || e.Code != task.CodePayloadTooLarge) {
			t.Errorf("%d members of 1 MiB: %v", n, err)
		}
	}
	at := time.Unix(100, 0)
	w := workerProto(&registry.Info{Lost: &registry.Lost{At: at, Reason: "silent"}, Quiet: &registry.Quiet{By: "lena", Reason: "deploy", At: at, Until: at.Add(time.Hour)}})
	if w.GetLostAt().AsTime().Unix() != 100 || w.GetLostReason() != "silent" || w.GetQuiet().GetBy() != "lena" || w.GetQuiet().GetReason() != "deploy" || w.GetQuiet().GetUntil().AsTime().Unix() != 3700 || w.GetQuiet().GetAt().AsTime().Unix() != 100 {
		t.Errorf("a worker is told of as %v", w)
	}
}

// Lists of dead letters, and no others, are ordered by the tasks' ends.
func TestListsOfDeadLetters(t *testing.T) {
	for _, c := range []struct {
		f    broker.Filter
		want bool
	}{
		{broker.Filter{}, false}, {broker.Filter{Queue: "q"}, false}, {broker.Filter{Queue: "q", States: []task.State{task.Dead}}, true}, {broker.Filter{Queue: "q", States: []task.State{task.Poisoned}}, true},
		{broker.Filter{Queue: "q", States: []task.State{task.Ready}}, false}, {broker.Filter{States: []task.State{task.Dead}}, false}, {broker.Filter{Queue: "q", States: []task.State{task.Dead, task.Poisoned}}, false},
	} {
		if got := listsDead(c.f); got != c.want {
			t.Errorf("%+v: %t", c.f, got)
		}
	}
}

// The total of an operation is reported as far as it is known, and limited by its maximum.
func TestTotalsOfOperations(t *testing.T) {
	for _, c := range []struct {
		total, matched, most int64
		soFar                bool
		want                 string
	}{
		{5, 3, 0, true, "5 true"}, {5, 3, 0, false, "5 false"}, {5, 7, 0, true, "7 true"}, {5, 3, 9, true, "5 true"}, {5, 3, 9, false, "5 false"}, {5, 3, 5, true, "5 false"}, {5, 3, 4, true, "4 false"}, {5, 7, 6, false, "6 false"},
	} {
		o := &broker.Operation{}
		o.Spec.Total, o.Spec.TotalSoFar, o.Spec.Max, o.Matched = c.total, c.soFar, c.most, c.matched
		p := operationProto(o, "")
		if got := fmt.Sprint(p.GetTotal(), " ", p.GetTotalIsLowerBound()); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// The parent of a task is returned as a task or as a group.
func TestParentsAreShown(t *testing.T) {
	id := task.NewID(1, 1, 1)
	if p := parentProto(&task.Parent{ID: id}); p.GetTaskId() != id.String() || p.GetGroupId() != "" {
		t.Errorf("a task: %v", p)
	}
	if p := parentProto(&task.Parent{Group: id}); p.GetGroupId() != id.String() || p.GetTaskId() != "" {
		t.Errorf("a group: %v", p)
	}
	if p := followerProto(&broker.Follower{Type: "a"}); p.GetTaskId() != "" {
		t.Errorf("a follower that is not there yet: %v", p)
	}
	if p := memberProto(&broker.GroupMember{Type: "a"}); p.GetTaskId() != "" {
		t.Errorf("a member that is not there yet: %v", p)
	}
}

// headless panics when asked for leaders.
type headless struct{ Broker }

func (headless) Leader(context.Context, uint32) (node, term, index uint64) { panic("planted") }

// A panic in one of many parallel requests becomes the call's error.
func TestPanicsOfOneAsk(t *testing.T) {
	g := newGateway(newFake(1, 2))
	g.broker = headless{g.broker}
	ctx, _ := begin(t.Context(), "grpc", "test")
	if _, err := (operatorService{Gateway: g}).GetServer(ctx, &pawlv1.GetServerRequest{}); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("the server: %v", err)
	}
	if _, err := (clusterService{Gateway: g}).GetMap(ctx, &pawlv1.GetMapRequest{}); err == nil || !strings.Contains(err.Error(), "planted") {
		t.Errorf("the map: %v", err)
	}
	if err := firstError([]error{nil, errPlanted, io.EOF}); err != errPlanted {
		t.Errorf("the first of two errors: %v", err)
	}
}

// countless reports that not all workers are known.
type countless struct{ known }

func (countless) CountWorkers(context.Context, string, []string) []int64 { return nil }

// A queue is returned without figures that were not counted.
func TestQueuesThatNobodyCounts(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	g.cfg.Workers = countless{g.cfg.Workers}
	ctx, _ := begin(t.Context(), "grpc", "test")
	for _, series := range []stats.Window{0, stats.Hour} {
		q := &pawlv1.Queue{Queue: "mail"}
		if g.setLately(ctx, series, q); q.Rates != nil || q.Series != nil || q.Workers != nil {
			t.Errorf("without counts: %v", q)
		}
	}
	g.cfg.Stats, g.cfg.Workers = newFakeStats(), nil
	q, other := &pawlv1.Queue{Queue: "mail", Depth: &pawlv1.Depth{Ready: 7}}, &pawlv1.Queue{Queue: "sms"}
	if g.setLately(ctx, stats.Hour, q, other); q.Rates == nil || q.Series == nil || other.Series == nil || q.Workers != nil || q.GetRates().GetIn() == other.GetRates().GetIn() {
		t.Errorf("with counts: %v, %v", q, other)
	}
	q = &pawlv1.Queue{Queue: "mail"}
	if g.setLately(ctx, 0, q); q.Rates == nil || q.Series != nil {
		t.Errorf("without a series: %v", q)
	}
}

// Rates have a period, whatever they limit, and errors in a queue's rules name the rule.
func TestRulesAreChecked(t *testing.T) {
	rate := &pawlv1.Rate{Limit: 1}
	odd := &durationpb.Duration{Seconds: 1, Nanos: -1}
	for field, p := range map[string]*pawlv1.QueueSettings{
		"rate.period": {Rate: rate}, "per_key.rate.period": {PerKey: &pawlv1.KeyRules{Rate: rate}}, "keys.a.rate.period": {Keys: map[string]*pawlv1.KeyRules{"a": {Rate: rate}}},
		"breaker.window": {Breaker: &pawlv1.Breaker{Window: odd}}, "breaker.hold": {Breaker: &pawlv1.Breaker{Hold: odd}}, "breaker.max_hold": {Breaker: &pawlv1.Breaker{MaxHold: odd}},
		"breaker.off": {Breaker: &pawlv1.Breaker{Off: true, Probes: 1}}, "breakers.t.window": {Breakers: map[string]*pawlv1.Breaker{"t": {Window: durationpb.New(0)}}},
	} {
		_, err := settingsOf(p)
		if e, _ := task.AsError(err); e == nil || e.Field != field {
			t.Errorf("%v: %v, want a refusal of %s", p, err, field)
		}
	}
	s, err := settingsOf(&pawlv1.QueueSettings{Breakers: map[string]*pawlv1.Breaker{"t": {Probes: 3}, "u": {Off: true}}, Keys: map[string]*pawlv1.KeyRules{"a": {MaxRunning: 1}, "b": {MaxRunning: 2, Weight: 5}}})
	if err != nil || len(s.Breakers) != 2 || s.Breakers["t"].Probes != 3 || s.Breakers["t"].Window == 0 || s.Breakers["u"].IsSet() || len(s.Keys) != 2 || s.Keys["b"].MaxRunning != 2 || s.Keys["b"].Weight != 5 {
		t.Errorf("read as %+v, %v", s, err)
	}
}

// The same for pages of archived tasks and of group members, and groups of dead letters are limited to a page.
func TestOtherPagesThatFitAMessage(t *testing.T) {
	const tasks, size = 14, 1 << 20
	f := newFake()
	g := newGateway(f)
	ctx, _ := begin(t.Context(), "grpc", "test")
	for range tasks {
		a := fakeArchived()
		a.Payload = make([]byte, size)
		f.archive = append(f.archive, a)
	}
	page, err := operatorService{Gateway: g}.ListArchive(ctx, &pawlv1.ListArchiveRequest{Limit: 100})
	if err != nil || len(page.Items) != 11 || page.NextCursor != encodeCursor(archiveCursor, []byte("a:11")) {
		t.Errorf("%d archived tasks come, then the cursor %q, %v", len(page.GetItems()), page.GetNextCursor(), err)
	}
	f.archive = f.archive[:1]
	f.archive[0].Payload = make([]byte, maxPageBytes+1)
	if page, err := (operatorService{Gateway: g}).ListArchive(ctx, &pawlv1.ListArchiveRequest{}); err != nil || len(page.Items) != 1 {
		t.Errorf("of one that is too large by itself %d come, %v", len(page.GetItems()), err)
	}
	verbtest.On(f.table(), broker.GroupMembers, func(context.Context, *broker.MemberList) (out broker.MembersListed, err error) {
		for i := range tasks {
			out.Members.Members = append(out.Members.Members, broker.GroupMember{Ref: task.ID{15: byte(i + 1)}, Result: broker.Result{Data: make([]byte, size)}})
		}
		return out, nil
	})
	members, err := groupService{Gateway: g}.ListGroupMembers(ctx, &pawlv1.ListGroupMembersRequest{GroupId: someID})
	if err != nil || len(members.Items) != 11 || members.NextCursor != encodeCursor(memberCursor, append(make([]byte, 15), 11)) {
		t.Errorf("%d members come, then the cursor %q, %v", len(members.GetItems()), members.GetNextCursor(), err)
	}
	// of returns a member that takes exactly n bytes of an answer.
	of := func(n int) broker.GroupMember {
		m := broker.GroupMember{Result: broker.Result{Data: make([]byte, n)}}
		for proto.Size(memberProto(&m)) > n {
			m.Result.Data = m.Result.Data[1:]
		}
		return m
	}
	for _, x := range []struct {
		sizes []int
		want  int
	}{{[]int{maxPageBytes + 1}, 1}, {[]int{maxPageBytes + 1, 1000}, 1}, {[]int{maxPageBytes - 1000, 1000}, 2}, {[]int{maxPageBytes - 1000, 1001}, 1}} {
		verbtest.On(f.table(), broker.GroupMembers, func(context.Context, *broker.MemberList) (out broker.MembersListed, err error) {
			for _, n := range x.sizes {
				out.Members.Members = append(out.Members.Members, of(n))
			}
			return out, nil
		})
		members, err := groupService{Gateway: g}.ListGroupMembers(ctx, &pawlv1.ListGroupMembersRequest{GroupId: someID})
		if err != nil || len(members.Items) != x.want || (members.NextCursor != "") != (x.want < len(x.sizes)) {
			t.Errorf("of members of %v bytes %d come, want %d; the cursor is %q (%v)", x.sizes, len(members.GetItems()), x.want, members.GetNextCursor(), err)
		}
	}
	for n, cut := range map[int]bool{contract.MaxPage: false, contract.MaxPage + 1: true} {
		verbtest.On(f.table(), broker.GroupDead, func(context.Context, *broker.DeadOf) (out broker.DeadGrouped, err error) {
			for i := range n {
				out.Groups = append(out.Groups, broker.Group{Fingerprint: uint64(i), Queues: map[string]int64{"q": 1}})
			}
			return out, nil
		})
		if got, err := (operatorService{Gateway: g}).GroupDead(ctx, &pawlv1.GroupDeadRequest{}); err != nil || len(got.Groups) != contract.MaxPage || got.Partial != cut {
			t.Errorf("%d groups: %d come, partial %t, %v", n, len(got.GetGroups()), got.GetPartial(), err)
		}
	}
}

// A batch of settles is split by the shards of its tasks, and keeps its order in each.
func TestBatchesAreParted(t *testing.T) {
	for shards, want := range map[string]string{"": "", "1": "1", "11": "11", "12": "1 2", "121": "11 2", "2112": "22 11", "1112": "111 2"} {
		var b settleBatch
		for i, s := range shards {
			b.calls = append(b.calls, broker.Settle{Hold: broker.Hold{ID: task.NewID(uint32(s-'0'), 1, uint64(i))}})
			b.answers = append(b.answers, &pawlv1.Settled{TaskId: b.calls[i].Hold.ID.String()})
		}
		var got []string
		for _, p := range b.byShard() {
			part, last := "", ""
			for i, c := range p.calls {
				id := c.Hold.ID.String()
				if part += fmt.Sprint(c.Hold.ID.Shard()); id != p.answers[i].TaskId || id[len(id)-4:] < last {
					t.Errorf("%s: %s has the answer of %s", shards, id, p.answers[i].TaskId)
				}
				last = id[len(id)-4:]
			}
			got = append(got, part)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("tasks in %s are parted as %q, want %q", shards, got, want)
		}
	}
}

// comparing has figures before and after any time.
type comparing struct{ fakeStats }

func (s comparing) TypeStats(ctx context.Context, q stats.TypeQuery, queue string) (stats.TypeReport, []string, []string) {
	r, queues, missing := s.fakeStats.TypeStats(ctx, q, queue)
	if !q.Around.IsZero() {
		r.Before, r.After = &stats.Period{From: 1}, &stats.Period{From: 2}
	}
	return r, queues, missing
}

// Types are compared around the requested time, and only if one is requested.
func TestTypesAreComparedAroundATime(t *testing.T) {
	g := newGateway(newFake())
	g.cfg.Stats = comparing{newFakeStats()}
	ctx, _ := begin(t.Context(), "grpc", "test")
	around := time.Now().Add(-10 * time.Second).Truncate(time.Second)
	got, err := statsService{Gateway: g}.GetTypeStats(ctx, &pawlv1.GetTypeStatsRequest{Type: "welcome", Around: timestamppb.New(around)})
	if c := got.GetComparison(); err != nil || !c.GetAround().AsTime().Equal(around) || c.GetBefore().GetStart().GetSeconds() != 1 || c.GetAfter().GetStart().GetSeconds() != 2 {
		t.Errorf("around %v: %v, %v", around, c, err)
	}
	if got, err := (statsService{Gateway: g}).GetTypeStats(ctx, &pawlv1.GetTypeStatsRequest{Type: "welcome"}); err != nil || got.GetComparison() != nil {
		t.Errorf("around no time: %v, %v", got.GetComparison(), err)
	}
}

// The time to compare around is within the last 24 hours.
func TestTimesAround(t *testing.T) {
	now := time.Unix(1_000_000, 0).UTC()
	for ago, good := range map[time.Duration]bool{0: true, -1: false, 1: true, maxAround: true, maxAround + 1: false} {
		if at, err := aroundOf(timestamppb.New(now.Add(-ago)), now); (err == nil) != good || good && !at.Equal(now.Add(-ago)) {
			t.Errorf("%v ago: %v, %v", ago, at, err)
		}
	}
	if at, err := aroundOf(nil, now); err != nil || !at.IsZero() {
		t.Errorf("none: %v, %v", at, err)
	}
}
