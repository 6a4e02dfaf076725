package cluster

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

// run starts a saga's loop and nodes, and returns a function that stops them.
func (s *saga) run() (stop func()) {
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	wg.Go(func() { s.loop.Run(ctx) })
	wg.Go(func() {
		for ctx.Err() == nil {
			m, err := s.replica.control.Placement.Map(ctx)
			if err == nil {
				s.obey(m)
				s.mu.Lock()
				up := s.up
				for n := range up {
					if up[n] && !s.cut[n] {
						s.replica.control.Placement.liveness.noteReport(Report{Node: n, Version: "v1", DiskShort: s.short[n]})
					}
				}
				s.mu.Unlock()
			}
			s.pass()
			system.Sleep(ctx, 200*time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// A cluster grows from one node to three while its loop runs, and an overview shows it.
func TestClusterGrows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		s.load = 500
		stop := s.run()
		pass(5 * time.Second)
		o, err := s.replica.control.Placement.Overview(bg)
		must(t, err)
		for _, v := range o.Shards {
			if !v.Known || v.Under { // there is no node for a second replica
				t.Errorf("on the only node, the shard is %+v, want known and fully replicated", v)
			}
		}
		must(t, s.join("n2"))
		must(t, s.join("n3"))
		pass(20 * time.Second)
		o, err = s.replica.control.Placement.Overview(bg)
		must(t, err)
		stop()
		s.check()
		leads := 0
		for _, n := range o.Nodes {
			leads += len(n.Leads)
			if !n.Alive || !n.Reported || n.Report.Version != "v1" || len(n.Replicas) != len(o.Shards) {
				t.Errorf("node %+v, want alive, with a report and a replica of each shard", n)
			}
		}
		if len(o.Nodes) != 3 || leads != len(o.Shards) {
			t.Errorf("%d nodes lead %d of %d shards, want 3 nodes that lead all", len(o.Nodes), leads, len(o.Shards))
		}
		for _, v := range o.Shards {
			if !v.Known || v.Under || v.Problem != "" || len(v.Members) != 3 || !v.Members[0].Voter || !v.Members[0].Answers {
				t.Errorf("shard %+v, want three members without a problem", v)
			}
		}
	})
}

// A node dies: the overview says which shards are under-replicated, and why.
func TestOverviewNamesProblems(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		s.load = 500
		must(t, s.join("n2"))
		must(t, s.join("n3"))
		stop := s.run()
		pass(20 * time.Second)
		s.mu.Lock()
		s.up[3] = false
		s.mu.Unlock()
		pass(6 * time.Minute)
		o, err := s.replica.control.Placement.Overview(bg)
		must(t, err)
		if n := o.Nodes[2]; n.Alive || n.Silent < 5*time.Minute {
			t.Errorf("the dead node is %+v, want it silent for 5 minutes", n)
		}
		for _, v := range o.Shards {
			if !v.Under || !strings.Contains(v.Problem, `node n3 has been silent for`) {
				t.Errorf("shard %+v, want a problem that names n3", v)
			}
		}
		s.mu.Lock()
		s.up[2] = false
		s.mu.Unlock()
		pass(20 * time.Second)
		o, err = s.replica.control.Placement.Overview(bg)
		must(t, err)
		for _, v := range o.Shards {
			if v.Known || !v.Under || !strings.Contains(v.Problem, "none of its replicas answers") {
				t.Errorf("shard %+v, want a problem that says that no replica answers", v)
			}
		}
		stop()
	})
}

// A dead node is replaced although no leader of the system shard leads for as long as that takes. A node that was heard
// from meanwhile is not.
func TestSilenceOutlastsLeaders(t *testing.T) {
	for _, c := range []struct {
		what     string
		back     bool // the node is back for a moment, under the third leader
		replaced bool
	}{{"a dead node", false, true}, {"a node that was back", true, false}} {
		inBubble(t, func(t *testing.T, w *world) {
			s := newSaga(t, w, 3)
			for _, name := range []string{"n2", "n3", "n4"} {
				must(t, s.join(name))
			}
			ticks := func(d time.Duration) {
				for range d / defaultPeriod {
					s.tick()
				}
			}
			setUp := func(up bool) {
				s.mu.Lock()
				s.up[2] = up
				s.mu.Unlock()
			}
			ticks(time.Minute)
			setUp(false)
			for leader := range 4 {
				if c.back && leader == 2 {
					ticks(30 * time.Second)
					setUp(true)
					ticks(time.Second)
					setUp(false)
				}
				ticks(99 * time.Second)
				s.elect()
			}
			ticks(time.Minute)
			m := mapOf(t, s.replica.control)
			if left := len(m.holding(2)) == 0; left != c.replaced {
				t.Errorf("%s: after 7 minutes of changing leaders node 2 holds replicas of shards %v, and its row has %v", c.what,
					m.holding(2), m.Nodes[1].Silent)
			}
			setUp(true)
			ticks(time.Minute)
			if n := mapOf(t, s.replica.control).Nodes[1]; n.Silent != 0 {
				t.Errorf("%s: back for a minute, its row says that it has been silent for %v", c.what, n.Silent)
			}
			at := w.State.Applied().Index
			ticks(time.Minute)
			if w.State.Applied().Index != at {
				t.Errorf("%s: a loop over nodes that are all heard from wrote to the store", c.what)
			}
		})
	}
}

