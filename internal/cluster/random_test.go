package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// saga is a cluster with random events.
type saga struct {
	*fleet
	w       *world
	replica *systemReplica
	loop    *Reconciler
	next    byte // for nonces and addresses
	log     []string
}

func newSaga(t *testing.T, w *world, seed uint64) *saga {
	s := &saga{fleet: newFleet(t, seed), w: w}
	s.up[1] = true
	w.open(1 + s.rnd.IntN(3))
	s.elect()
	return s
}

// elect makes another node lead the system shard.
func (s *saga) elect() {
	s.replica = s.w.newReplica()
	s.replica.lead()
	s.loop = NewReconciler(ReconcilerConfig{Placement: s.replica.control.Placement, Groups: s})
	s.replica.Poke = s.loop.Poke
	s.budget = 1 << 30
}

// tick lets half a second pass and the loop make one pass. It reports whether anything was done.
func (s *saga) tick() bool {
	pass(defaultPeriod)
	c := s.replica.control
	m := mapOf(s.t, c)
	s.obey(m)
	for n, up := range s.up {
		if up && !s.cut[n] {
			c.Placement.liveness.noteReport(Report{Node: n})
		}
	}
	s.pass()
	wait, err := s.loop.reconcile(bg)
	must(s.t, err)
	s.obey(mapOf(s.t, c))
	if s.budget < 0 {
		s.elect()
	}
	return wait == againAfter
}

// pick returns the name of a random member.
func (s *saga) pick() string {
	var names []string
	for _, n := range mapOf(s.t, s.replica.control).Nodes {
		if n.State != Removed {
			names = append(names, n.Name)
		}
	}
	return names[s.rnd.IntN(len(names))]
}

func (s *saga) join(name string) error {
	s.next++
	r := joinOf(name, int(s.next))
	r.Nonce[2] = 7
	j, err := s.replica.control.Placement.Join(bg, r)
	if err == nil {
		s.mu.Lock()
		s.up[j.Number] = true
		s.mu.Unlock()
	}
	return err
}

func (s *saga) numberOf(name string) uint32 {
	n, _ := mapOf(s.t, s.replica.control).Named(name)
	return n.Number
}

// strike makes one random event happen. An operator's call may well be refused.
func (s *saga) strike() {
	c, name, shard := s.replica.control, s.pick(), uint32(s.rnd.IntN(4))
	before := s.lost()
	what, err := "", error(nil)
	switch s.rnd.IntN(14) {
	case 0, 1, 2:
		if len(s.up) < 12 {
			what, err = "join", s.join(fmt.Sprint("n", len(s.up)+1))
		}
	case 3, 4:
		what, s.up[s.numberOf(name)] = "down", false
		before = nil // what a dead node takes away was not done by a step
	case 5:
		what, s.up[s.numberOf(name)] = "up", true
	case 6: // its disk is lost
		if n := s.numberOf(name); !s.up[n] {
			what, err = "join again", s.join(name)
		}
	case 7:
		what, err = "drain", c.Placement.Drain(bg, nobody, name)
	case 8:
		what, err = "undrain", c.Placement.Undrain(bg, nobody, name)
	case 9:
		what, err = "remove", c.Placement.Remove(bg, nobody, name, s.rnd.IntN(2) == 0)
	case 10:
		rf := 1 + 2*s.rnd.IntN(3)
		what, err = fmt.Sprint("replication ", rf), c.Placement.SetReplication(bg, nobody, rf)
	case 11:
		to := s.pick()
		what, err = fmt.Sprintf("move %d to %s from", shard, to), c.Placement.Move(bg, nobody, shard, name, to)
	case 12:
		what, err = fmt.Sprintf("transfer %d to", shard), c.Placement.Transfer(bg, nobody, shard, name)
	case 13:
		what, err = "shards", c.Placement.AddShards(bg, nobody, 1+s.rnd.IntN(4))
	}
	s.log = append(s.log, fmt.Sprintf("%s %s: %v", what, name, err))
	s.obey(mapOf(s.t, c))
	if after := s.lost(); before != nil && len(after) > len(before) {
		s.t.Errorf("%s %s took the majority of shards %v", what, name, after)
	}
	if s.rnd.IntN(10) == 0 {
		s.budget = s.rnd.IntN(4) // the loop dies soon
	}
}

// lost returns the shards that can't commit.
func (s *saga) lost() []uint32 {
	lost := []uint32{}
	for id, g := range s.groups {
		if !s.healthy(g) {
			lost = append(lost, id)
		}
	}
	return lost
}

