package broker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/explain"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

type (
	// QueueStatus is the status of a queue in one shard, in numbers.
	QueueStatus = explain.QueueStatus
	// Blocked counts the ready tasks that wait for the same reason.
	Blocked = explain.Blocked
)

// examinedAtOnce is how many queues one round examines in the leader's memory; idleAtOnce is how many it checks only for whether
// anybody takes their tasks.
const examinedAtOnce, idleAtOnce = 50, 1000

// shardTime is how long a status waits for a shard. It leaves time to answer those who wait verb.PartTime for this
// node: they would take the whole node for missing, with all of its shards. A scrape of the metrics takes as long.
const shardTime = verb.PartTime / 2

// newDeadTime is how long a dead letter counts as new.
const newDeadTime = time.Hour

// part is the status of one shard's queues.
type part struct {
	shard   uint32
	r       *replica
	all     []*QueueStatus
	apart   map[string]int64    // rows set apart lately, by namespace
	ready   []*QueueStatus      // with ready tasks, those with the most first
	workers []task.QueueWorkers // of the queues in ready
}

// statusesOf returns the status of all queues in some shards that this node leads. Dead letters of the last hour are new. It reads
// outside the rounds, except for a moment in the leader's memory per queue with ready tasks: it examines those with the most tasks, and
// checks for the others only whether anybody takes their tasks. A shard that another node leads by now, or that hangs, is left out.
func (b *Broker) statusesOf(ctx context.Context, shards []uint32) (parts []*part, err error) {
	read := make([]*part, len(shards))
	failed := parallel.Each(len(shards), func(i int) (err error) {
		soon, cancel := context.WithTimeout(ctx, shardTime)
		defer cancel()
		read[i], err = b.partOf(soon, shards[i])
		return err
	})
	var names []QueueName
	for i, p := range read {
		if failed[i] != nil {
			continue
		}
		parts = append(parts, p)
		for _, s := range p.ready {
			names = append(names, QueueName{s.Namespace, s.Queue})
		}
	}
	workers := b.workers(ctx, names)
	for _, p := range parts {
		p.workers, workers = workers[:len(p.ready)], workers[len(p.ready):]
	}
	failed = parallel.Each(len(parts), func(i int) error { return parts[i].examine(ctx) })
	var examined []*part
	for i, p := range parts {
		if failed[i] == nil {
			examined = append(examined, p)
		}
	}
	return examined, ctx.Err()
}

// partOf reads the status of a shard's queues, without the leader's memory.
func (b *Broker) partOf(ctx context.Context, shardID uint32) (*part, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, err
	}
	now, _ := r.shard.Now() // if another node leads by now, the read fails
	p, _, err := read(ctx, r, func(from store.Reader) (p *part, err error) {
		p = &part{shard: shardID, r: r, apart: schema.CountApart(from, now.Add(-apartNew))}
		p.all, p.ready, err = explain.QueueStatuses(from, now.Add(-newDeadTime))
		return p, err
	})
	return p, err
}

