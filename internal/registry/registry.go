package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

const (
	// KeptFor is how long a worker that claims by single calls is listed after its last call.
	KeptFor = 5 * time.Minute
	// maxHeld bounds the tasks recorded as held by them, maxHeldOf those of a namespace.
	maxHeld   = 100_000
	maxHeldOf = maxHeld / 2
	// sweepEvery is how often workers that have gone and quiet that has expired are removed.
	sweepEvery = 10 * time.Second
)

// Registry holds the workers of a node. Its methods may be called from any goroutine.
type Registry struct {
	mu       sync.RWMutex
	streams  map[key]*Worker
	claimers *claimers
	lost     *lostWorkers
	left     map[key]time.Time // workers with a stream that left properly, lately
	quiet    map[key]Quiet
	version  uint64 // how new the content of quiet is
	swept    time.Time
	// remembers is since when every worker that claims by single calls is listed.
	remembers time.Time
	wake      chan struct{} // capacity 1: there may be something to sweep

	heldMu sync.Mutex
	heldBy map[task.ID]*Worker // what claimers hold: the caller that reports how a task ended knows only its token
	heldOf map[string]int      // their number, by namespace
	// Claims of claimers whose leases have ended: toWatch have yet to be asked about, unclear were asked about, expired
	// were not settled in time.
	toWatch []unclearClaim
	unclear map[task.ClaimID]unclearClaim
	expired []unclearClaim
}

// claimerKey identifies a worker that claims by single calls: two with the same name on one host are one.
type claimerKey struct{ namespace, name, address string }

// New returns an empty registry.
func New() *Registry {
	return &Registry{streams: map[key]*Worker{}, claimers: newClaimers(), lost: newLostWorkers(), left: map[key]time.Time{},
		quiet: map[key]Quiet{}, remembers: time.Now(), heldBy: map[task.ID]*Worker{}, heldOf: map[string]int{},
		unclear: map[task.ClaimID]unclearClaim{}, wake: make(chan struct{}, 1)}
}

// Join adds a worker with a stream. id is what the worker calls itself on all its streams; "": it has no such name. version is that of the
// newest Quiet that it was told of and obeys; 0: none. onQuiet is called when Quiet has changed.
func (r *Registry) Join(hello Hello, id string, version uint64, onQuiet func()) *Worker {
	if id == "" {
		id = rand.Text()
	}
	now := time.Now()
	w := &Worker{r: r, key: key{hello.Namespace, id}, stream: true, onQuiet: onQuiet, hello: hello, since: now, seen: now,
		running: map[task.ID]Run{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.takeBack(w.key, true); was != nil {
		w.before = maps.Clone(was.running)
		was.unlist()
	}
	r.streams[w.key] = w
	if q := r.quietOf(w.key, now); q != nil {
		w.quiet = q
	} else if version > r.version { // it comes from a node that knows more
		w.quiet = &Quiet{At: now, Until: now.Add(KeptFor), Version: version}
	}
	if w.quiet != nil {
		r.wakeRun()
	}
	return w
}

// Leave removes a worker whose stream has ended. closed is set if the worker closed it.
func (w *Worker) Leave(closed bool) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if w.r.streams[w.key] == w { // it may have come back before the node noticed that it had gone
		delete(w.r.streams, w.key)
		w.r.gone(w, closed, time.Now())
	}
}

// Begin records a call of a worker that claims by single calls. Worker.Done ends it.
func (r *Registry) Begin(hello Hello) *Worker {
	now := time.Now()
	w := r.claimer(&hello, now)
	w.mu.Lock()
	w.seen = now
	w.calls++
	if !slices.Equal(w.hello.Queues, hello.Queues) || !slices.Equal(w.hello.Types, hello.Types) {
		w.hello.Queues, w.hello.Types = hello.Queues, hello.Types
	}
	w.mu.Unlock()
	return w
}

func (r *Registry) claimer(hello *Hello, now time.Time) *Worker {
	by := claimerKey{hello.Namespace, hello.Name, hello.Address}
	r.mu.RLock()
	w := r.claimers.get(by)
	r.mu.RUnlock()
	if w != nil {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.claimers.get(by); w != nil {
		return w
	}
	k := key{hello.Namespace, by.id()}
	if w = r.takeBack(k, false); w == nil {
		w = &Worker{r: r, key: k, hello: *hello, since: now, running: map[task.ID]Run{}}
	}
	w.quiet = r.quietOf(w.key, now)
	if r.claimers.full() {
		r.sweepLocked(now)
	}
	if out := r.claimers.add(by, w); out != nil {
		r.remembers = now
		out.unlist()
	}
	r.wakeRun()
	return w
}

// id is the same on all nodes and after a restart, so that quiet workers stay quiet.
func (k claimerKey) id() string {
	sum := sha256.Sum256([]byte(k.name + "\x00" + k.address))
	return hex.EncodeToString(sum[:12])
}

// Done ends a call that Begin recorded.
func (w *Worker) Done() {
	w.mu.Lock()
	w.calls--
	w.seen = time.Now()
	w.mu.Unlock()
}

// addHeld records what a claimer got. Tasks beyond maxHeld or maxHeldOf are not recorded.
func (r *Registry) addHeld(w *Worker, runs []Run) {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	for i := range runs {
		r.forget(runs[i].Task)
		if len(r.heldBy) < maxHeld && r.heldOf[w.key.namespace] < maxHeldOf {
			r.heldBy[runs[i].Task] = w
			r.heldOf[w.key.namespace]++
		}
	}
}

// forget removes a task's holder. It is called with heldMu held.
func (r *Registry) forget(id task.ID) {
	w := r.heldBy[id]
	if w == nil {
		return
	}
	delete(r.heldBy, id)
	if ns := w.key.namespace; r.heldOf[ns] > 1 {
		r.heldOf[ns]--
	} else {
		delete(r.heldOf, ns)
	}
}

// release removes a task that a claimer held.
func (r *Registry) release(w *Worker, id task.ID) {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	if r.heldBy[id] == w {
		r.forget(id)
	}
}

// holder returns the claimer that got a task through this node; nil: none did.
func (r *Registry) holder(id task.ID) *Worker {
	r.heldMu.Lock()
	defer r.heldMu.Unlock()
	return r.heldBy[id]
}

// Ended records the end of a claim whose holder the caller does not know.
func (r *Registry) Ended(id task.ID, t task.Token) {
	if w := r.holder(id); w != nil && w.Ended(id, t) {
		r.release(w, id)
	}
}

// Holding returns the claim of a task that was taken through this node by a single call and has not ended.
func (r *Registry) Holding(id task.ID, t task.Token) (Run, bool) {
	w := r.holder(id)
	if w == nil {
		return Run{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	run, ok := w.running[id]
	return run, ok && run.Token == t
}

// Extended is Worker.Extended for a claim whose holder the caller does not know.
func (r *Registry) Extended(id task.ID, t task.Token, until time.Time) {
	if w := r.holder(id); w != nil {
		w.Extended(id, t, until)
	}
}
