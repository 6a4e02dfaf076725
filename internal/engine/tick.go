package engine

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/unique"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// tickLimit bounds the deadlines of one round, so that 100,000 tasks due at once do not hold up other calls.
const tickLimit = 1000

// BirthLimit bounds the tasks that schedules make in one round, for the same reason: a new task costs more than one that becomes
// ready.
const BirthLimit = 25

// LeaderGrace is how long a lease lasts at least after a change of leader, so that holders can extend or end what they
// could not while nobody served.
const LeaderGrace = 15 * time.Second

// clockDoubt is how far the time of a new leader may lie ahead of the last one. When it is more, the clock may be wrong, and what
// retention deletes can't be had back: it deletes nothing for as long.
const clockDoubt = time.Hour

// Doubted is when retention begins to delete, if the clock is in doubt.
func (o LeaderTerm) Doubted() (until store.Time, doubted bool) {
	return o.Began.Add(clockDoubt), o.Before != 0 && o.Began > o.Before.Add(clockDoubt)
}

// timeline is where the leader stands in a table of deadlines.
type timeline struct {
	next   store.Time // no deadline lies before this
	passed []byte     // nor before this key
}

// NextDeadline is a time before which Tick has nothing to do.
func (l *Leader) NextDeadline() store.Time {
	if len(l.reading) > 0 {
		return 0
	}
	return l.FirstDeadline()
}

// FirstDeadline is a time before which no deadline lies.
func (l *Leader) FirstDeadline() store.Time { return min(l.timelines[0].next, l.timelines[1].next) }

// Tick lets time pass: it does what is due, up to a bound, and reads more of the lanes that a new leader has not read yet. Afterwards
// NextDeadline says when to call it again.
func Tick(r *Round) {
	r.readOn()
	if r.l.FirstDeadline() > r.now {
		return
	}
	due, lines, whole := r.readDue()
	for i, d := range due {
		if r.born >= BirthLimit {
			due, whole = due[:i], false
			break
		}
		r.tx.Delete(schema.DeadlineKey(d.At, d.Kind, d.Namespace, d.Rest))
		r.pass(d)
	}
	for _, line := range lines {
		switch t := &r.l.timelines[line]; {
		case whole:
			t.next = min(t.next, lookAhead(r.tx, line, r.now+1))
		case len(due) > 0:
			t.goOn(line, due[len(due)-1])
		}
	}
}

// readDue reads what is due, up to a bound, in the order of time, and says of which timelines, and whether that is all of it. Those
// timelines know of no deadline any more: the caller says where they go on.
func (r *Round) readDue() (due []schema.Deadline, lines []int, whole bool) {
	var end *schema.Deadline // up to which all timelines were read
	for line := range schema.Timelines {
		t := &r.l.timelines[line]
		if t.next > r.now {
			continue
		}
		some, all := r.readDueOf(line, t)
		if last := len(some) - 1; !all && (end == nil || some[last].Compare(*end) < 0) {
			end = &some[last]
		}
		due, lines = append(due, some...), append(lines, line)
		*t = timeline{next: math.MaxInt64}
	}
	if len(lines) > 1 {
		slices.SortFunc(due, schema.Deadline.Compare)
		if end != nil {
			due = slices.DeleteFunc(due, func(d schema.Deadline) bool { return d.Compare(*end) > 0 })
		}
	}
	whole = end == nil && len(due) <= tickLimit
	return due[:min(len(due), tickLimit)], lines, whole
}

// readDueOf is readDue of one timeline.
func (r *Round) readDueOf(line int, t *timeline) (due []schema.Deadline, all bool) {
	lo := schema.TimelineKey(line, t.next)
	if bytes.Compare(t.passed, lo) > 0 {
		lo = t.passed
	}
	births := 0
	r.tx.Scan(lo, schema.TimelineKey(line, r.now+1), func(k, _ []byte) bool {
		d, ok := schema.ParseDeadline(k)
		if !ok {
			schema.Must(schema.ErrDeadline(k))
		}
		due = append(due, d)
		if d.Kind == schema.OnTick {
			births++
		}
		return len(due) < tickLimit && births < BirthLimit
	})
	return due, len(due) < tickLimit && births < BirthLimit
}

// goOn lets the next round begin behind the last deadline of this one: before it there are only tombstones now, and what was set
// meanwhile.
func (t *timeline) goOn(line int, last schema.Deadline) {
	if t.next > last.At {
		key := append(schema.DeadlineKey(last.At, last.Kind, last.Namespace, last.Rest), 0)
		key[0] = schema.Timelines[line]
		t.next, t.passed = last.At, key
	}
}

