package cluster

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// MaxDataShards bounds the data shards: each costs every node that holds it memory and a log.
	MaxDataShards      = 64
	defaultReplication = 3
	// maxReplicas bounds a shard's replicas, including those that come and go. More means that nodes die faster than replicas can be made.
	maxReplicas = 16
)

// Placement reads and changes nodes, shards and settings: where each replica is, and where it should be.
type Placement struct {
	shard        *system.Shard
	liveness     *liveness
	observations *observations
	lastMap      atomic.Pointer[Map] // the last one read; nil: none
	passWanted   chan chan struct{}  // requests to the Reconciler, which may be in a long sleep
}

// NewPlacement returns the placement in a system shard. own returns this node's report, and node is its number: a node
// that leads the system shard need not report to itself.
func NewPlacement(shard *system.Shard, own func() Report, node uint32) *Placement {
	return &Placement{shard: shard, liveness: newLiveness(own, node), observations: &observations{shard: shard},
		passWanted: make(chan chan struct{})}
}

// Elected must be called before a term begins, and Dropped after it has ended.
func (p *Placement) Elected() { p.liveness.elected() }

// Dropped is described at Elected.
func (p *Placement) Dropped() { p.liveness.dropped() }

// Map returns nodes, shards and settings. It is called all the time, while nothing may change for days, so it returns
// the map decoded last as long as the row system.NewestKey, which every change of the tables updates, has the version
// of that map.
func (p *Placement) Map(ctx context.Context) (*Map, error) {
	return system.View(ctx, p.shard, func(r store.Reader) (*Map, error) {
		if m := p.lastMap.Load(); m != nil && m.Version == system.Newest(r) {
			return m, nil
		}
		m, err := readMap(r)
		if err == nil {
			p.lastMap.Store(m)
		}
		return m, err
	})
}

// set writes a row of nodes, shards or settings.
func (p *Placement) set(tx *store.Tx, key, value []byte) {
	tx.Set(key, value)
	p.shard.Note(tx, system.Change{})
}

func shardName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// shardText names a shard in a message.
func shardText(id uint32) string {
	if id == 0 {
		return "the system shard"
	}
	return "shard " + shardName(id)
}

// changeMap runs a change of nodes, shards and settings.
func changeMap(ctx context.Context, p *Placement, fn func(tx *store.Tx, m *Map) error) error {
	_, err := system.Update(ctx, p.shard, func(tx *store.Tx) (struct{}, error) {
		m, err := readMap(tx)
		if err == nil {
			err = fn(tx, m)
		}
		return struct{}{}, err
	})
	return err
}

// AddShards raises the number of data shards to total. It can only grow. Each new shard begins on the node with the fewest replicas; its
// other replicas follow.
func (p *Placement) AddShards(ctx context.Context, by task.Author, total int) error {
	if total < 1 || total > MaxDataShards {
		return task.Invalid("shards", "%d is not between 1 and %d", total, MaxDataShards)
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		have := m.Settings.DataShards
		switch {
		case total == have:
			return nil
		case total < have:
			return system.WrongState("the cluster has %d data shards, and their number can only grow: %d is fewer", have, total)
		}
		members := p.members(m)
		for id := have + 1; id <= total; id++ {
			i := place(members, Shard{})
			if i < 0 {
				return task.Unavailable(time.Second, "shard %d: no active node was seen in the last %v", id, aliveFor)
			}
			members[i].Replicas++
			m.Shards = append(m.Shards, newShard(uint32(id), members[i].Number)) // #nosec G115 -- at most MaxDataShards
		}
		settings := m.Settings
		settings.DataShards = total
		if err := p.changeSettings(tx, by, task.ShardsAdded, m.Settings, settings); err != nil {
			return err
		}
		for _, s := range m.Shards[len(m.Shards)-(total-have):] {
			p.setShard(tx, s)
		}
		return nil
	})
}

