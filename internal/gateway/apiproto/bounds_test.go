package apiproto

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// refusedField returns the field that a refusal names; "": there is none, "?": it is no refusal.
func refusedField(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := task.AsError(err); ok {
		return e.Field
	}
	return "?"
}

// The queues of a claim have weights within bounds, all of them or none.
func TestWeightsAreRead(t *testing.T) {
	weighted, strict := pawlv1.Order_ORDER_WEIGHTED, pawlv1.Order_ORDER_STRICT
	for _, c := range []struct {
		order   pawlv1.Order
		weights []int32
		want    string // queues in order, with their weights; or the field that is refused
	}{
		{0, []int32{task.MaxWeight, 1}, fmt.Sprintf("a:1 b:%d", task.MaxWeight)}, {0, []int32{task.MaxWeight + 1, 1}, "queues.b"},
		{0, []int32{-1, 1}, "queues.b"}, {0, []int32{0, 1}, "queues.b"}, {0, []int32{0, 0}, "b:0 a:0"},
		{weighted, []int32{0, 0}, "queues.b"}, {weighted, []int32{2, 1}, "a:1 b:2"}, {strict, []int32{2, 1}, "b:0 a:0"},
		{3, []int32{0, 0}, "order"}, {-1, []int32{0, 0}, "order"},
	} {
		got, err := ClaimOf("n", &pawlv1.ClaimRequest{Order: c.order, Queues: []*pawlv1.QueueShare{{Queue: "b", Weight: c.weights[0]},
			{Queue: "a", Weight: c.weights[1]}}}, task.DefaultLimits())
		var shares []string
		for _, s := range got.Queues {
			shares = append(shares, fmt.Sprintf("%s:%d", s.Queue, s.Weight))
		}
		read := strings.Join(shares, " ")
		if err != nil {
			read = refusedField(err)
		}
		if read != c.want {
			t.Errorf("%v by %v: %s, %v; want %s", c.weights, c.order, read, err, c.want)
		}
	}
	if _, err := ClaimOf("n", &pawlv1.ClaimRequest{}, task.DefaultLimits()); refusedField(err) != "queues" {
		t.Errorf("a claim of no queue: %v", err)
	}
}

// Checkpoints and delays are bounded, whatever lies far beyond, and a time that is none is refused.
func TestSettlesAreBounded(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "", task.MaxCheckpoint: "", task.MaxCheckpoint + 1: "checkpoint",
		2 * task.MaxCheckpoint: "checkpoint"} {
		_, err := ExtendOf("n", &pawlv1.ExtendRequest{TaskId: someID, ClaimToken: claimToken, Checkpoint: make([]byte, n)})
		if refusedField(err) != want {
			t.Errorf("a checkpoint of %d bytes: %v", n, err)
		}
	}
	for _, c := range []struct {
		d    *durationpb.Duration
		want string
	}{{durationpb.New(task.MaxDelay), ""}, {durationpb.New(task.MaxDelay + 1000), "delay"}, {durationpb.New(-1000), "delay"},
		{&durationpb.Duration{Seconds: 1, Nanos: -1}, "delay"}} {
		s, err := ReleaseOf("n", &pawlv1.ReleaseRequest{TaskId: someID, ClaimToken: claimToken, Delay: c.d})
		if refusedField(err) != c.want || err == nil && s.Delay != task.MaxDelay {
			t.Errorf("a delay of %v: %v, %v", c.d, s.Delay, err)
		}
	}
}

// The group of a task is an id.
func TestGroupsAreRead(t *testing.T) {
	for id, want := range map[string]string{"": "group_id", someID: "", "7": "group_id", task.ID{}.String(): "group_id"} {
		s, err := decodeSpec(&pawlv1.TaskSpec{Type: "a", GroupId: new(id)}, task.DefaultLimits())
		if refusedField(err) != want || err == nil && s.Member == nil {
			t.Errorf("a task of group %q: %+v, %v", id, s.Member, err)
		}
	}
}

