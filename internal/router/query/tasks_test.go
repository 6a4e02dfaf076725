package query_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

// A stale read uses any replica, this node's first, and needs no leader; nodes that are away are skipped.
func TestPeek(t *testing.T) {
	routertest.InFleet(t, 4, func(f *routertest.Fleet) {
		f.Shards[1].Replicas = []uint32{1, 2, 3}
		ids, err := f.Nodes[1].Put(1)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint32(4) {
			if v, at, age, err := f.Nodes[n+1].Peek(context.Background(), routertest.Namespace, ids[0]); err != nil || v.ID != ids[0] || at.Shard != 1 || age != time.Second {
				t.Errorf("node %d: %+v at %+v, %v old, %v", n+1, v, at, age, err)
			}
		}
		if n := f.Count("peek"); n != 1 {
			t.Errorf("%d messages, want that of node 4 only", n)
		}
		if _, _, _, err := f.Nodes[4].Peek(context.Background(), routertest.Namespace, task.NewID(9, 1, 1)); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("of a shard that nobody has: %v", err)
		}
	})
}
