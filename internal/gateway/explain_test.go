package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/task"
)

// The parts of a spread queue are added up. What all report identically is one reason; any other names its shard.
func TestPartsAreExplained(t *testing.T) {
	paused := broker.Reason{Code: task.WhyQueuePaused, Detail: "paused", Count: 3}
	full := func(n int) broker.Reason {
		return broker.Reason{Code: task.WhyQueueMaxRunning, Detail: fmt.Sprintf("runs %d", n), Limit: n, Count: 1}
	}
	q := queues.Queue{Name: "q", Parts: []queues.Part{{Shard: 1, Next: 1}, {Shard: 2, Next: 2}, {Shard: 3, Next: 4}, {Shard: 4, Next: 8}}}
	keys := func(from int) (keys []broker.HeldKey) {
		for i := range 7 {
			keys = append(keys, broker.HeldKey{Key: fmt.Sprintf("k%02d", from+i), Code: task.WhyKeyRate, Tasks: int64(100 - from - i)})
		}
		return keys
	}
	got := explainedQueue(q, []*broker.QueueExplanation{
		{Ready: 3, Claimable: 0, Claimed: 4, Waiting: 1, Reasons: []broker.Reason{paused, full(4)}, Keys: keys(0), Idle: []broker.IdleType{{Type: "a", Tasks: 1}}, NextDue: 50},
		{Partial: true, Reasons: []broker.Reason{{Code: task.WhyNoLeader, Detail: "none"}}},
		nil,
		{Ready: 5, Claimable: 2, Claimed: 6, Waiting: 2, Reasons: []broker.Reason{full(6), paused}, Keys: keys(6), Idle: []broker.IdleType{{Type: "b", Tasks: 5}, {Type: "a", Tasks: 3}}, NextDue: 40, OldestReady: 7},
	})
	var reasons, held, idle []string
	for _, r := range got.GetReasons() {
		reasons = append(reasons, fmt.Sprintf("%s shard %d count %d", r.GetCode(), r.GetShard(), r.GetCount()))
	}
	for _, k := range got.GetKeys() {
		held = append(held, fmt.Sprintf("%s %d", k.GetKey(), k.GetTasks()))
	}
	for _, i := range got.GetIdleTypes() {
		idle = append(idle, fmt.Sprintf("%s %d", i.GetType(), i.GetTasks()))
	}
	for _, c := range []struct{ what, got, want string }{
		{"reasons", strings.Join(reasons, "; "), "no_leader shard 2 count 0; queue_paused shard 0 count 6; queue_max_running shard 1 count 1; queue_max_running shard 4 count 1"},
		{"keys", strings.Join(held, "; "), "k06 188; k00 100; k01 99; k02 98; k03 97; k04 96; k05 95; k07 93; k08 92; k09 91"},
		{"types", strings.Join(idle, "; "), "b 5; a 4"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s\nwant %s", c.what, c.got, c.want)
		}
	}
	got.Reasons, got.Keys, got.IdleTypes = nil, nil, nil
	want := &pawlv1.ExplainQueueResponse{Queue: "q", Ready: 8, Claimable: 2, Claimed: 10, Waiting: 3, NextDue: timeProto(40), OldestReadyAt: timeProto(7), Partial: true}
	if !proto.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// All codes are documented where callers look them up.
func TestCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	contract, err := os.ReadFile("../../api/pawl/v1/explain.proto")
	if err != nil {
		t.Fatal(err)
	}
	inContract := strings.Join(strings.Fields(strings.ReplaceAll(string(contract), "//", "")), " ")
	var list []string
	for _, code := range task.Whys {
		list = append(list, string(code))
		if !strings.Contains(string(page), "| `"+string(code)+"` |") {
			t.Errorf("docs/troubleshooting.md says nothing of %s", code)
		}
	}
	all := "One of " + strings.Join(list, ", ") + ";"
	if !strings.Contains(inContract, all) {
		t.Errorf("explain.proto does not say: %s", all)
	}
	if !strings.Contains(string(rest.OpenAPI()), all) {
		t.Errorf("openapi.json does not say: %s", all)
	}
}

