package engine

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/audit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A circuit breaker judges the attempts of one type in a queue, in the entry of the log that ends each. It is closed while most
// succeed. When too many fail, it opens: the type is held, as by a pause, until the hold is over. Then it is probing: it lets one
// task through, and looks how that ends, before the next. Enough successes close it; a failure opens it for longer.
//
// While it is not closed only probes count: what else runs was claimed before, and says what is known. A probe that ends without
// a verdict (see verdictOf) makes place for the next one.
//
// What is stored is a row for each type that was heard of lately or is not closed. Queues without a rule have none, and their
// tasks know nothing of all this.

// BreakerState is where a breaker is. The values are stored.
type BreakerState uint8

const (
	BreakerClosed BreakerState = iota
	BreakerOpen
	BreakerProbing
)

func (s BreakerState) String() string { return [...]string{"closed", "open", "probing"}[s] }

// breaker is the leader's memory of that of one type.
type breaker struct {
	typ       string
	state     BreakerState
	seen      window // the attempts that ended lately; empty unless it is closed
	lastError string // of the last failure that counted, up to maxErrorShort bytes
	dirty     bool

	// Of one that is not closed.
	since  store.Time // when it opened first
	until  store.Time // has a deadline: an open one probes, one that probes and has no probe is forgotten; 0: a probe runs
	opened int        // times, without closing in between
	passed int        // probes that succeeded since it opened last
	probe  task.ID    // the task that is let through; zero: the next one may be
	cause  tally      // what opened it first
	over   time.Duration
}

// breakers are those of a queue.
type breakers struct {
	byType map[string]*breaker
	open   map[string]*breaker // those that are not closed
}

const (
	// maxWatched bounds the types of a queue that have a breaker at a time. Others pass unjudged until some were idle for a window.
	maxWatched = 10_000
	// probeWait is how long a breaker waits for a task to probe with. If none is there then, the type is not used any more.
	probeWait = 24 * time.Hour
)

// tries says whether a task of the type may start, to see how it ends.
func (b *breaker) tries() bool { return b.state == BreakerProbing && b.probe == task.ID{} }

// verdict is what the end of an attempt says of its type.
type verdict uint8

const (
	noVerdict verdict = iota
	success
	failure
)

// verdictOf: a payload that can't be read, a release, a snooze, a discard and a cancel say nothing, and a lease that ended
// because no leader served is nobody's fault.
func verdictOf(o task.Outcome) verdict {
	switch o {
	case task.OutcomeSucceeded:
		return success
	case task.OutcomeFailed, task.OutcomeDead, task.OutcomeTimedOut, task.OutcomeLeaseLost:
		return failure
	}
	return noVerdict
}

// judge tells the breaker of a task's type how an attempt has ended. It comes after the move.
func (r *Round) judge(q *Queue, id task.ID, typ string, o task.Outcome, f schema.Failure) {
	if q.breakers == nil {
		return
	}
	rule, b := q.config.Settings.BreakerOf(typ), q.breakers.byType[typ]
	switch v := verdictOf(o); {
	case !rule.IsSet():
	case b != nil && b.probe == id && b.probe != task.ID{}:
		r.probed(q, b, rule, v, f)
	case v == noVerdict || b != nil && b.state != BreakerClosed:
	case b == nil && len(q.breakers.byType) >= maxWatched:
	default:
		if b == nil {
			b = &breaker{typ: typ}
			q.breakers.byType[typ] = b
		}
		b.seen.add(r.now, rule.Window, v == failure)
		if v == failure {
			b.lastError = task.Cut(f.Message, maxErrorShort)
		}
		r.touchBreaker(q, b)
		r.sweepAt(q, r.now.Add(sweepRest))
		r.mayOpen(q, b, rule)
	}
}

// mayOpen opens a closed breaker if the attempts of its window say so.
func (r *Round) mayOpen(q *Queue, b *breaker, rule task.Breaker) {
	t := b.seen.sum(r.now, rule.Window)
	if t.attempts < rule.MinAttempts || 100*t.failed < rule.FailureRate*t.attempts {
		return
	}
	b.cause, b.over, b.since, b.seen = t, rule.Window, r.now, window{}
	q.breakers.open[b.typ] = b
	r.openFor(q, b, rule)
}

// openFor holds the type for a time.
func (r *Round) openFor(q *Queue, b *breaker, rule task.Breaker) {
	b.state, b.passed = BreakerOpen, 0
	b.opened++
	r.setUntil(q, b, r.now.Add(rule.HoldAfter(b.opened)))
	r.holdType(q, b.typ)
	r.Breakers = append(r.Breakers, BreakerChange{Namespace: q.ns, Queue: q.name, BreakerInfo: b.info(rule)})
}

