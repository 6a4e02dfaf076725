package engine

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Share is a queue of a claim, and its weight if the claim is weighted.
type Share struct {
	Queue  string
	Weight int
}

// ClaimRequest says what a worker takes. The caller has checked it.
type ClaimRequest struct {
	Namespace string
	Queues    []Share
	Weighted  bool // by the weights, exactly; else the first queue that has a task
	Types     []string
	Max       int
	Runs      bool          // of one key of an ordered queue, several tasks may be given; else one
	MaxBytes  int           // of all that is given, as Claimed.Weight counts; the first task is given whatever its weight
	Lease     time.Duration // 0: the queue's
	Worker    string
	Stream    bool // the worker is connected by a stream, so its node knows when it goes
	ClaimKey  string
	Entropy   uint64 // from which the tokens' nonces are derived
}

// Claimed is a task as a worker gets it.
type Claimed struct {
	*schema.Envelope
	Exec        *schema.Exec
	Token       task.Token
	LastAttempt int
	Timeout     time.Duration // of this run; 0: none
	Checkpoint  []byte
}

// Weight is about how many bytes the task takes in the answer to a claim.
func (t *Claimed) Weight() int { return t.Envelope.Weight() + len(t.Checkpoint) }

// runGrace is how long a worker has, after a run's timeout, to say that it timed out.
const runGrace = 10 * time.Second

// ClaimTasks takes up to Max tasks, and after the first none that would not fit into MaxBytes; none if nothing may run. A
// repeat with the same claim key changes nothing and gets
// the claims of the first call that still hold.
func ClaimTasks(r *Round, c *ClaimRequest) (got []Claimed, repeat bool) {
	if c.ClaimKey != "" {
		if again, ok := r.reclaim(c); ok {
			return again, true
		}
	}
	size := 0
	p := r.picker(c)
	for len(got) < c.Max {
		q := p.pick()
		if q == nil {
			break
		}
		t, ok := r.claimFrom(q, c, c.MaxBytes-size, len(got) > 0)
		if !ok {
			p.undo()
			break
		}
		size += t.Weight()
		got = append(got, t)
		if c.Runs && t.Exec.Order != 0 && len(got) < c.Max {
			for _, next := range r.claimRun(q, c, t.Exec, c.Max-len(got), c.MaxBytes-size) {
				size += next.Weight()
				got = append(got, next)
			}
		}
	}
	if len(got) > 1 {
		r.warmSeconds(c.Namespace, got)
	}
	if c.ClaimKey != "" && len(got) > 0 {
		r.rememberClaims(c, got)
	}
	return got, false
}

// Runnable says whether a claim would get something.
func Runnable(r *Round, c *ClaimRequest) bool {
	p := picker{r: r, c: c}
	for _, s := range c.Queues {
		if p.runnable(s.Queue) != nil {
			return true
		}
	}
	return false
}

// picker chooses the queue of each next task of a claim.
type picker struct {
	r      *Round
	c      *ClaimRequest
	credit []int // of the weighted queues, kept by the leader; nil: strict order
	before []int // the credit before the last pick
}

func (r *Round) picker(c *ClaimRequest) *picker {
	p := &picker{r: r, c: c}
	if c.Weighted {
		p.credit = r.l.sharesOf(c)
		p.before = make([]int, len(p.credit))
	}
	return p
}

// pick returns nil when no queue has a task.
func (p *picker) pick() *Queue {
	if p.credit == nil {
		for _, s := range p.c.Queues {
			if q := p.runnable(s.Queue); q != nil {
				return q
			}
		}
		return nil
	}
	copy(p.before, p.credit)
	at := smooth(p.credit, func(i int) int {
		if p.runnable(p.c.Queues[i].Queue) == nil {
			return 0
		}
		return p.c.Queues[i].Weight
	})
	if at < 0 {
		return nil
	}
	return p.runnable(p.c.Queues[at].Queue)
}

// undo takes the last pick back: its task did not fit.
func (p *picker) undo() { copy(p.credit, p.before) }

func (p *picker) runnable(name string) *Queue {
	q := p.r.Queue(p.c.Namespace, name)
	switch {
	case q == nil:
	case q.runnable(p.r.now, p.c.Types) || p.r.readForClaim(q, p.c.Types):
		return q
	case q.space.Full():
		q.space.Block(&q.waits)
	}
	return nil
}

// runnable says whether the queue has a task of one of the types that may run now.
func (q *Queue) runnable(now store.Time, types []string) bool {
	if !q.mayRun(now) {
		return false
	}
	for i, p := range task.Priorities {
		switch {
		case q.lanes.Has(p, types):
			return true
		case q.lanes.MayFind(i, types) && !q.config.Settings.Weighted():
			return false // before a lower priority, this one is read on
		}
	}
	return false
}

// maxShares bounds how many weighted sets of queues are remembered. Beyond it all are forgotten, which costs each less
// than one turn.
const maxShares = 10_000

// sharesOf is the credit of a weighted set of queues: one for each distinct set, whoever claims.
func (l *Leader) sharesOf(c *ClaimRequest) []int {
	var name strings.Builder
	name.WriteString(c.Namespace)
	for _, s := range c.Queues {
		name.WriteByte(0)
		name.WriteString(s.Queue)
		name.WriteByte('=')
		name.WriteString(strconv.Itoa(s.Weight))
	}
	credit := l.shares[name.String()]
	if credit == nil {
		if len(l.shares) >= maxShares {
			clear(l.shares)
		}
		credit = make([]int, len(c.Queues))
		l.shares[name.String()] = credit
	}
	return credit
}

