package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A worker is lost when it goes away without notice. One with a stream is lost when the stream has ended and the worker neither closed it
// nor announced that it drains, or still held tasks. One that claims by single calls is lost when the lease of one of its tasks has ended
// and it has made no call since. It is listed as lost, for LostFor, once no node has seen it for lostGrace.

const (
	// LostFor is how long a lost worker is kept.
	LostFor = time.Hour
	// lostGrace is how long a worker has to come back, to this node or another: more than the SDK's longest pause between two attempts.
	lostGrace = 10 * time.Second
	// maxLost bounds the lost workers of a node, maxLostBytes about their size, and maxLostRuns and maxLostTypes what is kept of each.
	maxLost      = 1000
	maxLostBytes = 16 << 20
	maxLostRuns  = 100
	maxLostTypes = 100
	// leftFor is how long a node remembers workers that left properly, maxLeft how many: other nodes ask about those that they miss.
	leftFor = time.Minute
	maxLeft = 10_000
	// unclearFor is how long to wait to learn how a claim whose lease is over ended. A shard without a leader reports nothing.
	unclearFor = 15 * time.Minute
)

// Reasons why a worker is lost.
const (
	Disconnected = "disconnected" // its stream ended, and it did not come back
	LeaseLost    = "lease_lost"   // it claims by single calls, and let a lease expire
)

// Lost says when and why a worker was lost.
type Lost struct {
	At     time.Time
	Reason string
}

// Absence is a worker that one node misses and another may have seen since.
type Absence struct {
	Namespace, ID string
	Name, Address string // only of one that claims by single calls
	Stream        bool
	Since         time.Time
}

// Links provide what the registry does not know itself.
type Links struct {
	// Elsewhere reports which of some missed workers other nodes have seen since.
	Elsewhere func(ctx context.Context, missed []Absence) []bool
	// Watch arranges for LeaseOver to be called with how a claim ended, or will end. Unwatch ends that, unless it was called.
	Watch   func(namespace string, id task.ID, t task.Token)
	Unwatch func(id task.ID, t task.Token)
}

// lostWorkers holds the lost workers of a node. Guarded by Registry.mu.
type lostWorkers struct {
	byKey map[key]*Worker
	of    map[string][]*Worker // by namespace, in the order in which they were added; none is empty
	size  int                  // about how many bytes they take in memory
}

func newLostWorkers() *lostWorkers {
	return &lostWorkers{byKey: map[key]*Worker{}, of: map[string][]*Worker{}}
}

// add adds a lost worker. If there is no room, the oldest of the namespace with the most is dropped.
func (l *lostWorkers) add(w *Worker) {
	l.remove(w.key)
	l.byKey[w.key] = w
	l.of[w.key.namespace] = append(l.of[w.key.namespace], w)
	l.size += w.weight
	for len(l.byKey) > maxLost || l.size > maxLostBytes {
		l.remove(l.oldestOfMost().key).unlist()
	}
}

func (l *lostWorkers) oldestOfMost() *Worker {
	var most []*Worker
	for _, of := range l.of {
		if len(of) > len(most) {
			most = of
		}
	}
	return most[0]
}

// remove returns the worker that it removed; nil: there was none.
func (l *lostWorkers) remove(k key) *Worker {
	w := l.byKey[k]
	if w == nil {
		return nil
	}
	delete(l.byKey, k)
	l.size -= w.weight
	of := l.of[k.namespace]
	at := slices.Index(of, w)
	if of = slices.Delete(of, at, at+1); len(of) == 0 {
		delete(l.of, k.namespace)
	} else {
		l.of[k.namespace] = of
	}
	return w
}

// gone records that the stream of a worker has ended. It is called with Registry.mu held.
func (r *Registry) gone(w *Worker, closed bool, now time.Time) {
	w.mu.Lock()
	w.leftProperly = closed || w.drains
	properly := w.leftProperly && len(w.running)+len(w.expired) == 0
	if !properly {
		for _, run := range w.expired {
			w.running[run.Task] = run
		}
		w.expired = nil
		w.lose(Lost{now, Disconnected})
	}
	w.mu.Unlock()
	switch {
	case !properly:
		r.lost.add(w)
	case len(r.left) < maxLeft:
		r.left[w.key] = now
	}
	r.wakeRun()
}

