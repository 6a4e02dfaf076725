package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// Share is one of the queues of a claim, with its weight if the claim is weighted.
type Share struct {
	Queue  string
	Weight int
}

// ClaimRequest describes which tasks a worker claims. The caller has validated it.
type ClaimRequest struct {
	Namespace string
	Queues    []Share
	Weighted  bool // by the weights, exactly; else the first queue that has a task
	Types     []string
	Max       int
	Runs      bool          // several tasks of one key of an ordered queue may be returned; else one
	Yields    bool          // a task of an ordered key that comes back may be claimed while later ones of the key are held by this claim
	MaxBytes  int           // of all tasks together, by Claimed.Weight; the first is returned whatever its weight
	Lease     time.Duration // 0: the queue's
	Worker    string
	Stream    bool // the worker is connected by a stream, so its node notices when it disconnects
	ClaimKey  string
	Entropy   uint64 // from which the tokens' nonces are derived
}

// Claimed is a claimed task as its worker receives it.
type Claimed struct {
	*schema.Envelope
	Exec        *schema.Exec
	Token       task.Token
	LastAttempt int
	Timeout     time.Duration // of this run; 0: none
	Checkpoint  []byte
}

// Weight returns roughly how many bytes the task takes in the answer to a claim.
func (t *Claimed) Weight() int { return t.Envelope.Weight() + len(t.Checkpoint) }

// runGrace is how long a worker has, after a run's timeout, to report that it timed out.
const runGrace = 10 * time.Second

// ClaimTasks claims up to Max tasks; after the first, only tasks that fit into MaxBytes. It returns none if nothing may
// run. A repeat with the same claim key changes nothing and returns those claims of the first call that still hold.
func ClaimTasks(r *Round, c *ClaimRequest) (got []Claimed, repeat bool) {
	if c.ClaimKey != "" {
		if again, ok := c.reclaim(r); ok {
			return again, true
		}
	}
	p := r.claiming(c)
	p.claim()
	if len(p.got) > 1 {
		p.warmBehind()
	}
	if c.ClaimKey != "" && len(p.got) > 0 {
		p.makeRepeatable()
	}
	return p.got, false
}

// claiming is a claim in progress. It chooses the queue of each next task.
type claiming struct {
	r    *Round
	c    *ClaimRequest
	got  []Claimed
	room int // bytes left for the next task, unless it is the first

	credit lanes.Credit // of the weighted queues, owned by the leader; nil: strict order
	before []int        // the credit before the last pick
}

func (r *Round) claiming(c *ClaimRequest) *claiming {
	p := &claiming{r: r, c: c, room: c.MaxBytes}
	if c.Weighted {
		p.credit = r.l.shares.Of(c.Namespace, len(c.Queues), func(i int) (string, int) { return c.Queues[i].Queue, c.Queues[i].Weight },
			c.Types)
		p.before = make([]int, len(p.credit))
	}
	return p
}

// claim takes tasks until there are enough, nothing may run, or the next does not fit.
func (p *claiming) claim() {
	for len(p.got) < p.c.Max {
		q := p.pick()
		if q == nil {
			return
		}
		t, expired := p.from(q)
		if expired {
			p.undo()
			continue
		}
		if t.Envelope == nil {
			p.undo()
			return
		}
		p.add(t)
		if p.c.Runs && t.Exec.Order != 0 && len(p.got) < p.c.Max {
			p.claimRun(q, t.Exec)
		}
	}
}

func (p *claiming) add(t Claimed) {
	p.room -= t.Weight()
	p.got = append(p.got, t)
}

// fits reports whether a task fits into the answer. The first always does.
func (p *claiming) fits(e *schema.Envelope, checkpoint []byte) bool {
	return len(p.got) == 0 || e.Weight()+len(checkpoint) <= p.room
}

