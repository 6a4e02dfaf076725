package enqueue_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/enqueue"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// Queues are read from the leader of the system shard. Nodes keep only their placement.
func TestQueuesAreReadFromSystemLeader(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ctx := context.Background()
		two, three := f.Nodes[2].Queues, f.Nodes[3].Queues
		if _, exists, err := two.Queue(ctx, routertest.Namespace, "q"); exists || err != nil {
			t.Errorf("Queue that does not exist: exists = %v, %v", exists, err)
		}
		q, err := two.PutQueue(ctx, auditlog.Action{}, routertest.Namespace, "q", func(c *task.QueueConfig) error {
			if c.Version != 0 || !reflect.DeepEqual(c.Settings, task.DefaultSettings()) {
				t.Errorf("config of a new queue = %+v, want the defaults", c)
			}
			c.Settings.MaxLength = 7
			return nil
		})
		if err != nil || q.Config.Version != 1 || q.Config.Settings.MaxLength != 7 || q.Config.CreatedAt.IsZero() {
			t.Errorf("PutQueue = %+v, %v", q, err)
		}
		if got, exists, err := three.Queue(ctx, routertest.Namespace, "q"); err != nil || !exists || !reflect.DeepEqual(got, q) {
			t.Errorf("Queue = %+v, %v, want what was put", got, err)
		}
		again, err := three.PutQueue(ctx, auditlog.Action{}, routertest.Namespace, "q", func(c *task.QueueConfig) error {
			c.Paused = true
			return nil
		})
		if err != nil || again.Config.Version != 2 || again.Config.Settings.MaxLength != 7 ||
			!again.Config.CreatedAt.Equal(q.Config.CreatedAt) {
			t.Errorf("PutQueue that pauses = %+v, %v", again, err)
		}
		refused := task.Invalid("x", "y")
		if _, err := two.PutQueue(ctx, auditlog.Action{}, routertest.Namespace, "q", func(*task.QueueConfig) error {
			return refused
		}); !errors.Is(err, refused) {
			t.Errorf("PutQueue with a refused change: %v, want the refusal", err)
		}
		if list, err := two.Queues(ctx, routertest.Namespace, queues.Query{Limit: 10}); err != nil || len(list) != 1 ||
			!reflect.DeepEqual(list[0], again) {
			t.Errorf("Queues = %+v, %v", list, err)
		}
		before := f.Count("place")
		for range 3 {
			if shard, err := two.Place(ctx, routertest.Namespace, "new"); err != nil || shard.Shard != 1 {
				t.Errorf("Place = %+v, %v, want shard 1", shard, err)
			}
		}
		if n := f.Count("place") - before; n != 1 {
			t.Errorf("%d messages to place a queue three times, want 1", n)
		}
		if err := three.DropQueue(ctx, task.Author{}, routertest.Namespace, "q"); err != nil {
			t.Error(err)
		}
		if _, known := (routertest.FakeMap{M: f.Nodes[3]}).Queue(routertest.Namespace, "q"); known {
			t.Error("the node's copy still has the queue that was dropped")
		}
		f.With(func() { f.SystemLeader = 0 })
		if _, _, err := three.Queue(ctx, routertest.Namespace, "new"); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("Queue without a leader: %v, want unavailable", err)
		}
	})
}

// While the system shard has no leader, or one that hangs, a node's copy describes the queues that it has, within half a second. What
// changes a queue or all of its parts, and a caller that leaves, get the error.
func TestQueuesWithoutSystemShard(t *testing.T) {
	for what, fail := range map[string]func(f *routertest.Fleet){
		"no leader": func(f *routertest.Fleet) { f.With(func() { f.SystemLeader = 0 }) },
		"hangs": func(f *routertest.Fleet) {
			f.Network = func(_, _ uint32, _ string) routertest.Delivery { return routertest.Hangs }
		},
	} {
		routertest.InFleet(t, 2, func(f *routertest.Fleet) {
			ns, two := routertest.Namespace, f.Nodes[2].Queues
			placed, err := two.Place(context.Background(), ns, "q")
			if err != nil {
				t.Fatal(err)
			}
			f.With(func() {
				now := f.Queues["q"]
				now.Config.Version = 7
				f.Queues["q"] = now
			})
			if q, exists, err := two.Queue(context.Background(), ns, "q"); err != nil || !exists || q.Config.Version != 7 {
				t.Errorf("%s: before, the queue is %+v, %t, %v, want that of the system shard", what, q, exists, err)
			}
			fail(f)
			began := time.Now()
			q, exists, err := two.Queue(context.Background(), ns, "q")
			if took := time.Since(began); err != nil || !exists || !reflect.DeepEqual(q, placed) || took > enqueue.CopyTime {
				t.Errorf("%s: the queue is %+v, %t, %v after %v, want %+v of the copy within half a second", what, q,
					exists, err, took, placed)
			}
			ctx, cancel := context.WithTimeout(context.Background(), enqueue.CopyTime/2)
			defer cancel()
			if _, _, err := two.Queue(ctx, ns, "q"); what == "hangs" && err == nil {
				t.Errorf("%s: a caller that has left got %v", what, err)
			}
			ctx, cancel = context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, put := two.PutQueue(ctx, auditlog.Action{}, ns, "q", func(*task.QueueConfig) error { return nil })
			_, _, unknown := two.Queue(ctx, ns, "other")
			_, _, current := two.Current(ctx, ns, "q")
			if refreshed := two.Refresh(ctx, ns, "q"); put == nil || unknown == nil || current == nil || refreshed == nil {
				t.Errorf("%s: put %v, unknown %v, current %v, refreshed %v, want errors", what, put, unknown, current, refreshed)
			}
		})
	}
}