// lookAhead finds a time before which no deadline of a timeline lies.
//
// Simply taking the first row behind now would walk over the tombstones of every lease that was given up before its
// end, a second's worth for each second of the lease. So it looks into windows that grow while they cost little.
func lookAhead(tx *store.Tx, line int, from store.Time) store.Time {
	const (
		firstWindow = 100 * time.Millisecond
		costly      = 2000 // rows and tombstones passed
	)
	for window := firstWindow; ; window *= 4 {
		to := from.Add(window)
		if window > 10*365*24*time.Hour {
			to = math.MaxInt64
		}
		key, cost, ok := tx.First(schema.TimelineKey(line, from), schema.TimelineKey(line, to))
		switch {
		case ok:
			d, valid := schema.ParseDeadline(key)
			if !valid {
				schema.Must(schema.ErrDeadline(key))
			}
			return d.At
		case cost > costly || to == math.MaxInt64:
			return to
		}
		from = to
	}
}

// pass does what one deadline is for, if what it was set for still waits for it.
func (r *Round) pass(d schema.Deadline) {
	switch d.Kind {
	case schema.OnKey, schema.OnRequest, schema.OnClaimKey:
		r.endKey(d)
	case schema.OnTokens:
		r.tokensCame(d)
	case schema.OnSweep:
		r.sweep(d)
	case schema.OnBreaker:
		r.breakerDue(d)
	default:
		if due := r.l.points.due[d.Kind]; due != nil {
			due(r, d)
			return
		}
		r.passTask(d)
	}
}

// passTask does what a task's deadline is for, if it is still the task's.
func (r *Round) passTask(d schema.Deadline) {
	id := d.ID()
	x, err := r.Exec(d.Namespace, id)
	if err != nil {
		return
	}
	if d.Kind == schema.OnExpiry {
		if x.AwaitsStart() && x.ExpiresAt == d.At {
			to := *x
			r.Finish(d.Namespace, id, r.QueueOf(d.Namespace, x), x, &to, task.Discarded, task.ReasonExpired)
		}
		return
	}
	if at, kind := x.Deadline(); kind != d.Kind || at != d.At {
		return
	}
	switch d.Kind {
	case schema.OnDue:
		to := *x
		r.MakeReady(&to)
		r.Move(d.Namespace, id, r.QueueOf(d.Namespace, x), x, &to)
	case schema.OnLease:
		r.leaseEnds(d.Namespace, id, x)
	case schema.OnForget:
		if until, doubted := r.l.term.Doubted(); doubted && r.now < until {
			r.keepUntil(d.Namespace, id, x, until)
			return
		}
		r.forgetInTime(d.Namespace, id, x)
	}
}

// leaseEnds takes a claim back from a worker that vanished.
func (r *Round) leaseEnds(ns string, id task.ID, x *schema.Exec) {
	q := r.QueueOf(ns, x)
	to := *x
	if grace := r.l.term.Began.Add(min(x.Claim.Lease, LeaderGrace)); r.now < grace {
		to.Claim.Until = grace
		to.Claim.Orphaned = x.Claim.Until <= r.l.term.Began
		r.Move(ns, id, q, x, &to)
		return
	}
	outcome := task.OutcomeLeaseLost
	switch {
	case x.Claim.Orphaned:
		outcome = task.OutcomeLeaderless
		r.backInPlace(ns, id, q, x, &to)
	case x.Claim.Until >= x.Claim.RunUntil:
		outcome = task.OutcomeTimedOut
		r.retry(Hold{Namespace: ns, ID: id}, q, x, &to, FailRequest{Failure: timedOut})
	default:
		to.Crashes++
		if to.Used() >= q.maxAttempts(&to) {
			r.bury(ns, id, q, x, &to, task.ReasonLeaseLost, vanished)
		} else {
			r.backInPlace(ns, id, q, x, &to)
		}
	}
	r.endAttempt(ns, id, x, &to, outcome, failureOf(outcome))
	r.lose(id, x, task.StaleExpired)
}

var (
	timedOut = schema.Failure{Type: "timeout", Message: "the run exceeded its timeout"}
	vanished = schema.Failure{Type: "lease_lost", Message: "the worker vanished: its lease ended"}
)

func failureOf(o task.Outcome) schema.Failure {
	switch o {
	case task.OutcomeTimedOut:
		return timedOut
	case task.OutcomeLeaseLost:
		return vanished
	}
	return schema.Failure{}
}

