package test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const (
	cutMin  = 5 * time.Second
	cutMore = 3 * time.Second
)

// TestClusterCut cuts the leader off in several ways, and heals the cut, under load: writes continue elsewhere, and the
// leader's answers meanwhile must not be stale. PAWL_CLUSTER_CUTS sets how often each way is tried.
func TestClusterCut(t *testing.T) {
	t.Parallel()
	v := newNetwork(t)
	c := v.newCluster()
	w := c.work()
	cuts := outages{w: w}
	var names []string
	for range count(t, "PAWL_CLUSTER_CUTS", 1) {
		for _, way := range []way{
			{"symmetric", func(l, _, _ int) { v.unplug(l) }, func(l, _, _ int) { v.replug(l) }},
			v.oneWay(),
			// The leader and another don't see each other; the third sees both.
			{"bridge", func(l, o, _ int) { v.mute(l, o); v.mute(o, l) }, func(l, o, _ int) { v.unmute(l, o); v.unmute(o, l) }},
		} {
			leader := c.leader()
			other := c.other(leader)
			third := c.other(leader, other)
			l, o, th := c.number(leader), c.number(other), c.number(third)
			before := c.term()
			cuts.begin()
			way.cut(l, o, th)
			time.Sleep(cutMin + rand.N(cutMore))
			way.heal(l, o, th)
			c.whole()
			w.flow(&w.acked)
			names = append(names, way.name)
			t.Logf("%s cut of %s (the other: %s): from term %d to %d; now %s leads", way.name, leader.name, other.name, before,
				c.term(), c.leader().name)
		}
	}
	for i, gap := range cuts.gaps() {
		t.Logf("%s cut: writes were not acknowledged for %s", names[i], gap)
	}
	w.finish()
	c.whole()
	w.check()
}

// way is a way of cutting the leader off.
type way struct {
	name      string
	cut, heal func(leader, other, third int)
}

// oneWay lets the leader send but not receive, or the other way round.
func (v *network) oneWay() way {
	if rand.IntN(2) == 0 {
		return way{"receives nothing", func(l, o, th int) { v.mute(o, l); v.mute(th, l) }, func(l, o, th int) {
			v.unmute(o, l)
			v.unmute(th, l)
		}}
	}
	return way{"sends nothing", func(l, o, th int) { v.mute(l, o); v.mute(l, th) }, func(l, o, th int) { v.unmute(l, o); v.unmute(l, th) }}
}

// number returns a server's number in the network.
func (c *nodes) number(n *member) int { return slices.Index(c.all, n) + 1 }

// term returns the latest term of the data shard that a server knows.
func (c *nodes) term() (latest uint64) {
	for _, n := range c.all {
		s, _ := n.look()
		for _, shard := range s.Shards {
			if shard.Shard == dataShard {
				latest = max(latest, shard.Term)
			}
		}
	}
	return latest
}