// smooth is one step of smooth weighted round robin: every candidate gains its weight, the richest is chosen and pays
// the sum. A candidate of weight 0 has nothing to give: it is passed over and saves no credit. -1 if all are.
func smooth(credit []int, weight func(i int) int) int {
	best, sum := -1, 0
	for i := range credit {
		w := weight(i)
		if w == 0 {
			credit[i] = 0
			continue
		}
		credit[i] += w
		sum += w
		if best < 0 || credit[i] > credit[best] {
			best = i
		}
	}
	if best >= 0 {
		credit[best] -= sum
	}
	return best
}

// claimFrom takes the next task of a queue, or none if it would not fit into room bytes and others were taken already.
func (r *Round) claimFrom(q *Queue, c *ClaimRequest, room int, bounded bool) (t Claimed, ok bool) {
	credit := q.credit
	p := q.nextPriority(c.Types)
	id := q.lanes.Next(&r.lanes, p, c.Types).ID
	if c.Max > 1 && !r.l.hot.Knows(id) {
		r.l.hot.Warm(r.tx, q.ns, q.lanes.Soon(p))
	}
	e := r.Envelope(q.ns, id)
	from, err := r.Exec(q.ns, id)
	schema.Must(err)
	checkpoint := r.Checkpoint(q.ns, id, from)
	if bounded && e.Weight()+len(checkpoint) > room {
		q.credit = credit
		return t, false
	}
	return r.claimed(q, e, r.claim(q, c, e, from), checkpoint), true
}

func (r *Round) Checkpoint(ns string, id task.ID, x *schema.Exec) (b []byte) {
	if x.Checkpointed {
		b, _ = r.tx.Get(schema.IDKey(ns, schema.TableCheckpoint, id))
	}
	return b
}

// nextPriority chooses among the priorities that have a task of the types. One must have.
func (q *Queue) nextPriority(types []string) task.Priority {
	s := q.config.Settings
	if s.Weighted() {
		return task.Priorities[smooth(q.credit[:], func(i int) int {
			if q.lanes.Has(task.Priorities[i], types) {
				return s.Weights[i]
			}
			return 0
		})]
	}
	return task.Priorities[slices.IndexFunc(task.Priorities[:], func(p task.Priority) bool { return q.lanes.Has(p, types) })]
}

// claim moves a task into a worker's hands.
func (r *Round) claim(q *Queue, c *ClaimRequest, e *schema.Envelope, from *schema.Exec) *schema.Exec {
	to := *from
	to.State = task.Claimed
	to.Fence++
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
		Nonce:  Mix(c.Entropy ^ Mix(to.Fence) ^ chanceBits(e.ID)),
		Worker: c.Worker, At: r.now, Lease: lease,
		Until: min(r.now.Add(lease), until), RunUntil: until,
	}
	to.Progress, to.ProgressText = 0, ""
	r.Move(q.ns, e.ID, q, from, &to)
	return &to
}

func (r *Round) claimed(q *Queue, e *schema.Envelope, x *schema.Exec, checkpoint []byte) Claimed {
	return Claimed{Envelope: e, Exec: x, Token: r.l.token(x), LastAttempt: q.LastAttempt(x), Timeout: q.timeoutOf(e), Checkpoint: checkpoint}
}

func (l *Leader) token(x *schema.Exec) task.Token {
	return task.Token{Epoch: l.term.Epoch, Fence: x.Fence, Nonce: x.Claim.Nonce}
}

// rememberClaims makes the claim repeatable until its shortest lease would have ended.
func (r *Round) rememberClaims(c *ClaimRequest, got []Claimed) {
	row := schema.ClaimKeyRow{Until: got[0].Exec.Claim.Until}
	for _, t := range got {
		row.Until = min(row.Until, t.Exec.Claim.Until)
		row.Claims = append(row.Claims, schema.ClaimRef{ID: t.ID, Fence: t.Exec.Fence})
	}
	key := schema.ClaimKeyKey(c.Namespace, c.ClaimKey)
	r.tx.Set(key, row.Encode())
	r.SetDeadline(row.Until, schema.OnClaimKey, c.Namespace, key[len(c.Namespace)+2:])
}

// reclaim answers a repeated claim with those of its claims that still hold. If none does, it is no repeat.
func (r *Round) reclaim(c *ClaimRequest) ([]Claimed, bool) {
	row, ok := r.tx.Get(schema.ClaimKeyKey(c.Namespace, c.ClaimKey))
	if !ok {
		return nil, false
	}
	k, err := schema.DecodeClaimKey(row)
	schema.Must(err)
	if k.Until <= r.now {
		return nil, false
	}
	again := make([]Claimed, 0, len(k.Claims))
	for _, ref := range k.Claims {
		x, err := r.Exec(c.Namespace, ref.ID)
		if err != nil || x.State != task.Claimed || x.Fence != ref.Fence {
			continue
		}
		e := r.Envelope(c.Namespace, ref.ID)
		q := r.Queue(c.Namespace, x.Queue)
		if !x.Claim.Repeated {
			to := *x
			to.Claim.Repeated = true
			r.Move(c.Namespace, ref.ID, q, x, &to)
			x = &to
		}
		again = append(again, r.claimed(q, e, x, r.Checkpoint(c.Namespace, ref.ID, x)))
	}
	return again, len(again) > 0
}

func chanceBits(id task.ID) (bits uint64) {
	for _, b := range id {
		bits = bits<<7 ^ bits>>57 ^ uint64(b)
	}
	return bits
}