// heal starts all nodes that still belong to the cluster, and lets time pass until nothing is left to do.
func (s *saga) heal() (looks int) {
	const enough, still = 600, 12
	s.flaky, s.load = 0, 500
	for n := range s.up {
		s.up[n] = true
	}
	for idle := 0; idle < still; looks++ {
		if looks == enough {
			s.t.Errorf("after %d passes there are still steps to take", looks)
			return looks
		}
		if idle++; s.tick() || s.catchesUp() {
			idle = 0
		}
	}
	return looks - still
}

// catchesUp reports whether a learner is still behind.
func (s *saga) catchesUp() (behind bool) {
	of := s.replica.control.Placement.observations
	of.seen.In(of.shard, func(seen *seenShards) {
		for _, last := range seen.last {
			behind = behind || strings.Contains(last.problem, "catches up")
		}
	})
	return behind
}

// check verifies the state that the saga has reached.
func (s *saga) check() {
	m := mapOf(s.t, s.replica.control)
	active, leads := 0, map[uint32]int{}
	for _, n := range m.Nodes {
		if n.State == Active {
			active++
		}
	}
	for _, row := range m.Shards {
		g := s.groups[row.ID]
		if g == nil || g.Leader == 0 {
			s.t.Errorf("shard %d has no leader: %+v", row.ID, g)
			continue
		}
		s.checkShard(m, row, g, active)
		for _, id := range g.Voters {
			leads[NodeOf(id)] += 0
		}
		leads[NodeOf(g.Leader)]++
	}
	for _, row := range m.Shards {
		g := s.groups[row.ID]
		if g == nil || row.Preferred == NodeOf(g.Leader) {
			continue
		}
		for _, id := range g.Voters {
			from, to := NodeOf(g.Leader), NodeOf(id)
			if n, _ := m.Node(to); n.State == Active && leads[from]-leads[to] > 1 {
				s.t.Errorf("node %d leads %d shards, but could transfer shard %d to node %d, which leads %d", from, leads[from],
					row.ID, to, leads[to])
			}
		}
	}
}

func (s *saga) checkShard(m *Map, row Shard, g *group, active int) {
	var rows, nodes []uint64
	drains, voting := 0, active
	for _, r := range row.Replicas {
		rows = append(rows, r.ID)
		nodes = append(nodes, uint64(r.Node))
		n, _ := m.Node(r.Node)
		if n.State == Removed {
			s.t.Errorf("shard %d still has a replica on node %d, which was removed", row.ID, r.Node)
		}
		if n.State == Draining {
			drains++
			if slices.Contains(g.Voters, r.ID) {
				voting++
			}
		}
	}
	want := min(m.Settings.Replication, active+drains)
	voters := min(m.Settings.Replication, voting)
	voters -= (voters + 1) % 2
	members := slices.Concat(g.Voters, g.Learners)
	slices.Sort(nodes)
	switch {
	case len(row.Leaving) > 0 || !same(rows, members) || len(slices.Compact(nodes)) != len(rows):
		s.t.Errorf("shard %d: row %+v does not match voters %v and learners %v", row.ID, row, ids(g.Voters), ids(g.Learners))
	case len(g.Voters) != voters || len(members) != want:
		s.t.Errorf("shard %d has %d voters, want %d, and %d replicas, want %d", row.ID, len(g.Voters), voters, len(members), want)
	case drains > 0 && active >= m.Settings.Replication:
		s.t.Errorf("shard %d has %d replicas on draining nodes, although there are %d other nodes for %d replicas", row.ID, drains, active,
			m.Settings.Replication)
	}
	leader, _ := m.Node(NodeOf(g.Leader))
	for _, id := range g.Voters {
		if n, _ := m.Node(NodeOf(id)); leader.State == Draining && n.State == Active {
			s.t.Errorf("shard %d is led by node %d, which drains", row.ID, leader.Number)
		}
	}
	if p, _ := m.Node(row.Preferred); p.State == Active && leader.Number != row.Preferred {
		if r, ok := row.On(row.Preferred); ok && slices.Contains(g.Voters, r.ID) {
			s.t.Errorf("shard %d is led by node %d, want preferred node %d", row.ID, leader.Number, row.Preferred)
		}
	}
}

// Whatever happens to the nodes and to the loop itself, the plan never takes away a majority, and in the end every
// shard has the right replicas.
func TestSagas(t *testing.T) {
	many, worst, steps := seeds(25), 0, 0
	for seed := range many {
		inBubble(t, func(t *testing.T, w *world) {
			s := newSaga(t, w, seed)
			s.flaky = 0.2
			for range 40 {
				s.strike()
				for range s.rnd.IntN(12) {
					s.tick()
				}
				if s.rnd.IntN(8) == 0 {
					pass(time.Duration(s.rnd.IntN(400)) * time.Second)
				}
			}
			worst = max(worst, s.heal())
			s.check()
			steps += s.steps
			if t.Failed() {
				t.Logf("seed %d: %q", seed, s.log)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d sagas with %d steps, finished after at most %d passes", many, steps, worst)
}