// Move adds a replica of a shard on node to, and has the one on node from leave once the new one can vote.
func (p *Placement) Move(ctx context.Context, by task.Author, shard uint32, from, to string) error {
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		s, ok := m.Shard(shard)
		if !ok {
			return task.NotFound("shard", shardName(shard))
		}
		src, ok := m.Named(from)
		if !ok {
			return task.NotFound("node", from)
		}
		dst, ok := m.Named(to)
		if !ok {
			return task.NotFound("node", to)
		}
		old, held := s.On(src.Number)
		taken, holds := s.On(dst.Number)
		switch {
		case held && holds && s.leaves(old.ID) && !s.leaves(taken.ID):
			return nil // a repeat
		case !held || s.leaves(old.ID):
			return system.WrongState("move %s: it has no replica on node %q that could move", shardText(shard), from)
		case holds:
			return system.WrongState("move %s: it has a replica on node %q already", shardText(shard), to)
		case dst.State != Active:
			return system.WrongState("move %s: node %q is %s", shardText(shard), to, dst.State)
		case p.liveness.silent(dst.Number) >= aliveFor:
			return system.WrongState("move %s: node %q was not seen in the last %v", shardText(shard), to, aliveFor)
		case len(s.Replicas) >= maxReplicas:
			return system.WrongState("move %s: it has %d replicas, the most allowed", shardText(shard), len(s.Replicas))
		}
		s = s.clone()
		s.add(dst.Number)
		s.Leaving = append(s.Leaving, old.ID)
		if err := onShard(tx, by, task.ReplicaMoved, shard, &replicaFacts{from}, &replicaFacts{to}); err != nil {
			return err
		}
		p.setShard(tx, s)
		return nil
	})
}

// add adds a replica with a new id on a node.
func (s *Shard) add(node uint32) {
	s.Replicas = append(s.Replicas, Replica{ID: ReplicaID(s.NextIncarnation, node), Node: node})
	s.NextIncarnation++
}

// Transfer sets the node that should lead a shard; "": any.
func (p *Placement) Transfer(ctx context.Context, by task.Author, shard uint32, to string) error {
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		s, ok := m.Shard(shard)
		if !ok {
			return task.NotFound("shard", shardName(shard))
		}
		var n Node
		if to != "" {
			if n, ok = m.Named(to); !ok {
				return task.NotFound("node", to)
			}
			r, held := s.On(n.Number)
			switch {
			case !held || s.leaves(r.ID):
				return system.WrongState("lead %s: node %q has no replica of it that stays", shardText(shard), to)
			case n.State != Active:
				return system.WrongState("lead %s: node %q is %s", shardText(shard), to, n.State)
			}
		}
		if s.Preferred == n.Number {
			return nil
		}
		was, _ := m.Node(s.Preferred)
		s.Preferred = n.Number
		if err := onShard(tx, by, task.LeaderTransferred, shard, &leaderFacts{was.Name}, &leaderFacts{to}); err != nil {
			return err
		}
		p.setShard(tx, s)
		return nil
	})
}

// SetReplication sets how many replicas each shard should have: 1, 3, 5 or 7.
func (p *Placement) SetReplication(ctx context.Context, by task.Author, n int) error {
	if !slices.Contains([]int{1, 3, 5, 7}, n) {
		return task.Invalid("replication", "%d is not 1, 3, 5 or 7", n)
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		if m.Settings.Replication == n {
			return nil
		}
		settings := m.Settings
		settings.Replication = n
		return p.changeSettings(tx, by, task.ReplicationSet, m.Settings, settings)
	})
}

// RaiseLevel raises the feature level to the highest that all nodes support, and returns it. There is no way back: nodes of older releases
// can no longer join.
func (p *Placement) RaiseLevel(ctx context.Context, by task.Author) (int, error) {
	return system.Update(ctx, p.shard, func(tx *store.Tx) (int, error) {
		m, err := readMap(tx)
		if err != nil {
			return 0, err
		}
		level := 0
		for _, n := range m.Nodes {
			if n.State != Removed && (level == 0 || n.MaxLevel < level) {
				level = n.MaxLevel
			}
		}
		if level <= m.Settings.Level {
			return m.Settings.Level, nil
		}
		settings := m.Settings
		settings.Level = level
		return level, p.changeSettings(tx, by, task.LevelRaised, m.Settings, settings)
	})
}

// errStale means that the row is no longer the one that a step was planned for. The next pass plans again.
var errStale = fmt.Errorf("the placement has changed meanwhile")

