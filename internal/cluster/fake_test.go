package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// fleet is a set of nodes that can be down, with Raft groups that have membership but no entries.
type fleet struct {
	t    *testing.T
	rnd  *rand.Rand
	seed uint64

	mu     sync.Mutex
	up     map[uint32]bool
	cut    map[uint32]bool // removed: no node talks to it
	short  map[uint32]bool // its disk is nearly full
	groups map[uint32]*group
	flaky  float64 // how often a call fails, before or after it took effect
	load   int     // maximum number of entries between two passes
	budget int     // calls until all of them fail, as if the caller had died
	steps  int     // calls that took effect
}

type group struct {
	Status
	gone   map[uint64]bool // replicas whose row was deleted: their data is gone
	begun  map[uint64]bool // replicas that run, since their nodes know of them
	joints int             // passes until the joint configuration is left
	since  time.Time       // when its leader changed
	noted  string
	rnd    *rand.Rand // of its own, so that a saga runs the same way whichever shard is asked first
}

func newFleet(t *testing.T, seed uint64) *fleet {
	return &fleet{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), up: map[uint32]bool{}, cut: map[uint32]bool{},
		short: map[uint32]bool{}, groups: map[uint32]*group{}, load: 2000, budget: 1 << 30}
}

// lives reports whether a replica participates.
func (f *fleet) lives(g *group, id uint64) bool {
	return g.begun[id] && f.up[NodeOf(id)] && !f.cut[NodeOf(id)] && !g.gone[id]
}

// decides reports whether a majority of some voters participates.
func (f *fleet) decides(g *group, voters []uint64) bool {
	n := 0
	for _, id := range voters {
		if f.lives(g, id) {
			n++
		}
	}
	return 2*n > len(voters)
}

// healthy reports whether a group can commit.
func (f *fleet) healthy(g *group) bool {
	return f.decides(g, g.Voters) && (len(g.VotersOutgoing) == 0 || f.decides(g, g.VotersOutgoing))
}

// obey applies the rows: which shards start, which nodes are cut off, which replicas are gone.
func (f *fleet) obey(m *Map) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range m.Nodes {
		f.cut[n.Number] = n.State == Removed
	}
	for _, s := range m.Shards {
		g := f.groups[s.ID]
		if g == nil {
			if r := s.Replicas[0]; r.Founder && f.up[r.Node] && !f.cut[r.Node] {
				f.groups[s.ID] = &group{Status: Status{Voters: []uint64{r.ID}, Applied: 10}, gone: map[uint64]bool{},
					begun: map[uint64]bool{r.ID: true}, rnd: rand.New(rand.NewPCG(f.seed, uint64(s.ID)))}
			}
			continue
		}
		for _, id := range slices.Concat(g.Voters, g.VotersOutgoing, g.Learners) {
			if !slices.ContainsFunc(s.Replicas, func(r Replica) bool { return r.ID == id }) && !g.gone[id] {
				g.gone[id] = true
				if g.votes(id) && !f.cut[NodeOf(id)] {
					f.t.Errorf("shard %d: the row of voter %s was deleted", s.ID, replicaName(id))
				}
			}
		}
	}
}

// pass lets groups elect leaders, replicate, and leave joint configurations.
func (f *fleet) pass() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.groups {
		if !f.healthy(g) {
			g.Leader = 0
			continue
		}
		if g.joints > 0 {
			if g.joints--; g.joints == 0 {
				g.VotersOutgoing = nil
			}
		}
		if g.Leader == 0 || !f.lives(g, g.Leader) || !g.votes(g.Leader) {
			var able []uint64
			for _, id := range g.Voters {
				if f.lives(g, id) {
					able = append(able, id)
				}
			}
			g.Leader, g.Term, g.since = able[g.rnd.IntN(len(able))], g.Term+1, time.Now()
		}
		g.Applied += uint64(g.rnd.IntN(f.load))
		old := g.Progress
		g.Progress = map[uint64]Progress{}
		for _, id := range slices.Concat(g.Voters, g.Learners) {
			p := old[id]
			g.begun[id] = g.begun[id] || f.up[NodeOf(id)] && !f.cut[NodeOf(id)] && g.rnd.IntN(3) == 0
			// A leader assumes that a replica that was just added is active.
			p.Active = f.lives(g, id) || !g.begun[id]
			if f.lives(g, id) {
				if p.Match < g.Applied {
					p.Match += (g.Applied - p.Match) * uint64(g.rnd.IntN(5)) / 4
				}
				p.Snapshotting = g.rnd.IntN(8) == 0 && slices.Contains(g.Learners, id)
			}
			g.Progress[id] = p
		}
	}
}

var errLost = errors.New("no answer")

