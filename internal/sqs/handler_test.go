package sqs

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/cluster/queues"
	"github.com/pawlq/pawl/internal/sqs/wire"
	"github.com/pawlq/pawl/internal/task"
)

// oneQueue is a Core with one queue. Calls that a purge does not need panic.
type oneQueue struct {
	Core
	q       queues.Queue
	purged  int
	failing error
	during  func() // Purge
}

func (c *oneQueue) Namespace(context.Context) string { return defaultNamespace }

func (c *oneQueue) Queue(context.Context, string) (queues.Queue, bool, error) { return c.q, true, nil }

func (c *oneQueue) PutQueue(ctx context.Context, _ string, change func(*task.QueueConfig) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return change(&c.q.Config)
}

func (c *oneQueue) Purge(ctx context.Context, _ queues.Queue) error {
	if c.during != nil {
		c.during()
	}
	if c.failing == nil && ctx.Err() == nil {
		c.purged++
	}
	return errors.Join(c.failing, ctx.Err())
}

// A failed purge may be retried immediately. After a successful one, another is refused for a minute.
func TestFailedPurgeIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &oneQueue{q: queues.Queue{Name: "mail", Config: task.QueueConfig{Version: 1, Annotations: map[string]string{"kept": "yes"}}}}
		purge := func(ctx context.Context) error {
			r := httptest.NewRequestWithContext(ctx, "POST", "http://pawl/", nil)
			return purgeQueue(&exchange{Handler: New(Config{Core: core}), ctx: ctx, r: r, in: &wire.Input{QueueURL: "http://pawl/000000000000/mail"}})
		}
		early := func(err error) bool {
			e, ok := errors.AsType[*wire.Error](err)
			return ok && e.Shape == wire.ErrPurgeQueueInProgress.Shape
		}
		core.failing = task.Unavailable(0, "a shard has no leader")
		for range 2 {
			if err := purge(t.Context()); !errors.Is(err, task.ErrUnavailable) {
				t.Errorf("purge that fails: %v, want unavailable", err)
			}
		}
		core.failing = nil
		gone, leave := context.WithCancel(t.Context())
		core.during = leave
		if err := purge(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("purge whose caller leaves: %v, want cancelled", err)
		}
		core.during = nil
		if err := purge(t.Context()); err != nil || core.purged != 1 {
			t.Fatalf("purge after failed ones: %v, %d purges, want 1", err, core.purged)
		}
		time.Sleep(58 * time.Second)
		if err := purge(t.Context()); !early(err) {
			t.Errorf("purge 58 s after another: %v, want it refused", err)
		}
		time.Sleep(2 * time.Second)
		if err := purge(t.Context()); err != nil || core.purged != 2 {
			t.Errorf("purge 60 s after another: %v, %d purges, want 2", err, core.purged)
		}
		if core.q.Config.Annotations["kept"] != "yes" {
			t.Error("a purge removed another annotation of the queue")
		}
	})
}

func TestRegionOfARequest(t *testing.T) {
	for _, c := range []struct{ header, query, want string }{
		{"", "", "us-east-1"},
		{"AWS4-HMAC-SHA256 Credential=AKID/20260102/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0", "", "eu-west-1"},
		{"", "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID%2F20260102%2Feu-west-3%2Fsqs%2Faws4_request", "eu-west-3"},
		{"", "?X-Amz-Credential=AKID%2F20260102%2Feu_west%2Fsqs%2Faws4_request", "us-east-1"},
		{"AWS4-HMAC-SHA256 Credential=AKID/20260102/sqs/aws4_request, Signature=0", "", "us-east-1"},
		{"Bearer pawl", "?X-Amz-Credential=AKID%2F20260102%2Fap-south-1%2Fsqs%2Faws4_request", "ap-south-1"},
	} {
		r := httptest.NewRequest("GET", "http://pawl/"+c.query, nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		if got := (&exchange{r: r}).region(); got != c.want {
			t.Errorf("header %q, query %q: region %s", c.header, c.query, got)
		}
	}
}
