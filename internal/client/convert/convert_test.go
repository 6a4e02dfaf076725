package convert

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

// What is absent on one side is the zero value on the other.
func TestScalars(t *testing.T) {
	moment := time.Unix(1_753_000_000, 7).UTC()
	for _, x := range []struct{ got, want any }{
		{Time(nil), time.Time{}},
		{Time(timestamppb.New(moment)), moment},
		{Timestamp(time.Time{}) == nil, true},
		{Timestamp(moment).AsTime(), moment},
		{Duration(0) == nil, true},
		{Duration(time.Minute).AsDuration(), time.Minute},
		{Seconds(1.5), 1500 * time.Millisecond},
		{Int32(7), int32(7)},
		{Int32(math.MaxInt), int32(math.MaxInt32)},
		{Int32(math.MinInt), int32(math.MinInt32)},
		{QueueName(&pawlv1.TaskSpec{}), "default"},
		{QueueName(&pawlv1.TaskSpec{Queue: new("mail")}), "mail"},
	} {
		if x.got != x.want {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
}

// The client refuses what the broker would.
func TestLimits(t *testing.T) {
	for what, x := range map[string][2]int{
		"a shard": {MaxShard, task.MaxShard}, "queues of a claim": {maxClaimQueues, task.MaxClaimQueues},
		"types of a claim": {MaxClaimTypes,
			task.MaxClaimTypes},
		"a weight": {maxWeight, task.MaxWeight}, "a progress text": {MaxProgressText, task.MaxProgressText}, "an error": {maxErrorText,
			task.MaxErrorText},
	} {
		if x[0] != x[1] {
			t.Errorf("limit of %s: %d, but the broker has %d", what, x[0], x[1])
		}
	}
}

// Each word of the protocol has a number. "" has 0, and other words are refused.
func TestEnumNames(t *testing.T) {
	for word, want := range map[pawltype.Priority]pawlv1.Priority{"": 0, "high": pawlv1.Priority_PRIORITY_HIGH,
		"low": pawlv1.Priority_PRIORITY_LOW} {
		p, err := PriorityProto(word)
		if err != nil || p != want || Priority(p) != word {
			t.Errorf("PriorityProto(%q) = %s, %v, converted back to %q", word, p, err, Priority(p))
		}
	}
	long := strings.Repeat("x", 65)
	for _, word := range []string{"HIGH", "unspecified", long} {
		_, err := PriorityProto(pawltype.Priority(word))
		if want := fmt.Sprintf("priority: %q is not high, normal or low", word[:min(len(word), 64)]); !errors.Is(err,
			pawltype.ErrInvalidArgument) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", word, err, want)
		}
	}
	states := []pawltype.State{pawltype.StateReady, pawltype.StateDead}
	if got, err := StatesProto("states", states); err != nil || !slices.Equal(got, []pawlv1.State{pawlv1.State_STATE_READY,
		pawlv1.State_STATE_DEAD}) {
		t.Errorf("%v: got %v, %v", states, got, err)
	}
	for _, bad := range []string{"", "asleep", long} {
		_, err := StatesProto("states", []pawltype.State{pawltype.StateReady, pawltype.State(bad)})
		if want := fmt.Sprintf("states: %q is not a state", bad[:min(len(bad), 64)]); !errors.Is(err, pawltype.ErrInvalidArgument) ||
			!strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", bad, err, want)
		}
	}
}

