package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// A worker is lost when it is gone without having said so. One with a stream is lost when the stream has ended and the worker neither
// closed it nor said that it drains, or still held tasks. One that claims by single calls is lost when the lease of one of its tasks has
// ended and it has made no call since. It is shown as lost once lostGrace has passed in which no node has seen it, for LostFor.

const (
	// LostFor is how long a lost worker is kept.
	LostFor = time.Hour
	// lostGrace is what a worker has to come back, to this node or another one: more than the SDK's longest pause between two tries.
	lostGrace = 10 * time.Second
	// maxLost bounds the lost workers of a node, maxLostBytes about what they take, and maxLostRuns and maxLostTypes what is kept of each.
	maxLost      = 1000
	maxLostBytes = 16 << 20
	maxLostRuns  = 100
	maxLostTypes = 100
	// leftFor is how long a node remembers who ended properly, maxLeft of how many: others ask for whom they miss.
	leftFor = time.Minute
	maxLeft = 10_000
	// unclearFor is how long it is waited to hear how a claim ended whose lease is over. A shard without a leader says nothing.
	unclearFor = 15 * time.Minute
)

// Why a worker counts as lost.
const (
	Disconnected = "disconnected" // its stream ended, and it did not come back
	LeaseLost    = "lease_lost"   // it claims by single calls, and let a lease end
)

// Lost is when a worker was lost, and why.
type Lost struct {
	At     time.Time
	Reason string
}

// Absence is a worker that one node misses and another one may have seen since.
type Absence struct {
	Namespace, ID string
	Name, Address string // of one who claims by single calls
	Stream        bool
	Since         time.Time
}

// Links lead to what the registry does not know itself.
type Links struct {
	// Elsewhere says which of some workers other nodes have seen since they are missed.
	Elsewhere func(ctx context.Context, missed []Absence) []bool
	// Watch has LeaseOver hear how a claim ended, or ends.
	Watch func(namespace string, id task.ID, t task.Token)
}

// lostWorkers are those of a node. Guarded by Registry.mu.
type lostWorkers struct {
	byKey map[key]*Worker
	of    map[string][]*Worker // by namespace, in the order in which they came; none is empty
	size  int                  // about what they take in memory
}

func newLostWorkers() *lostWorkers {
	return &lostWorkers{byKey: map[key]*Worker{}, of: map[string][]*Worker{}}
}

// add keeps a lost worker. If there is no room, the namespace that has most loses the one that it has had for longest.
func (l *lostWorkers) add(w *Worker) {
	l.remove(w.key)
	l.byKey[w.key] = w
	l.of[w.key.namespace] = append(l.of[w.key.namespace], w)
	l.size += w.weight
	for len(l.byKey) > maxLost || l.size > maxLostBytes {
		l.remove(l.oldestOfMost().key).untold()
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

// remove answers with who is not there any more; nil: nobody was.
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

// gone notes that the stream of a worker has ended. It is called with Registry.mu held.
func (r *Registry) gone(w *Worker, closed bool, now time.Time) {
	w.mu.Lock()
	w.proper = closed || w.drains
	properly := w.proper && len(w.running)+len(w.expired) == 0
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
	r.rouse()
}

// lose makes the worker one that is lost, and bounds what is kept of it. It is called with mu held.
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
	if w.stream { // how a task ended may still be told, by a call of its own
		w.r.lent(w, w.runs())
	}
}

// trim keeps of the tasks that a lost worker held those that began first, and counts the others.
func (w *Worker) trim() {
	kept := firstRuns(w.runs(), maxLostRuns)
	w.cut += len(w.running) - len(kept)
	w.running = make(map[task.ID]Run, len(kept))
	for _, run := range kept {
		run.Type, run.Queue = strings.Clone(run.Type), strings.Clone(run.Queue) // they may be parts of something larger
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

// found takes a worker out of the lost ones, as it is there again; nil: it was not lost. It is called with Registry.mu held.
func (r *Registry) found(k key, stream bool) *Worker {
	if w := r.lost.byKey[k]; w == nil || w.stream != stream { // an id that a worker chose may be that of one without a stream
		return nil
	}
	w := r.lost.remove(k)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost, w.shown, w.cut, w.noPlace = nil, false, 0, false
	return w
}

// doubt is a claim of one who claims by single calls, whose lease is over.
type doubt struct {
	w   *Worker
	run Run
	at  time.Time
}

// doubted notes a claim of which it is to be found out how it ended.
func (r *Registry) doubted(d doubt) {
	r.lentMu.Lock()
	defer r.lentMu.Unlock()
	if len(r.doubts)+len(r.fresh) < maxLent {
		r.fresh = append(r.fresh, d)
	}
}

// LeaseOver says how a claim ended that Links.Watch was called for. It does not block.
func (r *Registry) LeaseOver(id task.ID, t task.Token, reason string) {
	r.lentMu.Lock()
	defer r.lentMu.Unlock()
	d, known := r.doubts[id]
	if !known || d.run.Token != t {
		return
	}
	delete(r.doubts, id)
	if reason == task.StaleExpired {
		r.dropped = append(r.dropped, d)
	}
}

// review finds out who is lost. It is called by Run only.
func (r *Registry) review(ctx context.Context, to Links) {
	now := time.Now()
	for _, d := range r.unwatched(now) {
		to.Watch(d.w.key.namespace, d.run.Task, d.run.Token)
	}
	r.lentMu.Lock()
	dropped := r.dropped
	r.dropped = nil
	r.lentMu.Unlock()
	for _, d := range dropped {
		r.letDrop(d)
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

// unwatched takes the claims whose leases have ended lately, and forgets those of which nothing was heard for too long.
func (r *Registry) unwatched(now time.Time) (fresh []doubt) {
	r.lentMu.Lock()
	defer r.lentMu.Unlock()
	fresh, r.fresh = r.fresh, nil
	for _, d := range fresh {
		r.doubts[d.run.Task] = d
	}
	for id, d := range r.doubts {
		if now.Sub(d.at) > unclearFor {
			delete(r.doubts, id)
		}
	}
	return fresh
}

// letDrop is that a claimer let the lease of a task end. It is lost unless it has made a call since.
func (r *Registry) letDrop(d doubt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := d.w
	by := claimerKey{w.key.namespace, w.hello.Name, w.hello.Address}
	if other := r.claimers.get(by); other != nil && other != w { // it was forgotten, and has come back
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
	r.lost.remove(w.key) // its weight changes
	w.lose(Lost{at, LeaseLost})
	w.mu.Unlock()
	r.claimers.remove(by)
	r.lost.add(w)
}

// missed are the lost workers that others may have seen. Those that were lost LostFor ago are forgotten.
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
		ended := w.proper && len(w.running)+w.cut == 0 // it has told by calls of their own how the last tasks ended
		w.mu.Unlock()
		if ended || now.Sub(since) >= LostFor {
			r.lost.remove(k).untold()
			continue
		}
		missed = append(missed, Absence{Namespace: k.namespace, ID: k.id, Name: w.hello.Name, Address: w.hello.Address, Stream: w.stream, Since: since})
	}
	return missed
}

// judge takes what others say of a worker that was missed. It is called with mu held.
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
		r.lost.remove(w.key).untold()
	}
}

// eachLost goes over the workers of a namespace that are shown as lost. It is called with mu held.
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

// Seen says which workers this node has seen since another one misses them.
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
		w := r.lost.byKey[k] // it lived here, and was lost later
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