// backInPlace makes a claimed task ready where it was, unless a newer one has its place.
func (r *Round) backInPlace(ns string, id task.ID, q *Queue, from, to *schema.Exec) {
	to.State, to.ReadyAt = task.Ready, r.now
	r.waitAgain(ns, id, q, from, to)
}

// keepUntil lets the retention of an ended task last longer.
func (r *Round) keepUntil(ns string, id task.ID, x *schema.Exec, until store.Time) {
	to := *x
	to.KeptUntil = until
	r.SetExec(ns, id, &to)
	r.l.hot.Drop(id)
	r.SetDeadline(until, schema.OnForget, ns, id[:])
}

// forgetInTime removes a task whose retention is over. A dead letter goes through the archive first.
func (r *Round) forgetInTime(ns string, id task.ID, x *schema.Exec) {
	if x.State == task.Dead || x.State == task.Poisoned {
		r.tx.Set(schema.ArchiveKey(ns, x.EndedAt, id), nil)
		r.ToArchive = true
		return
	}
	r.forget(ns, id, x)
}

// forget deletes every row of an ended task.
func (r *Round) forget(ns string, id task.ID, x *schema.Exec) {
	if x.State == task.Dead || x.State == task.Poisoned {
		q := r.QueueOf(ns, x)
		r.leave(ns, id, q, x)
	}
	unique.Forget(r, ns, x)
	if x.Keyed {
		r.noteEnd(ns, id, x)
	}
	if until := x.CreatedAt.Add(DedupWindow); until > r.now {
		r.noteForgotten(ns, id, x, until)
	}
	r.l.hot.Drop(id)
	r.tx.Delete(schema.IDKey(ns, schema.TableEnvelope, id))
	r.tx.Delete(schema.IDKey(ns, schema.TableExec, id))
	r.tx.Delete(schema.ListedKey(ns, x.Queue, id))
	if x.State == task.Succeeded {
		r.tx.Delete(schema.IDKey(ns, schema.TableResult, id))
	}
	if x.Checkpointed {
		r.tx.Delete(schema.IDKey(ns, schema.TableCheckpoint, id))
	}
	if x.Links != nil && x.Links.Followed {
		r.tx.Delete(schema.IDKey(ns, schema.TableFollow, id))
	}
	if x.Fence > 1 || x.State != task.Succeeded && x.Fence == 1 {
		prefix := schema.IDKey(ns, schema.TableAttempt, id)
		var keys [][]byte
		r.tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool {
			keys = append(keys, append([]byte(nil), k...))
			return true
		})
		for _, k := range keys {
			r.tx.Delete(k)
		}
	}
}

// noteEnd lets the idempotency key of a task that goes say how it ended, if the key lives longer.
func (r *Round) noteEnd(ns string, id task.ID, x *schema.Exec) {
	e := schema.ReadEnvelope(r.tx, ns, id)
	key := schema.IdempotencyKey(ns, e.Queue, e.IdempotencyKey)
	if k, ok := r.keyRow(key); ok && k.ID == id && k.Until > r.now {
		k.Ended, k.Created = x.State, x.CreatedAt
		r.tx.Set(key, k.Encode())
	}
}

// noteForgotten leaves a row in place of a task that goes while its request may be repeated.
func (r *Round) noteForgotten(ns string, id task.ID, x *schema.Exec, until store.Time) {
	r.setKey(ns, schema.OnRequest, schema.ForgottenKey(ns, id), schema.KeyRow{ID: id, Fingerprint: r.Envelope(ns, id).Fingerprint, Until: until, Ended: x.State, Created: x.CreatedAt})
}

// endKey removes a key row whose time is over. One that was set anew has a later deadline of its own.
func (r *Round) endKey(d schema.Deadline) {
	tab := map[schema.DeadlineKind]byte{schema.OnKey: schema.TableKey, schema.OnRequest: schema.TableRequest, schema.OnClaimKey: schema.TableClaimKey}[d.Kind]
	key := append(schema.Table(d.Namespace, tab), d.Rest...)
	row, ok := r.tx.Get(key)
	if !ok {
		return
	}
	var until store.Time
	if d.Kind == schema.OnClaimKey {
		c, err := schema.DecodeClaimKey(row)
		schema.Must(err)
		until = c.Until
	} else {
		k, err := schema.DecodeKey(row)
		schema.Must(err)
		until = k.Until
	}
	if until <= r.now {
		r.tx.Delete(key)
	}
}