// call runs a step on a group. The call or its answer may be lost.
func (f *fleet) call(shard uint32, fn func(g *group) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[shard]
	if f.budget--; f.budget < 0 || g == nil || g.rnd.Float64() < f.flaky/2 || g.Leader == 0 || !f.healthy(g) {
		return errLost
	}
	if err := fn(g); err != nil {
		return err
	}
	f.steps++
	if !f.healthy(g) {
		f.t.Errorf("shard %d lost its majority: %+v, %s", shard, g.Status, g.noted)
	}
	if g.rnd.Float64() < f.flaky/2 {
		return errLost
	}
	return nil
}

func (f *fleet) Status(_ context.Context, shard uint32) (s Status, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[shard]
	if g == nil || g.Leader == 0 || g.rnd.Float64() < f.flaky/4 {
		return s, errLost
	}
	s = g.Status
	s.Led = time.Since(g.since)
	s.Voters, s.VotersOutgoing, s.Learners = slices.Clone(s.Voters), slices.Clone(s.VotersOutgoing), slices.Clone(s.Learners)
	return s, nil
}

func (f *fleet) AddLearner(_ context.Context, shard uint32, id uint64) error {
	return f.call(shard, func(g *group) error {
		if g.gone[id] {
			f.t.Errorf("shard %d: %s was added again after it had been removed", shard, replicaName(id))
		}
		if !g.has(id) {
			g.Learners = append(g.Learners, id)
		}
		return nil
	})
}

func (f *fleet) RemoveLearner(_ context.Context, shard uint32, id uint64) error {
	return f.call(shard, func(g *group) error {
		if g.votes(id) {
			return fmt.Errorf("%s votes", replicaName(id))
		}
		g.Learners = without(g.Learners, id)
		return nil
	})
}

func (f *fleet) ChangeVoters(_ context.Context, shard uint32, c VoterChange) error {
	return f.call(shard, func(g *group) error {
		if c.Term != g.Term || !same(c.From, g.Voters) || len(g.VotersOutgoing) > 0 {
			return errors.New("it is another shard by now")
		}
		old := slices.Clone(g.Voters)
		for _, id := range c.Promote {
			if !slices.Contains(g.Learners, id) {
				f.t.Errorf("shard %d: %s was promoted, but is not a learner", shard, replicaName(id))
			}
			g.Learners = without(g.Learners, id)
			g.Voters = append(g.Voters, id)
		}
		for _, id := range slices.Concat(c.Demote, c.Remove) {
			g.Voters = without(g.Voters, id)
		}
		g.Learners = append(g.Learners, c.Demote...)
		if slices.Contains(g.Voters, g.Leader) == slices.Contains(old, g.Leader) && len(g.Voters) > 0 {
			g.VotersOutgoing, g.joints = old, 1+g.rnd.IntN(3)
		} else {
			f.t.Errorf("shard %d: its leader %s was removed by the change %+v", shard, replicaName(g.Leader), c)
		}
		g.noted = fmt.Sprintf("%+v", c)
		return nil
	})
}

func (f *fleet) Transfer(_ context.Context, shard uint32, to uint64, _ string) error {
	return f.call(shard, func(g *group) error {
		if !slices.Contains(g.Voters, to) || !f.lives(g, to) {
			f.t.Errorf("shard %d: leadership was transferred to %s, which can't lead", shard, replicaName(to))
			return errLost
		}
		if g.Leader != to {
			g.Leader, g.Term, g.since = to, g.Term+1, time.Now()
		}
		return nil
	})
}

var stepNames = [...]string{"nothing", "add replica", "replica leaves", "keep replica", "drop replica", "add learner", "remove learner",
	"change voters", "transfer leader"}

func (k StepKind) String() string {
	if int(k) < len(stepNames) {
		return stepNames[k]
	}
	return "unknown"
}

func (s Step) String() string {
	switch s.Kind {
	case NoStep:
		return s.Kind.String()
	case AddReplica:
		return fmt.Sprintf("%s: %s on node %d", shardText(s.Shard), s.Kind, s.Node)
	case ChangeVoters:
		return fmt.Sprintf("%s: %s: promote %s, demote %s, remove %s", shardText(s.Shard), s.Kind, ids(s.Change.Promote),
			ids(s.Change.Demote), ids(s.Change.Remove))
	}
	return fmt.Sprintf("%s: %s %s", shardText(s.Shard), s.Kind, replicaName(s.Replica))
}

// replicaName returns a replica's node and incarnation.
func replicaName(id uint64) string { return fmt.Sprintf("%d.%d", NodeOf(id), id>>32) }

func ids(list []uint64) string {
	names := make([]string, len(list))
	for i, id := range list {
		names[i] = replicaName(id)
	}
	return fmt.Sprint(names)
}
