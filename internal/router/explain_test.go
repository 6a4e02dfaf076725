package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/task"
)

func codes(reasons []broker.Reason) (all []task.Why) {
	for _, r := range reasons {
		all = append(all, r.Code)
	}
	return all
}

// The leader explains a task. Without a leader, that is the explanation, given soon, along with what any replica knows.
func TestExplainWithoutLeader(t *testing.T) {
	routertest.InFleet(t, 4, func(f *routertest.Fleet) {
		ctx := context.Background()
		f.Shards[1].Replicas = []uint32{1, 2, 3}
		ids, err := f.Nodes[1].Put(2)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint32(4) {
			e, at, err := f.Nodes[n+1].Explain(ctx, routertest.Namespace, ids[0])
			if err != nil || at.Shard != 1 || e.State != task.Ready || len(e.Reasons) != 1 || e.Reasons[0].Code != task.WhyNext {
				t.Errorf("node %d: Explain = %+v at %+v, %v; want ready, next in line", n+1, e, at, err)
			}
			if e, _, err := f.Nodes[n+1].ExplainQueue(ctx, 1, routertest.Namespace, "q"); err != nil || e.Ready != 2 || len(e.Reasons) > 0 {
				t.Errorf("node %d: ExplainQueue = %+v, %v", n+1, e, err)
			}
		}
		if err := routertest.Cancel(ctx, f.Nodes[1], ids[1]); err != nil {
			t.Fatal(err)
		}
		f.Lead(1, 0)
		routertest.Pass(time.Second)
		for n := range uint32(4) {
			began := time.Now()
			e, _, err := f.Nodes[n+1].Explain(ctx, routertest.Namespace, ids[0])
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("node %d: Explain took %s", n+1, took)
			}
			if err != nil || e.State != task.Ready || len(e.Reasons) != 1 {
				t.Fatalf("node %d: Explain without a leader = %+v, %v", n+1, e, err)
			}
			why := e.Reasons[0]
			if why.Code != task.WhyNoLeader || why.Since != broker.TimeOf(began) ||
				!strings.Contains(why.Detail, `node "n1" knows no leader`) ||
				!strings.Contains(why.Detail, "the task was ready at most 1s ago") {
				t.Errorf("node %d: reason = %+v, want no leader, with details", n+1, why)
			}
			if e, _, err := f.Nodes[n+1].Explain(ctx, routertest.Namespace, ids[1]); err != nil || e.State != task.Cancelled ||
				len(e.Reasons) != 1 || e.Reasons[0].Code != task.WhyEnded {
				t.Errorf("node %d: Explain of a cancelled task = %+v, %v", n+1, e, err)
			}
			if e, _, err := f.Nodes[n+1].ExplainQueue(ctx, 1, routertest.Namespace, "q"); err != nil || !e.Partial || len(e.Reasons) != 1 ||
				e.Reasons[0].Code != task.WhyNoLeader {
				t.Errorf("node %d: ExplainQueue without a leader = %+v, %v", n+1, e, err)
			}
		}
	})
}

// Once a call has found no leader, later ones report since when; seeing a leader ends that.
func TestExplainReportsSinceWhen(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ctx, m := context.Background(), f.Nodes[2]
		ids, err := f.Nodes[1].Put(1)
		if err != nil {
			t.Fatal(err)
		}
		f.Lead(1, 0)
		dark := time.Now()
		if _, _, err := m.Task(ctx, routertest.Namespace, ids[0], 0); !errors.Is(err, task.ErrUnavailable) {
			t.Fatal(err)
		}
		routertest.Pass(time.Minute)
		for range 2 {
			began := time.Now()
			e, _, err := m.Explain(ctx, routertest.Namespace, ids[0])
			if err != nil || e.Reasons[0].Code != task.WhyNoLeader || e.Reasons[0].Since != broker.TimeOf(dark) {
				t.Errorf("Explain = %+v, %v; want no leader since %v", e, err, dark)
			}
			if took := time.Since(began); took > forward.LeaderlessTime+100*time.Millisecond {
				t.Errorf("Explain took %s", took)
			}
			if _, _, err := m.Task(ctx, routertest.Namespace, ids[0], 0); !errors.Is(err, task.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		f.Lead(1, 3)
		if e, _, err := m.Explain(ctx, routertest.Namespace, ids[0]); err != nil || e.Reasons[0].Code != task.WhyNext {
			t.Errorf("Explain with a leader = %+v, %v", codes(e.Reasons), err)
		}
		f.Lead(1, 0)
		again := time.Now()
		if e, _, err := m.Explain(ctx, routertest.Namespace, ids[0]); err != nil || e.Reasons[0].Since != broker.TimeOf(again) {
			t.Errorf("Explain after the leader was lost again = %+v, %v", e.Reasons, err)
		}
	})
}