// lose marks the worker as lost, and bounds what is kept of it. It is called with mu held.
func (w *Worker) lose(why Lost) {
	w.lost = &why
	w.trim()
	w.hello.Types = slices.Clone(w.hello.Types[:min(len(w.hello.Types), maxLostTypes)])
	w.weight = 300 + len(w.hello.Name) + len(w.hello.Host) + len(w.hello.Version)
	for _, q := range w.hello.Queues {
		w.weight += 40 + len(q.Queue)
	}
	for _, t := range w.hello.Types {
		w.weight += 16 + len(t)
	}
	for _, run := range w.running {
		w.weight += 250 + len(run.Type) + len(run.Queue)
	}
	if w.stream { // how a task ended may still be reported, by a single call
		w.r.addHeld(w, w.runs())
	}
}

// trim keeps those tasks of a lost worker that began first, and counts the others.
func (w *Worker) trim() {
	kept := firstRuns(w.runs(), maxLostRuns)
	w.notKept += len(w.running) - len(kept)
	w.running = make(map[task.ID]Run, len(kept))
	for _, run := range kept {
		run.Type, run.Queue = strings.Clone(run.Type), strings.Clone(run.Queue) // they may share memory with something larger
		w.running[run.Task] = run
	}
}

func (w *Worker) runs() []Run {
	runs := make([]Run, 0, len(w.running))
	for _, run := range w.running {
		runs = append(runs, run)
	}
	return runs
}

