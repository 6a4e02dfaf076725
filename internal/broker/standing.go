package broker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

type (
	// Standing is how a queue stands in one shard, in numbers.
	Standing = engine.Standing
	// Blocked counts the ready tasks that wait for one reason.
	Blocked = engine.Blocked
)

// glances is how many queues one round looks at in the leader's memory, and idleGlances at how many of which it only asks whether
// anybody takes them.
const glances, idleGlances = 50, 1000

// newDeadTime is how long a dead letter is new.
const newDeadTime = time.Hour

// Standings tells how all queues stand in a shard; dead letters of the last hour are new. It reads beside the rounds, but for a moment of the leader's memory for each of
// the queues with ready tasks: those with the most of them it looks at more closely, of the others it finds out whether anybody
// takes them.
func (b *Broker) Standings(ctx context.Context, shardID uint32) ([]*Standing, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, err
	}
	now, _ := r.shard.Now() // if another leads by now, the read says so
	type found struct{ all, ready []*Standing }
	f, _, err := read(ctx, r, func(from store.Reader) (f found, err error) {
		f.all, f.ready, err = engine.Standings(from, now.Add(-newDeadTime))
		return f, err
	})
	if err != nil {
		return nil, err
	}
	closely := min(len(f.ready), engine.Closely)
	for some := range slices.Chunk(f.ready[:closely], glances) {
		if err := r.lookAt(ctx, some); err != nil {
			return nil, err
		}
	}
	for some := range slices.Chunk(f.ready[closely:], idleGlances) {
		if err := r.findIdle(ctx, some); err != nil {
			return nil, err
		}
	}
	return f.all, nil
}

// findIdle says of some queues whether anybody takes them.
func (r *replica) findIdle(ctx context.Context, some []*Standing) error {
	idle, _, err := change(ctx, r, func(round *engine.Round) ([]bool, error) {
		out := make([]bool, len(some))
		for i, s := range some {
			out[i] = engine.IsIdle(round, s.Namespace, s.Queue, r.takers(s.Namespace, s.Queue))
		}
		return out, nil
	})
	for i := range idle {
		some[i].Idle = idle[i]
	}
	return err
}

