package query_test

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
			if v, at, age, err := f.Nodes[n+1].Peek(context.Background(), routertest.Namespace, ids[0]); err != nil || v.ID != ids[0] || at.Shard != 1 || age != time.Second {
				t.Errorf("node %d: Peek = %+v at %+v, age %v, %v", n+1, v, at, age, err)
			}
		}
		if n := f.Count("peek"); n != 1 {
			t.Errorf("%d peek messages were sent, want only that of node 4", n)
		}
		if _, _, _, err := f.Nodes[4].Peek(context.Background(), routertest.Namespace, task.NewID(9, 1, 1)); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("Peek of a task in a shard that does not exist: %v, want not found", err)
		}
	})
}