func TestQueueShares(t *testing.T) {
	many := func(n int) pawltype.Weighted {
		weights := pawltype.Weighted{}
		for i := range n {
			weights[fmt.Sprint("q", i)] = 1
		}
		return weights
	}
	for what, x := range map[string]struct {
		queues pawltype.Queues
		want   string // the shares in their order, or the field of the refusal
	}{
		"nil":              {nil, "queues"},
		"none":             {pawltype.Strict{}, "queues"},
		"one":              {pawltype.Strict{"b"}, "STRICT b 0"},
		"in their order":   {pawltype.Strict{"b", "a"}, "STRICT b 0 a 0"},
		"sorted":           {pawltype.Weighted{"b": 2, "a": 1}, "WEIGHTED a 1 b 2"},
		"too many":         {many(maxClaimQueues + 1), "queues"},
		"no name":          {pawltype.Weighted{"": 1}, "queues"},
		"not UTF-8":        {pawltype.Strict{"\xff"}, "queues"},
		"twice":            {pawltype.Strict{"a", "a"}, "queues"},
		"the least weight": {pawltype.Weighted{"a": 1}, "WEIGHTED a 1"},
		"no weight":        {pawltype.Weighted{"a": 0}, "queues.a"},
		"below it":         {pawltype.Weighted{"a": -1}, "queues.a"},
		"the most":         {pawltype.Weighted{"a": maxWeight}, "WEIGHTED a 1000"},
		"more":             {pawltype.Weighted{"a": maxWeight + 1}, "queues.a"},
	} {
		shares, order, err := QueueShares(x.queues)
		got := strings.TrimPrefix(order.String(), "ORDER_")
		for _, s := range shares {
			got += fmt.Sprintf(" %s %d", s.Queue, s.Weight)
		}
		if err != nil {
			got = fieldOf(err)
		}
		if got != x.want {
			t.Errorf("%s: got %s, %v, want %s", what, got, err, x.want)
		}
	}
	if shares, _, err := QueueShares(many(maxClaimQueues)); err != nil || len(shares) != maxClaimQueues {
		t.Errorf("as many as go: %d, %v", len(shares), err)
	}
}

func TestText(t *testing.T) {
	for _, x := range []struct {
		text  string
		limit int
		want  string
	}{{"four", 4, "four"}, {"fourth", 4, "four"}, {"a日", 4, "a日"}, {"a日", 3, "a"}, {"日", 2, ""}, {"日", 0, ""}, {"\xff", 3, "\uFFFD"}} {
		if got := CutText(x.text, x.limit); got != x.want {
			t.Errorf("CutText(%q, %d) = %q, want %q", x.text, x.limit, got, x.want)
		}
	}
	long := strings.Repeat("x", MaxTaskOverhead/16)
	for text, want := range map[string]string{"": "", "a日": "", long: "", long + "x": "key", long + long: "key", "\xff": "key"} {
		if err := CheckText("key", text); (err == nil) != (want == "") || err != nil && fieldOf(err) != want {
			t.Errorf("CheckText(%.20q) of %d bytes = %v", text, len(text), err)
		}
	}
}