// If no node can be asked, Explain invents nothing, but returns no error either.
func TestExplainWithoutReplicas(t *testing.T) {
	routertest.InFleet(t, 4, func(f *routertest.Fleet) {
		ctx := context.Background()
		f.Shards[1].Replicas = []uint32{1, 2, 3}
		ids, err := f.Nodes[1].Put(1)
		if err != nil {
			t.Fatal(err)
		}
		f.With(func() {
			f.Network = func(from, to uint32, _ string) routertest.Delivery {
				if from == 4 || to == 4 {
					return routertest.NotSent
				}
				return routertest.Arrives
			}
		})
		e, _, err := f.Nodes[4].Explain(ctx, routertest.Namespace, ids[0])
		if err != nil || e.ID != ids[0] || e.State != 0 || len(e.Reasons) != 1 || e.Reasons[0].Code != task.WhyNoLeader ||
			!strings.Contains(e.Reasons[0].Detail, "so its state is unknown") {
			t.Errorf("Explain on a node that is cut off = %+v, %v", e, err)
		}
		f.With(func() { f.Network = nil })
		if _, _, err := f.Nodes[4].Explain(ctx, routertest.Namespace, task.NewID(1, 9, 9)); !errors.Is(err, task.ErrNotFound) {
			t.Errorf("Explain of a task that does not exist: %v, want not found", err)
		}
		f.Lead(1, 0)
		if e, _, err := f.Nodes[4].Explain(ctx, routertest.Namespace, task.NewID(1, 9, 9)); err != nil || e.State != 0 ||
			!strings.Contains(e.Reasons[0].Detail, "did not have the task") {
			t.Errorf("Explain without a leader, of a task that does not exist = %+v, %v", e, err)
		}
	})
}

// Explain does not need the system shard for a task whose shard this node knows; a shard that does not exist has no tasks.
func TestExplainWithoutSystemShard(t *testing.T) {
	routertest.InFleet(t, 3, func(f *routertest.Fleet) {
		ctx := context.Background()
		ids, err := f.Nodes[1].Put(1)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []task.ID{task.NewID(9, 1, 1), task.NewID(forward.SystemShard, 1, 1)} {
			if e, _, err := f.Nodes[2].Explain(ctx, routertest.Namespace, id); !errors.Is(err, task.ErrNotFound) {
				t.Errorf("Explain of task %v = %+v, %v, want not found", id, e, err)
			}
		}
		if n := f.Count("explain"); n != 0 {
			t.Errorf("%d nodes were asked to explain tasks of shards that do not exist", n)
		}
		f.With(func() { f.SystemLeader = 0 })
		if e, _, err := f.Nodes[2].Explain(ctx, routertest.Namespace, ids[0]); err != nil || e.State != task.Ready {
			t.Errorf("Explain without a leader of the system shard = %+v, %v", e, err)
		}
		f.Lead(1, 0)
		began := time.Now()
		e, _, err := f.Nodes[2].Explain(ctx, routertest.Namespace, ids[0])
		if err != nil || len(e.Reasons) != 1 || e.Reasons[0].Code != task.WhyNoLeader || time.Since(began) > 3*time.Second {
			t.Errorf("Explain without any leader = %+v, %v, after %v", e, err, time.Since(began))
		}
	})
}