// The loop does nothing on a node that does not lead the system shard, and makes a pass immediately when it is poked.
func TestLoopOnlyOnTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 1)
		other := w.newReplica()
		idle := NewReconciler(ReconcilerConfig{Placement: other.control.Placement, Groups: s, Period: time.Hour})
		looked := func() bool {
			_, _, seen := other.control.Placement.observations.of(0)
			return seen
		}
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		wg.Go(func() { idle.Run(ctx) })
		pass(time.Minute)
		if looked() {
			t.Error("the loop made a pass on a node that does not lead")
		}
		other.lead()
		idle.Poke()
		idle.Poke()
		synctest.Wait()
		if !looked() {
			t.Error("the loop was poked and made no pass")
		}
		cancel()
		wg.Wait()
	})
}

// slow wraps a fleet in which shards 1 to hung do not answer.
type slow struct {
	*fleet
	hung uint32
}

func (s slow) Status(ctx context.Context, shard uint32) (Status, error) {
	if 1 <= shard && shard <= s.hung {
		<-ctx.Done()
		return Status{}, ctx.Err()
	}
	return s.fleet.Status(ctx, shard)
}

// Shards that do not answer delay the others no longer than one status request takes, regardless of their number.
func TestLoopSkipsSilentShards(t *testing.T) {
	for _, hung := range []uint32{1, MaxDataShards - 1} {
		inBubble(t, func(t *testing.T, w *world) {
			s := newSaga(t, w, 3)
			must(t, s.replica.control.Placement.AddShards(bg, nobody, MaxDataShards))
			must(t, s.join("n2"))
			s.loop = NewReconciler(ReconcilerConfig{Placement: s.replica.control.Placement, Groups: slow{s.fleet, hung}})
			began := time.Now()
			s.tick()
			s.tick()
			if d := time.Since(began); d > 2*(statusTimeout+defaultPeriod) {
				t.Errorf("two passes took %v while %d shards are silent, want no more than their status timeouts", d, hung)
			}
			m := mapOf(t, s.replica.control)
			if len(m.Shards[0].Replicas) != 2 || len(m.Shards[1].Replicas) != 1 || len(m.Shards[MaxDataShards].Replicas) != 2 {
				t.Errorf("shards are %+v, want two replicas of the first and the last, and one of shard 1", m.Shards)
			}
		})
	}
}

// If a node is removed between the plan to change a shard's voters and the change, the change is not made. While a
// change is in progress, no node is removed.
func TestChangeOfVotersAndRemoval(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		c := w.open(1)
		join(t, c, "n2", 2)
		join(t, c, "n3", 3)
		pass(stepTimeout)
		for _, n := range []uint32{2, 3} {
			must(t, c.Placement.takeRowStep(bg, mapOf(t, c).Shards[1], Step{Kind: AddReplica, Node: n}))
		}
		saw(c, 1, []uint64{1, ReplicaID(1, 2), ReplicaID(2, 3)})
		planned := mapOf(t, c)
		must(t, c.Placement.Remove(bg, nobody, "n3", true))
		if err := c.Placement.beginChange(bg, planned, 1); err == nil {
			t.Error("beginChange accepted a plan from before a node was removed")
		}
		planned = mapOf(t, c)
		must(t, c.Placement.beginChange(bg, planned, 1))
		is(t, c.Placement.Remove(bg, nobody, "n2", true), task.ErrUnavailable, "not known now who votes")
		c.Placement.observations.changeDone(1)
		// until the shard was observed again
		is(t, c.Placement.Remove(bg, nobody, "n2", true), task.ErrUnavailable, "not known now who votes")
		pass(time.Millisecond)
		saw(c, 1, []uint64{1})
		must(t, c.Placement.Remove(bg, nobody, "n2", true))
		// A plan from before a drain is refused, too.
		must(t, c.Placement.beginChange(bg, mapOf(t, c), 1))
		must(t, c.Placement.Drain(bg, nobody, "n1"))
		if err := c.Placement.beginChange(bg, planned, 1); err == nil {
			t.Error("beginChange accepted a plan from before a drain")
		}
	})
}