// examine examines the queues with ready tasks.
func (p *part) examine(ctx context.Context) error {
	closely := min(len(p.ready), explain.MaxExamined)
	for from, to := 0, 0; from < len(p.ready); from = to {
		step := p.examineSome
		if to = min(from+examinedAtOnce, closely); from >= closely {
			step, to = p.findIdle, min(from+idleAtOnce, len(p.ready))
		}
		soon, cancel := context.WithTimeout(ctx, shardTime)
		err := step(soon, from, to)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// findIdle checks for the queues [from, to) whether anybody takes their tasks.
func (p *part) findIdle(ctx context.Context, from, to int) error {
	type found struct{ idle, paused bool }
	all, _, err := change(ctx, p.r, func(round *engine.Round) ([]found, error) {
		out := make([]found, to-from)
		for i := range out {
			s := p.ready[from+i]
			out[i].idle, out[i].paused = explain.IsIdle(round, s.Namespace, s.Queue, p.known(from+i))
		}
		return out, nil
	})
	for i, f := range all {
		p.ready[from+i].Idle, p.ready[from+i].Paused = f.idle, f.paused
	}
	return err
}

func (p *part) known(i int) explain.Workers {
	return p.r.workersOf(p.ready[i].Namespace, p.ready[i].Queue, p.workers[i])
}

// examineSome examines the queues [from, to). The status of one that was deleted meanwhile is not changed.
func (p *part) examineSome(ctx context.Context, from, to int) error {
	some := p.ready[from:to]
	memory, _, err := change(ctx, p.r, func(round *engine.Round) ([]*explain.Memory, error) {
		out := make([]*explain.Memory, len(some))
		for i, s := range some {
			out[i], _ = explain.MemoryOf(round, s.Namespace, s.Queue, func(string) explain.Workers { return p.known(from + i) })
		}
		return out, nil
	})
	if err != nil {
		return err
	}
	_, _, err = read(ctx, p.r, func(state store.Reader) (struct{}, error) {
		for i, s := range some {
			if memory[i] != nil {
				_ = s.Examine(state, memory[i]) // not found: it was deleted
			}
		}
		return struct{}{}, nil
	})
	return err
}

// Led returns the shards that this node leads.
func (b *Broker) Led() (ids []uint32) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for id, r := range b.replicas {
		if r.shard.Leads() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// termsOf returns the shards that this node leads, and in which terms.
func termsOf(b *Broker) map[uint32]uint64 {
	terms := map[uint32]uint64{}
	for _, id := range b.Led() {
		_, terms[id], _ = b.Leader(id)
	}
	return terms
}

// NamespaceStatus is the combined status of a namespace's queues.
type NamespaceStatus struct {
	Queues                                              []string
	Scheduled, Ready, Claimed, Retrying, Dead, Poisoned int64
	NewDead                                             int64          // dead letters of the last hour that still exist
	MoreNewDead                                         bool           // NewDead is a lower bound
	Busy                                                []*QueueStatus // queues with ready tasks that were examined
	Idle                                                []QueueCount   // the ready tasks of others: see Unserved
	Apart                                               int64          // rows set apart in the last day: see engine/apart.go
}

// Add adds the status of another shard. A queue in several shards counts once.
func (n *NamespaceStatus) Add(o *NamespaceStatus) {
	n.Queues = append(n.Queues, o.Queues...)
	slices.Sort(n.Queues)
	n.Queues = slices.Compact(n.Queues)
	n.Scheduled, n.Ready, n.Claimed = n.Scheduled+o.Scheduled, n.Ready+o.Ready, n.Claimed+o.Claimed
	n.Retrying, n.Dead, n.Poisoned = n.Retrying+o.Retrying, n.Dead+o.Dead, n.Poisoned+o.Poisoned
	n.NewDead, n.MoreNewDead = n.NewDead+o.NewDead, n.MoreNewDead || o.MoreNewDead
	n.Idle = SumCounts(n.Idle, o.Idle)
	n.Apart += o.Apart
	for _, s := range o.Busy {
		if at := slices.IndexFunc(n.Busy, func(t *QueueStatus) bool { return t.Queue == s.Queue }); at >= 0 {
			n.Busy[at].Add(s)
		} else {
			n.Busy = append(n.Busy, s)
		}
	}
}

// SumCounts adds up counts of the same queues in several shards.
func SumCounts(parts ...[]QueueCount) (sum []QueueCount) {
	at := map[string]int{}
	for _, c := range slices.Concat(parts...) {
		if i, known := at[c.Queue]; known {
			sum[i].N, sum[i].Served = sum[i].N+c.N, sum[i].Served || c.Served
			continue
		}
		at[c.Queue] = len(sum)
		sum = append(sum, c)
	}
	return sum
}

// Unserved leaves out the queues that are served in some shard. It needs the counts of all shards: a worker need not ask each of them.
func Unserved(counts []QueueCount) []QueueCount {
	return slices.DeleteFunc(counts, func(c QueueCount) bool { return c.Served })
}

// statusCache holds the last known status of all queues that this node leads. When it has gained or lost a shard, it is
// out of date: another node may report the same shard.
type statusCache struct {
	mu      sync.Mutex
	at      time.Time
	took    time.Duration
	last    *statusRead
	reading *statusRead // under way; nil: none
}

// statusRead reads the status of all queues once, for all who wait for it.
type statusRead struct {
	terms  map[uint32]uint64 // of the shards that the node led when it began
	done   chan struct{}     // closed when it has ended
	parts  []*part
	queues []*QueueStatus // all of them
	err    error
}

// statusTimeout bounds a read of all queues, which goes on when those who wait for it have given up: the next caller gets its result.
const statusTimeout = 30 * time.Second

// statusShare bounds the cost of reading all queues: the result is reused for up to statusShare times as long as that
// took, within the age that the caller allows. So pages of a few queues are never behind, and thousands of queues take
// no more than a twentieth of a processor. A result without a shard that hangs is reused too, since the next one would
// take as long.
const statusShare = 20

// QueueStatuses returns the status of all queues in the shards that this node leads, at most age old. A queue with partitions in several
// of them is one. The result must not be modified.
func (b *Broker) QueueStatuses(ctx context.Context, age time.Duration) ([]*QueueStatus, error) {
	read, err := b.statuses(ctx, age)
	return read.queues, err
}

// statuses is QueueStatuses, shard by shard.
func (b *Broker) statuses(ctx context.Context, age time.Duration) (*statusRead, error) {
	s, terms := &b.statusCache, termsOf(b)
	s.mu.Lock()
	if s.last != nil && time.Since(s.at) < min(age, statusShare*s.took) && maps.Equal(s.last.terms, terms) {
		defer s.mu.Unlock()
		return s.last, nil
	}
	read := s.reading
	if read == nil || !maps.Equal(read.terms, terms) {
		read = &statusRead{terms: terms, done: make(chan struct{})}
		s.reading = read
		b.background(func() { read.run(b) })
	}
	s.mu.Unlock()
	select {
	case <-read.done:
		return read, read.err
	case <-ctx.Done():
		return &statusRead{}, ctx.Err()
	case <-b.stopping.Done():
		return &statusRead{}, b.stopping.Err()
	}
}

func (r *statusRead) run(b *Broker) {
	ctx, cancel := context.WithTimeout(b.stopping, statusTimeout)
	defer cancel()
	began := time.Now()
	var err error
	r.parts, err = b.statusesOf(ctx, slices.Sorted(maps.Keys(r.terms)))
	r.queues, r.err = join(r.parts), err
	s := &b.statusCache
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == r {
		s.reading = nil
	}
	if err == nil {
		s.at, s.last = time.Now(), r
		s.took = s.at.Sub(began)
	}
	close(r.done)
}

// join joins the status of the shards. A queue with partitions in several of them is one.
func join(parts []*part) (all []*QueueStatus) {
	at := map[QueueName]int{}
	for _, p := range parts {
		for _, q := range p.all {
			of := QueueName{q.Namespace, q.Queue}
			i, known := at[of]
			if !known {
				at[of], all = len(all), append(all, q)
				continue
			}
			sum := *all[i] // the parts stay as they are
			sum.Blocked = slices.Clone(sum.Blocked)
			sum.Add(q)
			all[i] = &sum
		}
	}
	return all
}

// NamespaceStatus returns the status of a namespace's queues in each shard that this node leads.
func (b *Broker) NamespaceStatus(ctx context.Context, ns string, age time.Duration) (out []verb.OfShard[NamespaceStatus], err error) {
	read, err := b.statuses(ctx, age)
	for _, p := range read.parts {
		out = append(out, verb.OfShard[NamespaceStatus]{Shard: p.shard, Term: read.terms[p.shard], Value: p.ofNamespace(ns)})
	}
	return out, err
}

func (p *part) ofNamespace(ns string) (n NamespaceStatus) {
	n.Apart = p.apart[ns]
	for _, s := range p.all {
		if s.Namespace != ns {
			continue
		}
		n.Queues = append(n.Queues, s.Queue)
		n.Scheduled, n.Ready, n.Claimed = n.Scheduled+s.Scheduled, n.Ready+s.Ready, n.Claimed+s.Claimed
		n.Retrying, n.Dead, n.Poisoned = n.Retrying+s.Retrying, n.Dead+s.Dead, n.Poisoned+s.Poisoned
		n.NewDead, n.MoreNewDead = n.NewDead+s.NewDead, n.MoreNewDead || s.MoreNewDead
		if s.Ready > 0 && !s.Paused {
			n.Idle = append(n.Idle, QueueCount{s.Queue, s.Ready, !s.Idle})
		}
		if s.Examined {
			busy := *s // Add may change it
			busy.Blocked = slices.Clone(s.Blocked)
			n.Busy = append(n.Busy, &busy)
		}
	}
	return n
}

// apartNew is how long a row that was set apart needs attention.
const apartNew = 24 * time.Hour

// Apart returns how many rows of each namespace a shard that this node leads has set apart in the last day.
func (b *Broker) Apart(ctx context.Context, shardID uint32) (map[string]int64, error) {
	r, err := b.replica(shardID)
	if err != nil {
		return nil, err
	}
	now, _ := r.shard.Now()
	n, _, err := read(ctx, r, func(from store.Reader) (map[string]int64, error) {
		return schema.CountApart(from, now.Add(-apartNew)), nil
	})
	return n, err
}

// CountsQuery selects the queues and tasks to count.
type CountsQuery struct {
	Namespace string
	Pattern   string     // of their names; "": all
	State     task.State // of the tasks to count: Ready, Dead or Poisoned; 0: all that are still to run
	NoWorker  bool       // whether workers serve the queues
}

// QueueCount is how many of the counted tasks a queue has.
type QueueCount struct {
	Queue  string
	N      int64
	Served bool // in some shard, workers take its tasks
}

// QueueCounts counts tasks per queue in each shard that this node leads, and leaves out queues without any.
func (b *Broker) QueueCounts(ctx context.Context, q CountsQuery, age time.Duration) (out []verb.OfShard[[]QueueCount], err error) {
	read, err := b.statuses(ctx, age)
	scope := task.ScopeOf(ctx)
	for _, p := range read.parts {
		of := verb.OfShard[[]QueueCount]{Shard: p.shard, Term: read.terms[p.shard]}
		for _, s := range p.all {
			wanted := s.Namespace == q.Namespace && scope.Sees(s.Queue) && (q.Pattern == "" || task.Matches(q.Pattern, s.Queue))
			if n := s.Count(q.State); n > 0 && wanted {
				of.Value = append(of.Value, QueueCount{s.Queue, n, q.NoWorker && !s.NoWorker()})
			}
		}
		out = append(out, of)
	}
	return out, err
}