// A unique key is read with its task.
func TestUniqueKeysAreRead(t *testing.T) {
	for conflict, want := range map[pawlv1.OnConflict]string{pawlv1.OnConflict_ON_CONFLICT_REJECT: "",
		pawlv1.OnConflict_ON_CONFLICT_REJECT +
			1: "unique.on_conflict", -1: "unique.on_conflict"} {
		s, err := decodeSpec(&pawlv1.TaskSpec{Type: "a", Unique: &pawlv1.Unique{Key: new("k"), OnConflict: conflict}}, task.DefaultLimits())
		if refusedField(err) != want || err == nil && (s.Unique == nil || s.Unique.Key != "k") {
			t.Errorf("on conflict %v: %+v, %v", conflict, s.Unique, err)
		}
	}
}

// A canary is a part of what an operation may change at most.
func TestCanariesAreRead(t *testing.T) {
	for _, c := range []struct {
		most, canary int64
		want         string
	}{{0, 0, ""}, {0, 5, ""}, {1, 0, ""}, {1, 1, "canary"}, {5, 4, ""}, {5, 5, "canary"}, {5, 6, "canary"}, {-1, 0, "max"},
		{0, -1, "canary"}} {
		_, err := OperationOf(&pawlv1.OperationSpec{Action: pawlv1.Action_ACTION_DISCARD, Filter: &pawlv1.Filter{Queue: new("q")},
			Max: c.most, Canary: c.canary}, task.DefaultLimits())
		if refusedField(err) != c.want {
			t.Errorf("a canary of %d among %d: %v", c.canary, c.most, err)
		}
	}
}

// A reason of the task itself names the queue that it has; reasons of its queue name that.
func TestReasonsNameTheirQueue(t *testing.T) {
	for i, code := range task.Whys {
		want := "other"
		if i > slices.Index(task.Whys, task.WhyNotDue) {
			want = "mail"
		}
		if got := ReasonProto(&broker.Reason{Code: code, Queue: "other"}, "mail").GetQueue(); got != want {
			t.Errorf("%s is of queue %q, want %q", code, got, want)
		}
	}
}

// The states of follow-up tasks have the same names in the contract.
func TestFollowerStates(t *testing.T) {
	for i, want := range []pawlv1.FollowerState{pawlv1.FollowerState_FOLLOWER_STATE_WAITING, pawlv1.FollowerState_FOLLOWER_STATE_SENT,
		pawlv1.FollowerState_FOLLOWER_STATE_CREATED, pawlv1.FollowerState_FOLLOWER_STATE_DUPLICATE,
		pawlv1.FollowerState_FOLLOWER_STATE_REFUSED} {
		if got := followerProto(&broker.Follower{State: schema.FollowerState(i)}).GetState(); got != want {
			t.Errorf("state %d is %v, want %v", i, got, want)
		}
	}
}

// As many tasks as fit into an answer are shown, and one that does not is shown alone.
func TestTasksPerMessage(t *testing.T) {
	view := func(size int) *broker.View {
		return &broker.View{Envelope: &schema.Envelope{ID: task.NewID(1, 1, 1), Payload: make([]byte, size)}, Exec: &schema.Exec{}}
	}
	one, rest := view(10), MaxPageBytes-proto.Size(TaskProto(view(10), true))
	two := view(rest - 500)
	two.Payload = append(two.Payload, make([]byte, rest-proto.Size(TaskProto(two, true)))...)
	for more, want := range map[int]int{0: 2, 1: 1} {
		two.Payload = append(two.Payload, make([]byte, more)...)
		if _, fit := TasksProto([]*broker.View{one, two}, true); fit != want {
			t.Errorf("of %d bytes more than an answer has, %d tasks fit, want %d", more, fit, want)
		}
		two.Payload = two.Payload[:len(two.Payload)-more]
	}
	for _, c := range []struct {
		sizes []int
		fit   int
	}{{nil, 0}, {[]int{10, 10, 10}, 3}, {[]int{MaxPageBytes + 1, 10}, 1}, {[]int{MaxPageBytes/2 + 1, MaxPageBytes/2 + 1, 1}, 1},
		{[]int{MaxPageBytes / 4, MaxPageBytes / 4, MaxPageBytes}, 2}} {
		var views []*broker.View
		for _, size := range c.sizes {
			views = append(views, view(size))
		}
		if items, fit := TasksProto(views, true); fit != c.fit || len(items) != c.fit {
			t.Errorf("of %v, %d fit, want %d", c.sizes, fit, c.fit)
		}
	}
}