// A change based on an outdated version is retried, and none is lost.
func TestConcurrentChanges(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		const each = 3
		done := make(chan error, 3*each)
		for _, m := range f.Nodes {
			for range each {
				go func() {
					_, err := m.Queues.PutQueue(context.Background(), auditlog.Action{}, routertest.Namespace, "q",
						func(c *task.QueueConfig) error {
							c.Settings.MaxLength++
							return nil
						})
					done <- err
				}()
			}
		}
		ok := int64(0)
		for range 3 * each {
			if err := <-done; err == nil {
				ok++
			} else if !errors.Is(err, task.ErrUnavailable) {
				t.Error(err)
			}
		}
		q := f.Queues["q"]
		if q.Config.Settings.MaxLength != ok || ok < each || q.Config.Version != uint64(ok) {
			t.Errorf("max_length was raised %d times by %d successful changes: %+v", q.Config.Settings.MaxLength, ok, q.Config)
		}
	})
}

// A queue was dropped and created again in another shard. The caller does not notice, and the node knows the new shard next time.
func TestRecreatedQueue(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		f.With(func() { f.AddShard(2, 1, 2, 3).Leader = 3 })
		m := f.Nodes[2]
		for _, n := range f.Nodes {
			n.EnqueueIn["q"] = 2
			n.Copy["q"] = queues.Queue{Namespace: routertest.Namespace, Name: "q", Shard: 1}
			n.Copy["other"] = queues.Queue{Namespace: routertest.Namespace, Name: "other", Shard: 1}
		}
		got, _, err := m.Enqueue(context.Background(), 1, routertest.Namespace, []task.Spec{{Queue: "other"},
			{Queue: "q"}, {Queue: "other"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, shard := range []uint32{1, 2, 1} {
			if got[i].Err != nil || got[i].ID.Shard() != shard {
				t.Errorf("task %d: %+v, want it in shard %d", i, got[i], shard)
			}
		}
		if q, _ := m.Queues.Place(context.Background(), routertest.Namespace, "q"); q.Shard != 2 {
			t.Errorf("the node still places the queue in shard %d", q.Shard)
		}
		m.Copy["q"] = queues.Queue{Namespace: routertest.Namespace, Name: "q", Shard: 1}
		if _, err := broker.OperateTask.Call(context.Background(), m, broker.TaskCommand{Verb: broker.Retry,
			OnTask: broker.OnTask{Namespace: routertest.Namespace, ID: got[0].ID}}); !errors.Is(err, task.ErrWrongState) ||
			!strings.Contains(err.Error(), "has left the shard") {
			t.Errorf("Retry of a task whose queue moved: %v, want wrong state", err)
		}
		if q := m.Copy["q"]; q.Shard != 2 {
			t.Errorf("after the refusal the node places the queue in shard %d, want 2", q.Shard)
		}
		var to *forward.Moved
		if err := m.Queues.EnsureQueue(context.Background(), 5, routertest.Namespace, "fresh"); !errors.As(err, &to) || to.Shard != 1 ||
			to.Config.Version == 0 {
			t.Errorf("EnsureQueue for another shard: %v, want Moved to shard 1", err)
		}
		if err := m.Queues.EnsureQueue(context.Background(), 1, routertest.Namespace, "fresh"); err != nil {
			t.Error(err)
		}
		if !slices.Equal(f.Ensured, []uint32{5, 1}) {
			t.Errorf("queues were ensured in %v, want 5 and 1", f.Ensured)
		}
		// A queue that keeps moving results in an error, not an endless loop.
		for _, n := range f.Nodes {
			n.EnqueueIn["q"] = 0
		}
		began := time.Now()
		got, _, err = m.Enqueue(context.Background(), 1, routertest.Namespace, []task.Spec{{Queue: "q"}})
		if err != nil || !errors.Is(got[0].Err, task.ErrUnavailable) || time.Since(began) > forward.SearchTime+time.Second {
			t.Errorf("Enqueue to a queue that keeps moving ended after %s: %+v, %v", time.Since(began), got, err)
		}
	})
}