// A task has all that the message has, including attempts and relations; what is absent stays absent.
func TestTask(t *testing.T) {
	if Task(nil) != nil || Unique(nil) != nil || Parent(nil) != nil || Follower(nil) != nil {
		t.Error("a nil message was converted to a value")
	}
	got := Tasks([]*pawlv1.Task{{
		TaskId: "1", State: pawlv1.State_STATE_DEAD, Status: pawlv1.Status_STATUS_FAILED,
		AttemptLog: []*pawlv1.Attempt{{Attempt: 1, Outcome: pawlv1.Outcome_OUTCOME_FAILED,
			Error: &pawlv1.TaskError{Message: "boom", Type: "t",
				Stack: "s"}}, {Attempt: 2}},
		Unique: &pawlv1.Unique{Key: new("u"), States: []pawlv1.State{pawlv1.State_STATE_READY},
			OnConflict: pawlv1.OnConflict_ON_CONFLICT_REPLACE},
		Parent: &pawlv1.Parent{TaskId: "0", Result: []byte("r")},
		Then:   []*pawlv1.Follower{{Type: "next", State: pawlv1.FollowerState_FOLLOWER_STATE_WAITING}},
	}})[0]
	want := &pawltype.Task{ID: "1", State: "dead", Status: "failed", Retry: pawltype.RetryPolicy{},
		AttemptLog: []pawltype.Attempt{{Attempt: 1, Outcome: "failed", Error: &pawltype.Failure{Message: "boom", Type: "t", Stack: "s"}},
			{Attempt: 2}},
		Unique: &pawltype.UniqueOpts{Key: "u", States: []pawltype.State{"ready"}, OnConflict: "replace"},
		Parent: &pawltype.Parent{TaskID: "0", Result: []byte("r")},
		Then:   []pawltype.Follower{{Type: "next", State: "waiting"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Retry policies and unique keys survive a round trip: unset, zero and positive are three different values.
func TestPoliciesRoundTrip(t *testing.T) {
	for _, p := range []pawltype.RetryPolicy{
		{},
		{Initial: time.Second, Factor: 2, Max: time.Minute, Jitter: 0.5},
		{Initial: pawltype.NoWait, Max: pawltype.NoWait, Jitter: pawltype.NoJitter},
		{Jitter: 1},
	} {
		wire := RetryPolicyProto(p)
		if got := RetryPolicy(wire); got != p {
			t.Errorf("%+v was decoded as %+v from %v", p, got, wire)
		}
		if none := p == (pawltype.RetryPolicy{}); proto.Equal(wire, &pawlv1.RetryPolicy{}) != none {
			t.Errorf("RetryPolicyProto(%+v) = %v", p, wire)
		}
	}
	none := &pawlv1.RetryPolicy{Initial: durationpb.New(0), Max: durationpb.New(0), Jitter: proto.Float64(0)}
	if got := RetryPolicyProto(pawltype.RetryPolicy{Initial: pawltype.NoWait, Max: pawltype.NoWait,
		Jitter: pawltype.NoJitter}); !proto.Equal(got, none) {
		t.Errorf("no wait and no jitter were sent as %v, want %v", got, none)
	}
	if got := RetryPolicy(nil); got != (pawltype.RetryPolicy{}) {
		t.Errorf("RetryPolicy(nil) = %+v", got)
	}
	given := pawltype.UniqueOpts{Key: "u", States: []pawltype.State{"ready"}, OnConflict: "reject"}
	if p, err := UniqueProto(given); err != nil || !reflect.DeepEqual(*Unique(p), given) {
		t.Errorf("%+v was decoded as %v, %v", given, p, err)
	}
	for field, bad := range map[string]pawltype.UniqueOpts{"unique.states": {States: []pawltype.State{"x"}},
		"unique.on_conflict": {OnConflict: "x"}} {
		if p, err := UniqueProto(bad); p != nil || fieldOf(err) != field {
			t.Errorf("UniqueProto(%+v) = %v, %v", bad, p, err)
		}
	}
}

// An unknown state of a once key means to wait.
func TestOnceAnswers(t *testing.T) {
	for state, want := range map[pawlv1.OnceState]pawltype.OnceState{
		pawlv1.OnceState_ONCE_STATE_RUN: pawltype.OnceRun, pawlv1.OnceState_ONCE_STATE_DONE: pawltype.OnceDone,
		pawlv1.OnceState_ONCE_STATE_FREE: pawltype.OnceFree, pawlv1.OnceState_ONCE_STATE_HELD: pawltype.OnceHeld, 99: pawltype.OnceHeld,
		0: pawltype.OnceHeld,
	} {
		if got := OnceAnswer(&pawlv1.BeginOnceResponse{State: state}).State; got != want {
			t.Errorf("%s: got %s, want %s", state, got, want)
		}
	}
}

// Pages iterates over all pages, and ends when the caller stops, a page fails, or it would never end.
func TestPages(t *testing.T) {
	boom := errors.New("boom")
	type page struct {
		items string
		next  string
		err   error
	}
	for what, x := range map[string]struct {
		pages map[string]page
		most  int // number of items to read
		want  string
		err   string
	}{
		"one page": {map[string]page{"": {items: "ab"}}, 9, "ab", ""},
		"three":    {map[string]page{"": {items: "ab", next: "1"}, "1": {next: "2"}, "2": {items: "c"}}, 9, "abc", ""},
		"left":     {map[string]page{"": {items: "ab", next: "1"}}, 2, "ab", ""},
		"fails":    {map[string]page{"": {items: "ab", next: "1"}, "1": {err: boom}}, 9, "ab", "boom"},
		"stands still": {map[string]page{"": {items: "ab", next: "1"}, "1": {items: "c", next: "1"}}, 9, "abc",
			"pawl: list makes no progress: the broker returned the same cursor twice"},
		"left by itself": {map[string]page{"": {err: boom}}, 0, "", "boom"},
	} {
		got, failed, reads := "", "", 0
		for item, err := range Pages(func(cursor string) (pawltype.Page[string], error) {
			if reads++; reads > 5 {
				t.Fatalf("%s: iteration does not end", what)
			}
			p := x.pages[cursor]
			return pawltype.Page[string]{Items: strings.Split(p.items, "")[:len(p.items)], NextCursor: p.next}, p.err
		}) {
			if err != nil {
				failed = err.Error()
				continue
			}
			if got += item; len(got) == x.most {
				break
			}
		}
		if got != x.want || failed != x.err {
			t.Errorf("%s: read %q, error %q, want %q, %q", what, got, failed, x.want, x.err)
		}
	}
}

// A list that lacks something ends with an error that says what, after all that there is. One of figures doesn't.
func TestIncompletePages(t *testing.T) {
	pages := map[string]pawltype.Page[string]{
		"":  {Items: []string{"a"}, NextCursor: "1", Missing: Missing([]*pawlv1.Missing{{Shard: 3, Reason: "hangs"}, {Node: "n1"}})},
		"1": {Items: []string{"b"}, Missing: Missing([]*pawlv1.Missing{{Node: "n2", Reason: "away"}, {Shard: 3, Reason: "has no leader"}})},
	}
	read := func(cursor string) (pawltype.Page[string], error) { return pages[cursor], nil }
	for _, c := range []struct {
		what string
		list iter.Seq2[string, error]
		want string
	}{{"pages", Pages(read), "a; b; the list is incomplete: shard 3 hangs, and 2 more; "}, {"figures", Figures(read), "a; b; "}} {
		got := ""
		for item, err := range c.list {
			if err != nil {
				e, ok := errors.AsType[*pawltype.IncompleteError](err)
				if want := slices.Concat(pages[""].Missing, pages["1"].Missing[:1]); !ok || !slices.Equal(e.Missing, want) ||
					!errors.Is(err, pawltype.ErrUnavailable) {
					t.Errorf("%s: %#v, want an IncompleteError without %v", c.what, err, want)
				}
				item = strings.TrimPrefix(err.Error(), "pawl: unavailable: ")
			}
			got += item + "; "
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// A page reports how far it searched, if the broker does.
func TestPage(t *testing.T) {
	id := func(p *pawlv1.Task) string { return p.GetTaskId() }
	p := Page(&pawlv1.ListTasksResponse{Items: []*pawlv1.Task{{TaskId: "1"}, {TaskId: "2"}}, NextCursor: "c",
		Searched: &pawlv1.Searched{Rows: 7}}, id)
	if !slices.Equal(p.Items, []string{"1", "2"}) || p.NextCursor != "c" || p.Searched == nil || p.Searched.Rows != 7 {
		t.Errorf("Page = %+v", p)
	}
	if p := Page(&pawlv1.ListTasksResponse{}, id); p.Searched != nil || p.Items != nil {
		t.Errorf("Page of an empty response = %+v", p)
	}
	if p := Page(&pawlv1.ListQueuesResponse{}, func(*pawlv1.Queue) int { return 0 }); p.Searched != nil {
		t.Errorf("Page of a response without Searched = %+v", p)
	}
}

// fieldOf returns the field that a refusal names.
func fieldOf(err error) string {
	if refused, ok := errors.AsType[*pawltype.Error](err); ok {
		return refused.Field
	}
	return ""
}