// drainingFleet is a fleet in which an operator drains a node between the status requests and the steps.
type drainingFleet struct {
	*fleet
	once    sync.Once
	drain   func()
	changes int
}

func (g *drainingFleet) Status(ctx context.Context, shard uint32) (Status, error) {
	g.once.Do(g.drain)
	return g.fleet.Status(ctx, shard)
}

func (g *drainingFleet) ChangeVoters(ctx context.Context, shard uint32, c VoterChange) error {
	g.changes++
	return g.fleet.ChangeVoters(ctx, shard, c)
}

func TestLoopChecksBeforeChangingVoters(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		must(t, s.join("n2"))
		g := &drainingFleet{fleet: s.fleet, drain: func() {}}
		s.loop = NewReconciler(ReconcilerConfig{Placement: s.replica.control.Placement, Groups: g})
		for range 20 {
			s.tick()
		}
		// With two nodes, the voters would move to the second while the first drains, but by the time of the step it no longer drains.
		must(t, s.replica.control.Placement.Drain(bg, nobody, "n1"))
		g.once, g.drain = sync.Once{}, func() { must(t, s.replica.control.Placement.Undrain(bg, nobody, "n1")) }
		if s.tick(); g.changes != 0 {
			t.Errorf("%d changes of voters were made on an outdated plan", g.changes)
		}
		must(t, s.replica.control.Placement.Drain(bg, nobody, "n1"))
		s.tick()
		for range 10 {
			s.tick()
		}
		if g.changes == 0 {
			t.Error("the voters were not changed although the node drains")
		}
	})
}

// One of three nodes returns without its disk, under a new number, and is not heard from for a while. All shards keep
// three voters until its new replicas have caught up, and at least two of the voters have all acknowledged data at any
// moment.
func TestReplacedNodeIsSwapped(t *testing.T) {
	for seed := range seeds(30) {
		inBubble(t, func(t *testing.T, w *world) {
			s := newSaga(t, w, seed)
			must(t, s.join("n2"))
			must(t, s.join("n3"))
			s.heal()
			pass(time.Minute) // it has led for a while, so a node that never reported counts as silent since then
			s.tick()
			s.up[3] = false
			pass(aliveFor)
			s.tick()
			must(t, s.join("n3"))
			again := s.numberOf("n3")
			s.up[again] = false
			for range s.rnd.IntN(60) {
				s.tick()
				s.mustHaveVoters(3)
			}
			s.up[again] = true
			s.flaky = 0.2
			for range 100 {
				s.tick()
				s.mustHaveVoters(3)
			}
			s.heal()
			s.check()
		})
	}
}

// mustHaveVoters fails the test if a shard has fewer voters, or fewer than two that run.
func (s *saga) mustHaveVoters(n int) {
	s.t.Helper()
	for id, g := range s.groups {
		run := 0
		for _, v := range g.Voters {
			if s.lives(g, v) {
				run++
			}
		}
		if len(g.Voters) < n || run < 2 {
			s.t.Errorf("seed %d: shard %d has voters %v, of which %d are running: %s", s.seed, id, ids(g.Voters), run, g.noted)
		}
	}
}

// Shards that get a replica in one pass do not all get it on the same node.
func TestLoopSpreadsReplicas(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := newSaga(t, w, 3)
		must(t, s.replica.control.Placement.AddShards(bg, nobody, 5))
		for _, name := range []string{"n2", "n3", "n4"} {
			must(t, s.join(name))
		}
		s.tick()
		m := mapOf(t, s.replica.control)
		for n := uint32(2); n <= 4; n++ {
			if held := m.holding(n); len(held) != 2 {
				t.Errorf("node %d got replicas of shards %v, want two", n, held)
			}
		}
	})
}

// The log says why leadership moves, if the step has a reason.
func TestStepsAreLoggedWithTheirReason(t *testing.T) {
	var log strings.Builder
	r := &Reconciler{cfg: ReconcilerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
	for why, want := range map[string]string{"n1 drains": `why="n1 drains"`, "": ""} {
		log.Reset()
		r.logStep(Step{Kind: TransferLeader, Shard: 3, Why: why}, "transfer", nil)
		if got := log.String(); !strings.Contains(got, want) || strings.Contains(got, "why=") != (why != "") {
			t.Errorf("for the reason %q the log has %q", why, got)
		}
	}
}