// from claims the next task of a queue, if it fits. A task that should have been started by now is discarded instead:
// its deadline has not had its turn, because many are due, or no leader served for a while.
func (p *claiming) from(q *Queue) (t Claimed, expired bool) {
	r, c := p.r, p.c
	priority, undo := q.nextPriority(c.Types)
	lane, next := q.lanes.Next(&r.lanes, priority, c.Types)
	if c.Max > 1 && !r.l.hot.Knows(next.ID) {
		r.l.hot.Warm(r.tx, q.ns, q.lanes.Soon(priority))
	}
	from, e, checkpoint, damage := r.rowsOf(q, next.ID)
	if damage == nil && !isAt(from, q.name, lane, next.Seq) {
		damage = fmt.Errorf("it is %s, and not in the lane that names it", from.State)
	}
	if damage != nil {
		schema.DamagedRow(schema.ReadyKey(q.ns, q.name, lane, next.Seq), fmt.Errorf("task %s: %w", next.ID, damage))
	}
	if from.Expired(r.now) {
		undo()
		q.in(r).discardExpired(next.ID, from)
		return t, true
	}
	if !p.fits(e, checkpoint) {
		undo()
		return t, false
	}
	return r.claimed(q, e, c.take(r, q, e, from), checkpoint), false
}

// rowsOf reads the rows that the claim of a task needs; of a task that has expired, only its state. The error says what
// can't be understood.
func (r *Round) rowsOf(q *Queue, id task.ID) (x *schema.Exec, e *schema.Envelope, checkpoint []byte, damage error) {
	if d := schema.Catch(func() {
		if x = r.execOf(q.ns, id); x.Expired(r.now) {
			return
		}
		e, checkpoint = r.Envelope(q.ns, id), r.Checkpoint(q.ns, id, x)
	}); d != nil {
		damage = d.Err
	}
	return x, e, checkpoint, damage
}

// isAt reports whether a task is ready at a place in a lane.
func isAt(x *schema.Exec, queue string, lane schema.LaneName, seq uint64) bool {
	return x.State == task.Ready && !x.Parked() && x.Seq == seq && x.Queue == queue && x.Lane() == lane
}

// nextPriority chooses among the priorities that have a task of the types. There must be at least one. Undo reverts the choice.
func (q *Queue) nextPriority(types []string) (next task.Priority, undo func()) {
	s := &q.config.Settings
	if !s.Weighted() {
		return task.Priorities[slices.IndexFunc(task.Priorities[:], func(p task.Priority) bool { return q.lanes.Has(p, types) })], func() {}
	}
	credit := q.credit.Of(types, len(task.Priorities))
	before := [3]int(credit)
	return task.Priorities[credit.Next(func(i int) int {
		if q.lanes.Has(task.Priorities[i], types) {
			return s.Weights[i]
		}
		return 0
	})], func() { copy(credit, before[:]) }
}

// take moves a task to Claimed, held by the worker.
func (c *ClaimRequest) take(r *Round, q *Queue, e *schema.Envelope, from *schema.Exec) *schema.Exec {
	to := *from
	step := Change{r: r, ns: q.ns, id: e.ID, q: q, From: from, To: &to}
	to.State = task.Claimed
	to.Fence = task.NextFence(to.Fence, r.l.term.Epoch)
	lease := c.Lease
	if lease == 0 {
		lease = q.config.Settings.Lease
	}
	timeout := q.timeoutOf(e)
	run := task.MaxRun
	if timeout > 0 {
		run = timeout + runGrace
	}
	until := r.now.Add(run)
	to.Claim = schema.Claim{
		Nonce:  task.Mix(c.Entropy ^ task.Mix(to.Fence) ^ foldID(e.ID)),
		Worker: c.Worker, At: r.now, Lease: lease,
		Until: min(r.now.Add(lease), until), RunUntil: until, Yields: c.Yields && to.Order != 0,
	}
	to.Progress, to.ProgressText = 0, ""
	step.Move()
	return &to
}

// claimed returns a claimed task as its worker receives it.
func (r *Round) claimed(q *Queue, e *schema.Envelope, x *schema.Exec, checkpoint []byte) Claimed {
	return Claimed{Envelope: e, Exec: x, Token: r.l.token(x), LastAttempt: q.LastAttempt(x), Timeout: q.timeoutOf(e),
		Checkpoint: checkpoint}
}

func (l *Leader) token(x *schema.Exec) task.Token {
	return task.Token{Epoch: l.term.Epoch, Fence: x.Fence, Nonce: x.Claim.Nonce}
}

func foldID(id task.ID) (bits uint64) {
	for _, b := range id {
		bits = bits<<7 ^ bits>>57 ^ uint64(b)
	}
	return bits
}