// A queue that no task came to is explained as empty, and a deleted one is not found, even though this node has a copy of it.
func TestQueuesWithoutTasksAreExplained(t *testing.T) {
	for _, c := range []struct {
		gone  bool
		fails error
	}{{}, {gone: true}, {fails: errPlanted}} {
		f := newFake()
		g := newGateway(f)
		ctx, _ := begin(t.Context(), "grpc", "test")
		put(t, g, ctx, "q", 1, "1")
		g.cluster = copiedQueues{g.cluster, c.gone}
		g.broker = emptyShards{f}
		f.cluster = c.fails
		got, err := operatorService{Gateway: g}.ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"})
		switch {
		case c.gone:
			if !errors.Is(err, task.ErrNotFound) {
				t.Errorf("one that is gone: %v, %v", got, err)
			}
		case c.fails != nil:
			if !errors.Is(err, c.fails) {
				t.Errorf("one that nobody knows of: %v, %v", got, err)
			}
		case err != nil || got.GetQueue() != "q" || got.GetReady() != 0 || len(got.GetReasons()) != 0:
			t.Errorf("one without tasks: %v, %v", got, err)
		}
	}
}

// copiedQueues has copies of all queues, which may be deleted.
type copiedQueues struct {
	Cluster
	gone bool
}

func (copiedQueues) Copied(ns, queue string) (queues.Queue, bool) {
	return queues.Queue{Namespace: ns, Name: queue, Shard: 1}, true
}

func (c copiedQueues) Queue(ctx context.Context, ns, name string) (queues.Queue, bool, error) {
	if c.gone {
		return queues.Queue{}, false, nil
	}
	return c.Cluster.Queue(ctx, ns, name)
}

// emptyShards has no queues.
type emptyShards struct{ Broker }

func (emptyShards) ExplainQueue(_ context.Context, _ uint32, _, name string) (*broker.QueueExplanation, broker.Stamp, error) {
	return nil, broker.Stamp{}, task.NotFound("queue", name)
}

// The earlier of two times is the one that is known, or comes first.
func TestEarlier(t *testing.T) {
	for _, c := range [][3]broker.Time{{0, 0, 0}, {0, 2, 2}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}, {2, 2, 2}} {
		if got := earlier(c[0], c[1]); got != c[2] {
			t.Errorf("of %d and %d: %d", c[0], c[1], got)
		}
	}
}

// uncopied has no copies of queues.
type uncopied struct{ Cluster }

func (uncopied) Copied(string, string) (queues.Queue, bool) { return queues.Queue{}, false }

// A queue that a node has no copy of yet is explained all the same.
func TestUncopiedQueuesAreExplained(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	ctx, _ := begin(t.Context(), "grpc", "test")
	put(t, g, ctx, "q", 2, "1")
	g.cluster = uncopied{g.cluster}
	if got, err := (operatorService{Gateway: g}).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"}); err != nil || got.GetReady() != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := (operatorService{Gateway: g}).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "r"}); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("of none: %v, %v", got, err)
	}
	scoped := task.WithScope(ctx, task.Scope{Queues: []string{"mail"}})
	g.cluster = copiedQueues{g.cluster, false}
	if got, err := (operatorService{Gateway: g}).ExplainQueue(scoped, &pawlv1.ExplainQueueRequest{Queue: "q"}); !errors.Is(err, &task.Error{Code: task.CodePermissionDenied}) {
		t.Errorf("of a queue that the caller may not see: %v, %v", got, err)
	}
	f.cluster = errPlanted
	if got, err := (operatorService{Gateway: g}).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"}); err != nil || got.GetReady() != 2 {
		t.Errorf("of a copied one while the system shard gives no answer: %v, %v", got, err)
	}
	f.fails = errors.New("a row is broken")
	if got, err := (operatorService{Gateway: g}).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"}); err != f.fails {
		t.Errorf("of a shard that fails: %v, %v", got, err)
	}
}