// holdEnds lets a probe through, or forgets a breaker for which there is none.
func (r *Round) holdEnds(d schema.Deadline) {
	name, typ, ok := bytes.Cut(d.Rest, []byte{0})
	if !ok {
		schema.Must(schema.ErrDeadline(d.Rest))
	}
	q := r.Queue(d.Namespace, string(name))
	if q == nil || q.breakers == nil {
		return
	}
	b := q.breakers.byType[string(typ)]
	if b == nil || b.until != d.At {
		return
	}
	b.until = 0
	if b.state == BreakerProbing && !q.lanes.mayHave(b.typ) {
		r.closeBreaker(q, b, ClosedUnused)
		return
	}
	b.state = BreakerProbing
	r.nextProbe(q, b)
}

// nextProbe makes place for a probe.
func (r *Round) nextProbe(q *Queue, b *breaker) {
	b.probe = task.ID{}
	r.setUntil(q, b, r.now.Add(probeWait))
	r.holdType(q, b.typ)
	r.wake(q)
}

// letThrough makes a task that is claimed the probe of its type, if its breaker waits for one.
func (r *Round) letThrough(q *Queue, id task.ID, typ string) {
	if b := q.breakers.open[typ]; b != nil && b.tries() {
		b.probe = id
		r.setUntil(q, b, 0)
		r.holdType(q, typ)
	}
}

// probed is for a probe that has ended.
func (r *Round) probed(q *Queue, b *breaker, rule task.Breaker, v verdict, f schema.Failure) {
	switch v {
	case failure:
		b.probe, b.lastError = task.ID{}, task.Cut(f.Message, maxErrorShort)
		r.openFor(q, b, rule)
		return
	case success:
		b.passed++
	}
	if b.passed >= rule.Probes {
		r.closeBreaker(q, b, ClosedByProbes)
	} else {
		r.nextProbe(q, b)
	}
}

// closeBreaker lets the type run. What is known of it begins anew.
func (r *Round) closeBreaker(q *Queue, b *breaker, by ClosedBy) {
	rule := q.config.Settings.BreakerOf(b.typ)
	r.Breakers = append(r.Breakers, BreakerChange{Namespace: q.ns, Queue: q.name, Closed: by, BreakerInfo: b.info(rule)})
	r.forgetBreaker(q, b)
	r.holdType(q, b.typ)
	r.wake(q)
}

func (r *Round) forgetBreaker(q *Queue, b *breaker) {
	r.setUntil(q, b, 0)
	delete(q.breakers.byType, b.typ)
	delete(q.breakers.open, b.typ)
}

// setUntil moves the deadline of a breaker; 0: it has none.
func (r *Round) setUntil(q *Queue, b *breaker, at store.Time) {
	if b.until != 0 {
		r.tx.Delete(schema.DeadlineKey(b.until, schema.OnBreaker, q.ns, schema.TypeRest(q.name, b.typ)))
	}
	if b.until = at; at != 0 {
		r.SetDeadline(at, schema.OnBreaker, q.ns, schema.TypeRest(q.name, b.typ))
	}
	r.touchBreaker(q, b)
}

type dirtyBreaker struct {
	q   *Queue
	typ string
}

// touchBreaker has the row written, or deleted, when the round is sealed: once, however many attempts it ended.
func (r *Round) touchBreaker(q *Queue, b *breaker) {
	if !b.dirty {
		b.dirty = true
		r.breakers = append(r.breakers, dirtyBreaker{q, b.typ})
	}
}

func (r *Round) sealBreakers() {
	for _, d := range r.breakers {
		key := schema.BreakerKey(d.q.ns, d.q.name, d.typ)
		if b := d.q.breakers.of(d.typ); b != nil {
			b.dirty = false
			r.tx.Set(key, b.encode())
		} else {
			r.tx.Delete(key)
		}
	}
	r.breakers = nil
}

func (s *breakers) of(typ string) *breaker {
	if s == nil {
		return nil
	}
	return s.byType[typ]
}

// readBreakers comes before the lanes, so that none of a held type is shown.
func (r *Round) readBreakers(q *Queue) {
	if !q.config.Settings.Breaks() {
		return
	}
	r.watchTypes(q)
	prefix := schema.QueueKey(q.ns, schema.TableBreaker, q.name)
	r.tx.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		b, err := decodeBreaker(string(k[len(prefix):]), v)
		schema.Must(err)
		q.breakers.byType[b.typ] = b
		if b.state != BreakerClosed {
			q.breakers.open[b.typ] = b
			r.holdType(q, b.typ)
		}
		return true
	})
}

// watchTypes begins to keep what breakers need.
func (r *Round) watchTypes(q *Queue) {
	q.breakers = &breakers{byType: map[string]*breaker{}, open: map[string]*breaker{}}
	q.lanes.indexTypes()
}

