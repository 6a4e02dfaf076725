package cluster

import (
	"testing"
	"time"
)

// A node that keeps restarting gets leadership later, the more restarts it had within ten minutes: not after a single
// start, and never later than maxProbation.
func TestRestartLoops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		join(t, c, "n2", 2)
		// run lets the process of node 2 run for a while, and returns for how long it was barred from leadership.
		run := func(d time.Duration) (barred time.Duration) {
			for up := time.Duration(1); up <= d; up += time.Second {
				c.Placement.liveness.noteReport(Report{Node: 2, Up: up})
				m, err := c.Placement.Map(bg)
				must(t, err)
				if c.Placement.members(m)[1].Barred {
					barred = up.Round(time.Second) + time.Second
				}
				pass(time.Second)
			}
			return barred
		}
		for i, want := range []time.Duration{0, 0, 30 * time.Second, time.Minute, 2 * time.Minute} {
			if got := run(130 * time.Second); got != want {
				t.Errorf("start %d: barred from leadership for %v, want %v", i, got, want)
			}
		}
		for range 5 {
			run(2 * time.Second)
		}
		if got := run(6 * time.Minute); got != maxProbation {
			t.Errorf("after many starts: barred from leadership for %v, want %v", got, maxProbation)
		}
		if o, err := c.Placement.Overview(bg); err != nil || o.Nodes[1].Starts != 7 || o.Nodes[1].Proof != 0 {
			t.Errorf("after a long enough run the overview has %+v, %v, want seven starts and no probation", o.Nodes[1], err)
		}
		run(0)
		c.Placement.liveness.noteReport(Report{Node: 2, Up: 1})
		if o, err := c.Placement.Overview(bg); err != nil || o.Nodes[1].Proof != maxProbation {
			t.Errorf("just after another start the overview has %+v, %v, want the maximum probation", o.Nodes[1], err)
		}
		run(startsWindow)
		if got := run(time.Minute); got != 0 {
			t.Errorf("after a single start: barred from leadership for %v, want 0", got)
		}
		for _, r := range []Report{{Node: 2}, {Node: 2, Barred: true}, {Node: 2, DiskShort: true}} { // the first is of an older release
			for range 3 {
				c.Placement.liveness.noteReport(r)
				m, err := c.Placement.Map(bg)
				must(t, err)
				if is := c.Placement.members(m)[1]; is.Barred != (r.Barred || r.DiskShort) || is.Full != r.DiskShort {
					t.Errorf("after the report %+v the member is %+v", r, is)
				}
				pass(time.Second)
			}
		}
	})
}

// Leadership moves away from a node whose disk is full within seconds, including that of the system shard. While all
// disks are full nothing moves, and once a disk has room again, leaders are spread as before, one step at a time.
func TestLeadersLeaveFullDisks(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		s.load = 500
		must(t, s.join("n2"))
		must(t, s.join("n3"))
		stop := s.run()
		defer stop()
		pass(30 * time.Second)
		leads := func() map[uint32]int {
			s.mu.Lock()
			defer s.mu.Unlock()
			n := map[uint32]int{}
			for _, g := range s.groups {
				n[NodeOf(g.Leader)]++
			}
			return n
		}
		full := func(nodes ...uint32) {
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.short)
			for _, n := range nodes {
				s.short[n] = true
			}
		}
		must(t, s.replica.control.Placement.AddShards(bg, nobody, 4))
		pass(30 * time.Second)
		if n := leads(); n[1] == 0 || n[2] == 0 || n[3] == 0 || n[1]+n[2]+n[3] != 5 {
			t.Fatalf("leaders are not spread over the nodes: %v", n)
		}
		full(1)
		pass(8 * time.Second)
		if n := leads(); n[1] != 0 {
			t.Errorf("8 s after its disk was full, node 1 still leads %d shards: %v", n[1], n)
		}
		full(1, 2)
		pass(8 * time.Second)
		if n := leads(); n[3] != 5 {
			t.Errorf("node 3, the only one with disk space, leads %d of 5 shards: %v", n[3], n)
		}
		full(1, 2, 3)
		pass(2 * time.Second)
		s.mu.Lock()
		before := s.steps
		s.mu.Unlock()
		pass(time.Minute)
		s.mu.Lock()
		after := s.steps
		s.mu.Unlock()
		if after != before {
			t.Errorf("with all disks full, %d steps were taken in a minute, want 0", after-before)
		}
		full()
		pass(30 * time.Second)
		if n := leads(); n[1] == 0 || n[2] == 0 || n[3] == 0 {
			t.Errorf("with disk space on all nodes again, leaders are not spread: %v", n)
		}
	})
}
