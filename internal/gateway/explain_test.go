package gateway

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/gateway/fanout"
	"github.com/pawlq/pawl/internal/rest"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// All reason codes are documented where callers look them up.
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
			t.Errorf("docs/troubleshooting.md does not document %s", code)
		}
	}
	all := "One of " + strings.Join(list, ", ") + ";"
	if !strings.Contains(inContract, all) {
		t.Errorf("explain.proto lacks the list: %s", all)
	}
	if !strings.Contains(string(rest.OpenAPI()), all) {
		t.Errorf("openapi.json lacks the list: %s", all)
	}
}

// A queue without tasks is explained as empty, and a deleted one is not found even though this node has a copy of it.
func TestQueuesWithoutTasksAreExplained(t *testing.T) {
	for _, c := range []struct {
		gone  bool
		fails error
	}{{}, {gone: true}, {fails: errPlanted}} {
		f := newFake()
		g := newGateway(f)
		ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
		put(t, g, ctx, "q", 1, "1")
		g.cfg.Cluster = copiedQueues{g.cfg.Cluster, c.gone}
		g.wire()
		g.cfg.Broker = emptyShards{f}
		g.wire()
		f.cluster = c.fails
		got, err := g.services.operator.ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"})
		switch {
		case c.gone:
			if !errors.Is(err, task.ErrNotFound) {
				t.Errorf("deleted queue: %v, %v, want not found", got, err)
			}
		case c.fails != nil:
			if !errors.Is(err, c.fails) {
				t.Errorf("queue while the cluster fails: %v, %v", got, err)
			}
		case err != nil || got.GetQueue() != "q" || got.GetReady() != 0 || len(got.GetReasons()) != 0:
			t.Errorf("queue without tasks: %v, %v", got, err)
		}
	}
}

// copiedQueues has copies of all queues, and may have deleted them since.
type copiedQueues struct {
	fanout.Cluster
	gone bool
}

func (copiedQueues) Copied(_ context.Context, ns, queue string) (queues.Queue, bool) {
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

// uncopied has no copies of queues.
type uncopied struct{ fanout.Cluster }

func (uncopied) Copied(context.Context, string, string) (queues.Queue, bool) {
	return queues.Queue{}, false
}

// A queue that a node has no copy of yet is explained too.
func TestUncopiedQueuesAreExplained(t *testing.T) {
	f := newFake()
	g := newGateway(f)
	ctx, _ := callinfo.Begin(t.Context(), "grpc", "test")
	put(t, g, ctx, "q", 2, "1")
	g.cfg.Cluster = uncopied{g.cfg.Cluster}
	g.wire()
	if got, err := (g.services.operator).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"}); err != nil || got.GetReady() != 2 {
		t.Errorf("ExplainQueue without a copy = %v, %v", got, err)
	}
	if got, err := (g.services.operator).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "r"}); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("ExplainQueue of a queue that does not exist = %v, %v, want not found", got, err)
	}
	scoped := task.WithScope(ctx, task.Scope{Queues: []string{"mail"}})
	g.cfg.Cluster = copiedQueues{g.cfg.Cluster, false}
	g.wire()
	if got, err := (g.services.operator).ExplainQueue(scoped, &pawlv1.ExplainQueueRequest{Queue: "q"}); !errors.Is(err,
		&task.Error{Code: task.CodePermissionDenied}) {
		t.Errorf("ExplainQueue of a queue that the caller may not see = %v, %v", got, err)
	}
	f.cluster = errPlanted
	if got, err := (g.services.operator).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"}); err != nil || got.GetReady() != 2 {
		t.Errorf("ExplainQueue of a copied queue while the system shard does not answer = %v, %v", got, err)
	}
	f.fails = errors.New("a row is broken")
	if got, err := (g.services.operator).ExplainQueue(ctx, &pawlv1.ExplainQueueRequest{Queue: "q"}); err != f.fails {
		t.Errorf("ExplainQueue while the shard fails = %v, %v", got, err)
	}
}