// takeBack removes a worker that has come back from the lost ones, and returns it; nil: it was not lost. It is called
// with Registry.mu held.
func (r *Registry) takeBack(k key, stream bool) *Worker {
	if w := r.lost.byKey[k]; w == nil || w.stream != stream { // an id that a worker chose may equal that of one without a stream
		return nil
	}
	w := r.lost.remove(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.shown, w.notKept, w.unlisted = nil, false, 0, false
	return w
}

// unclearClaim is a claim of a worker that claims by single calls, whose lease is over.
type unclearClaim struct {
	w   *Worker
	run Run
	at  time.Time
}

func (d unclearClaim) key() task.ClaimID { return task.ClaimID{Task: d.run.Task, Token: d.run.Token} }

// addUnclear records a claim whose outcome has yet to be found out.
func (r *Registry) addUnclear(d unclearClaim) {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	if len(r.unclear)+len(r.toWatch) < maxHeld {
		r.toWatch = append(r.toWatch, d)
	}
}

// LeaseOver reports how a claim for which Links.Watch was called has ended. It does not block.
func (r *Registry) LeaseOver(id task.ID, t task.Token, reason string) {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	k := task.ClaimID{Task: id, Token: t}
	d, known := r.unclear[k]
	if !known {
		return
	}
	delete(r.unclear, k)
	if reason == task.StaleExpired {
		r.expired = append(r.expired, d)
	}
}

// review finds out which workers are lost. It is called by Run only.
func (r *Registry) review(ctx context.Context, to Links) {
	now := time.Now()
	fresh, old := r.unwatched(now)
	for _, d := range fresh {
		to.Watch(d.w.key.namespace, d.run.Task, d.run.Token)
	}
	for _, k := range old {
		to.Unwatch(k.Task, k.Token)
	}
	r.heldMu.Lock()
	dropped := r.expired
	r.expired = nil
	r.heldMu.Unlock()
	for _, d := range dropped {
		r.leaseExpired(d)
	}
	missed := r.missed(now)
	if len(missed) == 0 {
		return
	}
	seen := to.Elsewhere(ctx, missed)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range missed {
		r.judge(&missed[i], seen[i], now)
	}
}

// unwatched returns the claims whose leases have ended lately, and forgets those whose outcome stayed unknown for too
// long: another node may go on extending them.
func (r *Registry) unwatched(now time.Time) (fresh []unclearClaim, old []task.ClaimID) {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	fresh, r.toWatch = r.toWatch, nil
	for _, d := range fresh {
		r.unclear[d.key()] = d
	}
	for k, d := range r.unclear {
		if now.Sub(d.at) > unclearFor {
			delete(r.unclear, k)
			old = append(old, k)
		}
	}
	return fresh, old
}

// leaseExpired handles a claim whose lease a claimer let expire. The claimer is lost unless it has made a call since.
func (r *Registry) leaseExpired(d unclearClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := d.w
	by := claimerKey{w.key.namespace, w.hello.Name, w.hello.Address}
	if other := r.claimers.get(by); other != nil && other != w { // it was forgotten and has come back
		return
	}
	if lost := r.lost.byKey[w.key]; lost != nil {
		w = lost
	}
	w.mu.Lock()
	if w.calls > 0 || w.seen.After(d.run.LeaseUntil) {
		w.mu.Unlock()
		return
	}
	w.running[d.run.Task] = d.run
	at := d.run.LeaseUntil
	if w.lost != nil && w.lost.At.After(at) {
		at = w.lost.At
	}
	r.lost.remove(w.key) // its weight is about to change
	w.lose(Lost{at, LeaseLost})
	w.mu.Unlock()
	r.claimers.remove(by)
	r.lost.add(w)
}

// missed returns the lost workers that other nodes may have seen. Those that were lost LostFor ago are forgotten.
func (r *Registry) missed(now time.Time) (missed []Absence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, at := range r.left {
		if now.Sub(at) > leftFor {
			delete(r.left, k)
		}
	}
	for k, w := range r.lost.byKey {
		w.mu.Lock()
		since := w.lost.At
		ended := w.leftProperly && len(w.running)+w.notKept == 0 // single calls have reported how its last tasks ended
		w.mu.Unlock()
		if ended || now.Sub(since) >= LostFor {
			r.lost.remove(k).unlist()
			continue
		}
		missed = append(missed, Absence{Namespace: k.namespace, ID: k.id, Name: w.hello.Name, Address: w.hello.Address,
			Stream: w.stream, Since: since})
	}
	return missed
}

// judge records whether another node has seen a missed worker. It is called with mu held.
func (r *Registry) judge(a *Absence, seen bool, now time.Time) {
	w := r.lost.byKey[key{a.Namespace, a.ID}]
	if w == nil {
		return
	}
	w.mu.Lock()
	same := w.lost.At.Equal(a.Since)
	w.shown = w.shown || same && now.Sub(a.Since) >= lostGrace
	w.mu.Unlock()
	if same && seen {
		r.lost.remove(w.key).unlist()
	}
}

// eachLost calls fn for the workers of a namespace that are listed as lost. It is called with mu held.
func (r *Registry) eachLost(namespace string, fn func(*Worker)) {
	for _, w := range r.lost.of[namespace] {
		w.mu.Lock()
		shown := w.shown
		w.mu.Unlock()
		if shown {
			fn(w)
		}
	}
}

// Seen reports which workers this node has seen since another one began to miss them.
func (r *Registry) Seen(missed []Absence) []bool {
	seen := make([]bool, len(missed))
	r.mu.RLock()
	defer r.mu.RUnlock()
	for i := range missed {
		seen[i] = r.saw(&missed[i])
	}
	return seen
}

func (r *Registry) saw(a *Absence) bool {
	k := key{a.Namespace, a.ID}
	if a.Stream {
		w := r.lost.byKey[k] // it came here, and was lost later
		return r.streams[k] != nil || !r.left[k].Before(a.Since) || w != nil && w.lostAfter(a.Since)
	}
	w := r.claimers.get(claimerKey{a.Namespace, a.Name, a.Address})
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls > 0 || w.seen.After(a.Since)
}

func (w *Worker) lostAfter(t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost.At.After(t)
}