// lookAt looks at some queues more closely. One that was deleted meanwhile stays as it is.
func (r *replica) lookAt(ctx context.Context, some []*Standing) error {
	memory, _, err := change(ctx, r, func(round *engine.Round) ([]*engine.Glance, error) {
		out := make([]*engine.Glance, len(some))
		for i, s := range some {
			out[i], _ = engine.GlanceAt(round, s.Namespace, s.Queue, func(queue string) engine.Takers { return r.takers(s.Namespace, queue) })
		}
		return out, nil
	})
	if err != nil {
		return err
	}
	_, _, err = read(ctx, r, func(from store.Reader) (struct{}, error) {
		for i, s := range some {
			if memory[i] != nil {
				_ = s.Look(from, memory[i]) // not found: it was deleted
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Led lists the shards of this node that it leads.
func (b *Broker) Led() (ids []uint32) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for id, r := range b.replicas {
		if _, leads := r.shard.Now(); leads {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// NamespaceStanding is how the queues of a namespace stand together.
type NamespaceStanding struct {
	Queues                                              int
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	NewDead                                             int64       // dead letters of the last hour that are there still
	MoreNewDead                                         bool        // there are more of them
	Busy                                                []*Standing // queues with ready tasks that were looked at more closely
	Idle                                                Idle        // of the others those that nobody takes
}

// Idle are queues with ready tasks that nobody takes.
type Idle struct {
	Queues, Tasks int64
	Largest       string // the one with most of the tasks,
	Most          int64  // and how many
}

// add adds others.
func (i *Idle) add(o Idle) {
	i.Queues, i.Tasks = i.Queues+o.Queues, i.Tasks+o.Tasks
	if o.Most > i.Most {
		i.Largest, i.Most = o.Largest, o.Most
	}
}

// Add adds what another node leads. A queue that lies in several shards is one.
func (n *NamespaceStanding) Add(o *NamespaceStanding) {
	n.Queues += o.Queues
	n.Scheduled, n.Ready, n.Claimed = n.Scheduled+o.Scheduled, n.Ready+o.Ready, n.Claimed+o.Claimed
	n.Retrying, n.Dead, n.Poisoned = n.Retrying+o.Retrying, n.Dead+o.Dead, n.Poisoned+o.Poisoned
	n.NewDead, n.MoreNewDead = n.NewDead+o.NewDead, n.MoreNewDead || o.MoreNewDead
	n.Idle.add(o.Idle)
	for _, s := range o.Busy {
		if at := slices.IndexFunc(n.Busy, func(t *Standing) bool { return t.Queue == s.Queue }); at >= 0 {
			n.Busy[at].Add(s)
		} else {
			n.Busy = append(n.Busy, s)
		}
	}
}

// survey is what was last told of all queues that this node leads.
type survey struct {
	mu     sync.Mutex
	at     time.Time
	took   time.Duration
	queues []*Standing
}

// surveyShare bounds what surveys cost: one that took a while is good for so many times as long, and at most for as long as who asks
// allows. So pages of a few queues are never behind, and thousands of queues cost no more than a twentieth of a processor.
const surveyShare = 20

// Survey tells how all queues stand in the shards that this node leads, as they did at most age ago. A queue with parts in several
// of them is one. What it returns must not be changed.
func (b *Broker) Survey(ctx context.Context, age time.Duration) ([]*Standing, error) {
	s := &b.survey
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < min(age, surveyShare*s.took) {
		return s.queues, nil
	}
	began := time.Now()
	var all []*Standing
	known := map[[2]string]*Standing{}
	for _, id := range b.Led() {
		some, err := b.Standings(ctx, id)
		if ctx.Err() != nil {
			return nil, err
		}
		for _, q := range some { // none after an error: another node leads the shard by now, and tells of it
			of := [2]string{q.Namespace, q.Queue}
			if known[of] != nil {
				known[of].Add(q)
				continue
			}
			known[of] = q
			all = append(all, q)
		}
	}
	s.at, s.queues = time.Now(), all
	s.took = s.at.Sub(began)
	return all, nil
}

// Standing tells how the queues of a namespace stand in the shards that this node leads.
func (b *Broker) Standing(ctx context.Context, ns string, age time.Duration) (n NamespaceStanding, err error) {
	all, err := b.Survey(ctx, age)
	for _, s := range all {
		if s.Namespace != ns {
			continue
		}
		n.Queues++
		n.Scheduled, n.Ready, n.Claimed = n.Scheduled+s.Scheduled, n.Ready+s.Ready, n.Claimed+s.Claimed
		n.Retrying, n.Dead, n.Poisoned = n.Retrying+s.Retrying, n.Dead+s.Dead, n.Poisoned+s.Poisoned
		n.NewDead, n.MoreNewDead = n.NewDead+s.NewDead, n.MoreNewDead || s.MoreNewDead
		if s.Idle && !s.Looked {
			n.Idle.add(Idle{Queues: 1, Tasks: s.Ready, Largest: s.Queue, Most: s.Ready})
		}
		if s.Looked {
			busy := *s // Add may change it
			busy.Blocked = slices.Clone(s.Blocked)
			n.Busy = append(n.Busy, &busy)
		}
	}
	return n, err
}

// CountsQuery says which queues are counted, and what of them.
type CountsQuery struct {
	Namespace string
	Pattern   string     // of their names; "": all
	State     task.State // of the tasks that are counted: Ready, Dead or Poisoned; 0: all that have something before them
	Most      int        // only so many, those with the most; 0: all
}

// QueueCount is how many tasks of a kind a queue has.
type QueueCount struct {
	Queue string
	N     int64
}

// QueueCounts counts tasks of the queues that have some, in the shards that this node leads.
func (b *Broker) QueueCounts(ctx context.Context, q CountsQuery, age time.Duration) (counts []QueueCount, err error) {
	all, err := b.Survey(ctx, age)
	scope := task.ScopeOf(ctx)
	for _, s := range all {
		if n := s.Count(q.State); n > 0 && s.Namespace == q.Namespace && scope.Sees(s.Queue) && (q.Pattern == "" || task.Matches(q.Pattern, s.Queue)) {
			counts = append(counts, QueueCount{s.Queue, n})
		}
	}
	if q.Most > 0 {
		slices.SortStableFunc(counts, func(a, b QueueCount) int { return cmp.Compare(b.N, a.N) })
		counts = counts[:min(len(counts), q.Most)]
	}
	return counts, err
}