// takeRowStep writes what a step changes in a shard's row, if the row is still the one that the step was planned for.
func (p *Placement) takeRowStep(ctx context.Context, planned Shard, step Step) error {
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		now, ok := m.Shard(planned.ID)
		if !ok || !reflect.DeepEqual(now, planned) {
			return errStale
		}
		if n, ok := m.Node(step.Node); step.Kind == AddReplica && (!ok || n.State != Active) {
			return errStale
		}
		p.setShard(tx, step.applied(now))
		return nil
	})
}

// applied returns the row after a step that changes it.
func (step Step) applied(s Shard) Shard {
	s = s.clone()
	switch step.Kind {
	case AddReplica:
		s.add(step.Node)
		if step.Replica != 0 && !s.leaves(step.Replica) {
			s.Leaving = append(s.Leaving, step.Replica)
		}
	case LeaveReplica:
		if !s.leaves(step.Replica) {
			s.Leaving = append(s.Leaving, step.Replica)
		}
	case KeepReplica:
		s.Leaving = without(s.Leaving, step.Replica)
	case DropReplica:
		s.Leaving = without(s.Leaving, step.Replica)
		s.Replicas = slices.DeleteFunc(s.Replicas, func(r Replica) bool { return r.ID == step.Replica })
	}
	if len(s.Leaving) == 0 {
		s.Leaving = nil // as it is read back
	}
	return s
}

// members returns the nodes as the plan sees them, except for what they lead.
func (p *Placement) members(m *Map) []Member {
	members := make([]Member, len(m.Nodes))
	for i, n := range m.Nodes {
		fit := p.liveness.fitness(n.Number)
		members[i] = Member{Node: n, Silent: p.liveness.silence(n), Barred: fit.barred, Full: fit.full, Unheard: fit.unheard}
	}
	for _, s := range m.Shards {
		for _, r := range s.Replicas {
			if i := memberIndex(members, r.Node); i >= 0 && !s.leaves(r.ID) {
				members[i].Replicas++
			}
		}
	}
	return members
}

// silenceStep is the step in which rows say how long a node has been silent.
const silenceStep = replaceAfter / 10

// noteSilence writes to the rows how long nodes have been silent.
func (p *Placement) noteSilence(ctx context.Context, m *Map) error {
	seen := func(n Node) Node {
		switch silence := p.liveness.silence(n); {
		case n.State == Removed:
		case silence >= aliveFor:
			n.Silent = max(n.Silent, min(silence, replaceAfter).Truncate(silenceStep))
		case p.liveness.isOwn(n.Number) || !p.liveness.fitness(n.Number).unheard:
			n.Silent = 0
		}
		return n
	}
	if !slices.ContainsFunc(m.Nodes, func(n Node) bool { return seen(n) != n }) {
		return nil
	}
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		for _, n := range m.Nodes {
			if now := seen(n); now != n {
				p.setNode(tx, now)
			}
		}
		return nil
	})
}

// beginChange must be called before the voters of a shard are changed. It returns an error if the row or the nodes are not those that the
// change was planned for. From then on the last seen status of the shard is in doubt. It and the removal of a node are rounds, so that the
// later of the two sees the earlier; otherwise each could take away a part of a majority.
func (p *Placement) beginChange(ctx context.Context, planned *Map, shard uint32) error {
	return changeMap(ctx, p, func(_ *store.Tx, m *Map) error {
		then, _ := planned.Shard(shard)
		now, ok := m.Shard(shard)
		if !ok || !reflect.DeepEqual(now, then) {
			return errStale
		}
		for _, n := range planned.Nodes {
			if is, ok := m.Node(n.Number); !ok || is.State != n.State {
				return errStale
			}
		}
		if !p.observations.doubt(shard, time.Now().Add(stepTimeout)) {
			return errStale
		}
		return nil
	})
}

// reconcileNow has the Reconciler make a pass, if none would come soon.
func (p *Placement) reconcileNow(ctx context.Context) {
	looked := make(chan struct{})
	select {
	case p.passWanted <- looked:
	default:
		return
	}
	select {
	case <-looked:
	case <-ctx.Done():
	}
}
