package engine

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// tickLimit bounds the deadlines of one round, so that 100,000 tasks due at once do not hold up other calls.
const tickLimit = 1000

// birthLimit bounds the tasks that schedules make in one round, for the same reason: a new task costs more than one that becomes
// ready.
const birthLimit = 25

// leaderGrace is how long a lease lasts at least after a change of leader, so that holders can extend or end what they
// could not while nobody served.
const leaderGrace = 15 * time.Second

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
	return l.nextDeadline()
}

// nextDeadline is a time before which no deadline lies.
func (l *Leader) nextDeadline() store.Time { return min(l.timelines[0].next, l.timelines[1].next) }

// Tick lets time pass: it does what is due, up to a bound, and reads more of the lanes that a new leader has not read yet. Afterwards
// NextDeadline says when to call it again.
func Tick(r *Round) {
	r.readOn()
	if r.l.nextDeadline() > r.now {
		return
	}
	due, lines, whole := r.readDue()
	for i, d := range due {
		if r.born >= birthLimit {
			due, whole = due[:i], false
			break
		}
		r.tx.Delete(deadlineKey(d.at, d.kind, d.ns, d.rest))
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
func (r *Round) readDue() (due []deadline, lines []int, whole bool) {
	var end *deadline // up to which all timelines were read
	for line := range timelines {
		t := &r.l.timelines[line]
		if t.next > r.now {
			continue
		}
		some, all := r.readDueOf(line, t)
		if last := len(some) - 1; !all && (end == nil || some[last].compare(*end) < 0) {
			end = &some[last]
		}
		due, lines = append(due, some...), append(lines, line)
		*t = timeline{next: math.MaxInt64}
	}
	if len(lines) > 1 {
		slices.SortFunc(due, deadline.compare)
		if end != nil {
			due = slices.DeleteFunc(due, func(d deadline) bool { return d.compare(*end) > 0 })
		}
	}
	whole = end == nil && len(due) <= tickLimit
	return due[:min(len(due), tickLimit)], lines, whole
}

// readDueOf is readDue of one timeline.
func (r *Round) readDueOf(line int, t *timeline) (due []deadline, all bool) {
	lo := timelineKey(line, t.next)
	if bytes.Compare(t.passed, lo) > 0 {
		lo = t.passed
	}
	births := 0
	r.tx.Scan(lo, timelineKey(line, r.now+1), func(k, _ []byte) bool {
		d, ok := parseDeadline(k)
		if !ok {
			corrupt(errDeadline(k))
		}
		due = append(due, d)
		if d.kind == onTick {
			births++
		}
		return len(due) < tickLimit && births < birthLimit
	})
	return due, len(due) < tickLimit && births < birthLimit
}

// goOn lets the next round begin behind the last deadline of this one: before it there are only tombstones now, and what was set
// meanwhile.
func (t *timeline) goOn(line int, last deadline) {
	if t.next > last.at {
		key := append(deadlineKey(last.at, last.kind, last.ns, last.rest), 0)
		key[0] = timelines[line]
		t.next, t.passed = last.at, key
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
		key, cost, ok := tx.First(timelineKey(line, from), timelineKey(line, to))
		switch {
		case ok:
			d, valid := parseDeadline(key)
			if !valid {
				corrupt(errDeadline(key))
			}
			return d.at
		case cost > costly || to == math.MaxInt64:
			return to
		}
		from = to
	}
}

// pass does what one deadline is for, if what it was set for still waits for it.
func (r *Round) pass(d deadline) {
	switch d.kind {
	case onKey, onRequest, onClaimKey:
		r.endKey(d)
	case onTokens:
		r.tokensCame(d)
	case onSweep:
		r.sweep(d)
	case onTick:
		r.tick(d)
	case onGone:
		r.endGone(d)
	case onOnce:
		r.onceEnds(d)
	case onBreaker:
		r.holdEnds(d)
	case onAudit:
		r.auditEnds()
	case onGroup:
		r.groupDue(d)
	case onNews:
		r.newsDue(d)
	case onOperation:
		r.operationEnds(d)
	case onStep:
		r.stepEnds(d)
	default:
		r.passTask(d)
	}
}

// passTask does what a task's deadline is for, if it is still the task's.
func (r *Round) passTask(d deadline) {
	id := d.id()
	x, err := r.exec(d.ns, id)
	if err != nil {
		return
	}
	if d.kind == onExpiry {
		if x.awaitsStart() && x.ExpiresAt == d.at {
			to := *x
			r.finish(d.ns, id, r.queueOf(d.ns, x), x, &to, task.Discarded, task.ReasonExpired)
		}
		return
	}
	if at, kind := x.deadline(); kind != d.kind || at != d.at {
		return
	}
	switch d.kind {
	case onDue:
		to := *x
		r.makeReady(&to)
		r.move(d.ns, id, r.queueOf(d.ns, x), x, &to)
	case onLease:
		r.leaseEnds(d.ns, id, x)
	case onForget:
		if until, doubted := r.l.term.Doubted(); doubted && r.now < until {
			r.keepUntil(d.ns, id, x, until)
			return
		}
		r.forgetInTime(d.ns, id, x)
	}
}

// leaseEnds takes a claim back from a worker that vanished.
func (r *Round) leaseEnds(ns string, id task.ID, x *Exec) {
	q := r.queueOf(ns, x)
	to := *x
	if grace := r.l.term.Began.Add(min(x.Claim.Lease, leaderGrace)); r.now < grace {
		to.Claim.Until = grace
		to.Claim.Orphaned = x.Claim.Until <= r.l.term.Began
		r.move(ns, id, q, x, &to)
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
		if to.used() >= q.maxAttempts(&to) {
			r.bury(ns, id, q, x, &to, task.ReasonLeaseLost, vanished)
		} else {
			r.backInPlace(ns, id, q, x, &to)
		}
	}
	r.endAttempt(ns, id, x, &to, outcome, failureOf(outcome))
	r.lose(id, x, task.StaleExpired)
}

var (
	timedOut = Failure{Type: "timeout", Message: "the run exceeded its timeout"}
	vanished = Failure{Type: "lease_lost", Message: "the worker vanished: its lease ended"}
)

func failureOf(o task.Outcome) Failure {
	switch o {
	case task.OutcomeTimedOut:
		return timedOut
	case task.OutcomeLeaseLost:
		return vanished
	}
	return Failure{}
}

// backInPlace makes a claimed task ready where it was, unless a newer one has its place.
func (r *Round) backInPlace(ns string, id task.ID, q *queue, from, to *Exec) {
	to.State, to.ReadyAt = task.Ready, r.now
	r.waitAgain(ns, id, q, from, to)
}

// keepUntil lets the retention of an ended task last longer.
func (r *Round) keepUntil(ns string, id task.ID, x *Exec, until store.Time) {
	to := *x
	to.KeptUntil = until
	r.setExec(ns, id, &to)
	r.l.hot.drop(id)
	r.remind(until, onForget, ns, id[:])
}

// forgetInTime removes a task whose retention is over. A dead letter goes through the archive first.
func (r *Round) forgetInTime(ns string, id task.ID, x *Exec) {
	if x.State == task.Dead || x.State == task.Poisoned {
		r.tx.Set(archiveKey(ns, x.EndedAt, id), nil)
		r.ToArchive = true
		return
	}
	r.forget(ns, id, x)
}

// forget deletes every row of an ended task.
func (r *Round) forget(ns string, id task.ID, x *Exec) {
	if x.State == task.Dead || x.State == task.Poisoned {
		q := r.queueOf(ns, x)
		r.leave(ns, id, q, x)
	}
	if x.Role == Holder {
		r.tx.Delete(uniqueKey(ns, x.Queue, x.Unique.Key))
	}
	if x.Keyed {
		r.noteEnd(ns, id, x)
	}
	if until := x.CreatedAt.Add(dedupWindow); until > r.now {
		r.noteForgotten(ns, id, x, until)
	}
	r.l.hot.drop(id)
	r.tx.Delete(idKey(ns, tabEnvelope, id))
	r.tx.Delete(idKey(ns, tabExec, id))
	r.tx.Delete(listedKey(ns, x.Queue, id))
	if x.State == task.Succeeded {
		r.tx.Delete(idKey(ns, tabResult, id))
	}
	if x.Checkpointed {
		r.tx.Delete(idKey(ns, tabCheckpoint, id))
	}
	if x.Ties != nil && x.Ties.Followed {
		r.tx.Delete(idKey(ns, tabFollow, id))
	}
	if x.Fence > 1 || x.State != task.Succeeded && x.Fence == 1 {
		prefix := idKey(ns, tabAttempt, id)
		var keys [][]byte
		r.tx.Scan(prefix, after(prefix), func(k, _ []byte) bool {
			keys = append(keys, append([]byte(nil), k...))
			return true
		})
		for _, k := range keys {
			r.tx.Delete(k)
		}
	}
}

// noteEnd lets the idempotency key of a task that goes say how it ended, if the key lives longer.
func (r *Round) noteEnd(ns string, id task.ID, x *Exec) {
	e := readEnvelope(r.tx, ns, id)
	key := idempotencyKey(ns, e.Queue, e.IdempotencyKey)
	if k, ok := r.keyRow(key); ok && k.id == id && k.until > r.now {
		k.ended, k.created = x.State, x.CreatedAt
		r.tx.Set(key, k.encode())
	}
}

// noteForgotten leaves a row in place of a task that goes while its request may be repeated.
func (r *Round) noteForgotten(ns string, id task.ID, x *Exec, until store.Time) {
	r.setKey(ns, onRequest, forgottenKey(ns, id), keyRow{id: id, fingerprint: r.envelope(ns, id).Fingerprint, until: until, ended: x.State, created: x.CreatedAt})
}

// endKey removes a key row whose time is over. One that was set anew has a later deadline of its own.
func (r *Round) endKey(d deadline) {
	tab := map[deadlineKind]byte{onKey: tabKey, onRequest: tabRequest, onClaimKey: tabClaimKey}[d.kind]
	key := append(table(d.ns, tab), d.rest...)
	row, ok := r.tx.Get(key)
	if !ok {
		return
	}
	var until store.Time
	if d.kind == onClaimKey {
		c, err := decodeClaimKey(row)
		corrupt(err)
		until = c.until
	} else {
		k, err := decodeKey(row)
		corrupt(err)
		until = k.until
	}
	if until <= r.now {
		r.tx.Delete(key)
	}
}
