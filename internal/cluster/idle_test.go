package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// countingGroups counts how often shards are asked for their status.
type countingGroups struct {
	*saga
	asked atomic.Int64
}

func (g *countingGroups) Status(ctx context.Context, shard uint32) (Status, error) {
	g.asked.Add(1)
	return g.saga.Status(ctx, shard)
}

// An idle cluster of one node is rarely checked, and a caller that asks for its state still gets the current one.
func TestIdleNodeIsRarelyChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		groups := &countingGroups{saga: s}
		s.loop = NewReconciler(ReconcilerConfig{Placement: s.replica.control.Placement, Groups: groups})
		s.replica.Poke = s.loop.Poke
		stop := s.run()
		pass(time.Minute)
		before := groups.asked.Load()
		pass(time.Hour)
		shards := int64(len(mapOf(t, s.replica.control).Shards))
		if n := groups.asked.Load() - before; n > 7*shards {
			t.Errorf("%d shards were asked for their status %d times in an idle hour", shards, n)
		}
		o, err := s.replica.control.Placement.Overview(bg)
		must(t, err)
		for _, v := range o.Shards {
			if !v.Known || v.Under || v.Problem != "" {
				t.Errorf("after an idle hour the shard is %+v, want known and without a problem", v)
			}
		}
		before = groups.asked.Load()
		must(t, s.join("n2"))
		pass(time.Second)
		if groups.asked.Load() == before {
			t.Error("a node joined, but no shard was asked for its status")
		}
		pass(time.Minute)
		before = groups.asked.Load()
		pass(time.Minute)
		if n := groups.asked.Load() - before; n < 100*shards {
			t.Errorf("%d shards of two nodes were asked %d times in a minute, which is too rare to notice a node that dies", shards, n)
		}
		stop()
	})
}

// A shard on a single node that does not answer is asked again soon, although nothing is written.
func TestSingleNodeWithProblemsIsChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		groups := &countingGroups{saga: s}
		s.loop = NewReconciler(ReconcilerConfig{Placement: s.replica.control.Placement, Groups: groups})
		stop := s.run()
		s.mu.Lock()
		s.up[1] = false
		s.mu.Unlock()
		pass(time.Minute)
		if n := groups.asked.Load(); n < 20 {
			t.Errorf("the shard was asked %d times in a minute, want at least 20", n)
		}
		stop()
	})
}

// The node that leads the system shard counts as heard from without reporting to itself. Other nodes do not.
func TestOwnNodeCountsAsHeardFrom(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		c.Placement.liveness.node, c.Placement.liveness.own = 1, func() Report { return Report{Node: 1, Version: "now"} }
		began := time.Now()
		at := poll(t, c, 0, 0).Version
		poll(t, c, at, OwnPollWait)
		if d := time.Since(began); d != OwnPollWait {
			t.Errorf("the node waited %s for its own changes", d)
		}
		o, err := c.Placement.Overview(bg)
		must(t, err)
		if n := o.Nodes[0]; !n.Alive || !n.Reported || n.Silent != 0 || n.Report.Version != "now" {
			t.Errorf("the leading node is %+v, want it alive, with its own report", n)
		}
		c.Placement.liveness.node = 2
		if o, err = c.Placement.Overview(bg); err != nil || o.Nodes[0].Report.Version == "now" {
			t.Errorf("with another node as leader, node 1 is %+v, %v, want no report of its own", o.Nodes[0], err)
		}
		began = time.Now()
		if poll(t, c, at, OwnPollWait); time.Since(began) != maxWait {
			t.Errorf("another node waited %s, want maxWait", time.Since(began))
		}
	})
}
