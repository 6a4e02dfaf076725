package router_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// A stale read uses any replica, this node's first, and needs no leader. Nodes that can't be reached are skipped.
func TestPeek(t *testing.T) {
	routertest.InFleet(t, 4, func(f *routertest.Fleet) {
		f.Shards[1].Replicas = []uint32{1, 2, 3}
		ids, err := f.Nodes[1].Put(1)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint32(4) {
			if v, at, age, err := f.Nodes[n+1].Peek(context.Background(), routertest.Namespace, ids[0]); err != nil || v.ID != ids[0] ||
				at.Shard != 1 || age != time.Second {
				t.Errorf("node %d: Peek = %+v at %+v, age %v, %v", n+1, v, at, age, err)
			}
		}
		if n := f.Count("peek"); n != 1 {
			t.Errorf("%d peek messages were sent, want only that of node 4", n)
		}
		if _, _, _, err := f.Nodes[4].Peek(context.Background(), routertest.Namespace, task.NewID(9, 1, 1)); !errors.Is(err,
			task.ErrNotFound) {
			t.Errorf("Peek of a task in a shard that does not exist: %v, want not found", err)
		}
	})
}

// A task is waited for until it ends, or for the time given. Shards that do not exist are not asked.
func TestTaskWaits(t *testing.T) {
	routertest.InFleet(t, 2, func(f *routertest.Fleet) {
		ctx := context.Background()
		ids, err := f.Nodes[1].Put(2)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, func() {
			if err := routertest.Cancel(ctx, f.Nodes[1], ids[0]); err != nil {
				t.Error(err)
			}
		})
		for _, c := range []struct {
			id       task.ID
			wait     time.Duration
			state    task.State
			at, most time.Duration // since the start
		}{
			{ids[0], 0, task.Ready, 0, time.Second}, {ids[0], -time.Second, task.Ready, 0, time.Second},
			{ids[0], time.Minute, task.Cancelled,
				3 * time.Second, 4 * time.Second},
			{ids[1], 2 * time.Second, task.Ready, 2 * time.Second, 3 * time.Second},
		} {
			began := time.Now()
			v, at, err := f.Nodes[2].Task(ctx, routertest.Namespace, c.id, c.wait)
			if took := time.Since(began); err != nil || v.Exec.State != c.state || at.Shard != 1 || took > c.most ||
				took < min(c.wait, c.at-100*time.Millisecond) {
				t.Errorf("Task with wait %v = %+v at %+v, %v, after %v", c.wait, v, at, err, took)
			}
		}
		for _, id := range []task.ID{task.NewID(9, 1, 1), task.NewID(0, 1, 1)} {
			asked := f.Count("task") + f.Count("peek")
			if _, _, err := f.Nodes[2].Task(ctx, routertest.Namespace, id, 0); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Task %v: %v, want not found", id, err)
			}
			if _, _, _, err := f.Nodes[2].Peek(ctx, routertest.Namespace, id); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Peek %v: %v, want not found", id, err)
			}
			if n := f.Count("task") + f.Count("peek") - asked; n != 0 {
				t.Errorf("%d nodes were asked for task %v, whose shard has no tasks", n, id)
			}
		}
	})
}