// followBreakers lets the breakers follow rules that have changed. One whose rule is gone closes; one that is closed begins anew
// if it looks at another time, and is judged by the new rule at once; one that is not keeps to the new hold and number of probes.
func (r *Round) followBreakers(q *Queue, was *task.Settings) {
	now := &q.config.Settings
	if q.breakers == nil {
		if now.Breaks() {
			r.watchTypes(q)
		}
		return
	}
	for _, typ := range schema.SortedKeys(q.breakers.byType) {
		b, before, rule := q.breakers.byType[typ], was.BreakerOf(typ), now.BreakerOf(typ)
		switch {
		case rule == before:
		case b.state == BreakerClosed && (!rule.IsSet() || rule.Window != before.Window):
			r.forgetBreaker(q, b)
		case !rule.IsSet():
			r.closeBreaker(q, b, ClosedBySettings)
		case b.state == BreakerClosed:
			r.mayOpen(q, b, rule)
		case b.state == BreakerOpen:
			began := b.until.Add(-before.HoldAfter(b.opened))
			r.setUntil(q, b, max(began.Add(rule.HoldAfter(b.opened)), r.now))
		case b.passed >= rule.Probes:
			r.closeBreaker(q, b, ClosedByProbes)
		}
	}
	if !now.Breaks() {
		q.breakers = nil
		q.lanes.ofType, q.lanes.trials = nil, nil
	}
}

// CloseBreakers closes by hand the breaker of a type, or for "" all of the queue. It says how many were not closed.
func CloseBreakers(r *Round, by task.Author, ns, name, typ string) (n int, err error) {
	q := r.Queue(ns, name)
	if q == nil {
		return 0, task.NotFound("queue", name)
	}
	if q.breakers == nil {
		return 0, nil
	}
	for _, open := range schema.SortedKeys(q.breakers.open) {
		if typ == "" || open == typ {
			r.closeBreaker(q, q.breakers.open[open], ClosedByHand)
			n++
		}
	}
	if n > 0 {
		_, of := audit.Changed(nil, struct {
			Type   string `json:"type"` // empty: all
			Closed int    `json:"closed"`
		}{typ, n})
		r.Record(audit.Entry{By: by, Action: task.BreakerClosed, Namespace: ns, Target: task.Target{Kind: task.OnQueue, Name: name}, Queue: name, After: of})
	}
	return n, nil
}

// dropBreakers removes those of a queue that goes.
func (r *Round) dropBreakers(q *Queue) {
	if q.breakers == nil {
		return
	}
	for _, b := range q.breakers.byType {
		r.forgetBreaker(q, b)
	}
}

// BreakerInfo is how the breaker of a type stands that is not closed.
type BreakerInfo struct {
	Type     string
	State    BreakerState
	Since    store.Time    // when it opened first
	Until    store.Time    // of an open one: when it lets a probe through
	Attempts int           // that opened it, in Window
	Failed   int           // of them
	Window   time.Duration //
	Error    string        // of the last failure that counted, up to maxErrorShort bytes
	Opened   int           // times, without closing in between: one more than probes failed
	Passed   int           // probes that succeeded since it opened last
	Probes   int           // that have to
	Probe    task.ID       // the task that is let through; zero: none at this moment
}

// Reason is what opened it, in words.
func (i *BreakerInfo) Reason() string {
	text := fmt.Sprintf("%d of %s failed within %s", i.Failed, count(int64(i.Attempts), "attempt"), i.Window)
	if i.Opened > 1 {
		text += fmt.Sprintf(", then %s", count(int64(i.Opened-1), "probe"))
	}
	if i.Error != "" {
		text += fmt.Sprintf(", the last with %q", i.Error)
	}
	return text
}

func (b *breaker) info(rule task.Breaker) BreakerInfo {
	i := BreakerInfo{Type: b.typ, State: b.state, Since: b.since, Attempts: b.cause.attempts, Failed: b.cause.failed, Window: b.over,
		Error: b.lastError, Opened: b.opened, Passed: b.passed, Probes: rule.Probes, Probe: b.probe}
	if b.state == BreakerOpen {
		i.Until = b.until
	}
	return i
}

// ClosedBy is what closed a breaker.
type ClosedBy string

const (
	ClosedByProbes   ClosedBy = "probes"   // enough have succeeded
	ClosedByHand     ClosedBy = "operator" //
	ClosedBySettings ClosedBy = "settings" // its rule is gone
	ClosedUnused     ClosedBy = "unused"   // there was no task to probe with
)

// BreakerChange is a breaker that has opened, also again after a probe, or has closed: then it is told as it was before.
type BreakerChange struct {
	Namespace, Queue string
	Closed           ClosedBy // "": it has opened
	BreakerInfo
}

// maxBreakersTold bounds the breakers that are told of a queue: those that have been open longest.
const maxBreakersTold = 100

// told are the breakers of a queue that are not closed, and how many there are.
func (s *breakers) told(settings *task.Settings) (infos []BreakerInfo, all int) {
	if s == nil || len(s.open) == 0 {
		return nil, 0
	}
	for typ, b := range s.open {
		infos = append(infos, b.info(settings.BreakerOf(typ)))
	}
	slices.SortFunc(infos, func(a, b BreakerInfo) int { return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Type, b.Type)) })
	return slices.Clip(infos[:min(len(infos), maxBreakersTold)]), len(infos)
}
