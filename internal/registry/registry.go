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
	// KeptFor is how long one who claims by single calls is told of after the last.
	KeptFor = 5 * time.Minute
	// maxLent bounds the tasks that they hold, as far as they are told of, maxLentOf those of a namespace.
	maxLent   = 100_000
	maxLentOf = maxLent / 2
	// sweepEvery is how often those who have gone are forgotten, and quiet that is over.
	sweepEvery = 10 * time.Second
)

// Registry is the workers of a node. Its methods may be called from any goroutine.
type Registry struct {
	mu       sync.RWMutex
	streams  map[key]*Worker
	claimers *claimers
	lost     *lostWorkers
	left     map[key]time.Time // streams that ended properly, lately
	quiet    map[key]Quiet
	version  uint64 // up to which what is quiet is known
	swept    time.Time
	// remembers is since when all who claim by single calls are told of.
	remembers time.Time
	wake      chan struct{} // one place: there may be something to sweep

	lentMu sync.Mutex
	lentTo map[task.ID]*Worker // what claimers hold: how a task ended is told by whoever knows its token
	lentOf map[string]int      // how many of them are of a namespace
	// Of claimers' claims whose leases have ended: those that are to be asked about, those that were, and those that were dropped.
	fresh   []doubt
	doubts  map[task.ID]doubt
	dropped []doubt
}

// claimerKey tells one who claims by single calls from others: two with the same name on one host are one.
type claimerKey struct{ namespace, name, address string }

// New makes a registry without workers.
func New() *Registry {
	return &Registry{streams: map[key]*Worker{}, claimers: newClaimers(), lost: newLostWorkers(), left: map[key]time.Time{}, quiet: map[key]Quiet{}, remembers: time.Now(),
		lentTo: map[task.ID]*Worker{}, lentOf: map[string]int{}, doubts: map[task.ID]doubt{}, wake: make(chan struct{}, 1)}
}

// Join adds a worker with a stream. Id is what the worker calls itself over all its streams; "": it has no such name. Version is
// that of the newest word Quiet that it has heard, and keeps to; 0: none. Told hears that Quiet has changed.
func (r *Registry) Join(hello Hello, id string, version uint64, told func()) *Worker {
	if id == "" {
		id = rand.Text()
	}
	now := time.Now()
	w := &Worker{r: r, key: key{hello.Namespace, id}, stream: true, told: told, hello: hello, since: now, seen: now, running: map[task.ID]Run{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.found(w.key, true); was != nil {
		w.before = maps.Clone(was.running)
		was.untold()
	}
	r.streams[w.key] = w
	if q := r.wordTo(w.key, now); q != nil {
		w.quiet = q
	} else if version > r.version { // it has come from a node that knows more
		w.quiet = &Quiet{At: now, Until: now.Add(KeptFor), Version: version}
	}
	if w.quiet != nil {
		r.rouse()
	}
	return w
}

// Leave removes a worker whose stream has ended. Closed says that the worker closed it.
func (w *Worker) Leave(closed bool) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if w.r.streams[w.key] == w { // it may have come back before the node saw that it had gone
		delete(w.r.streams, w.key)
		w.r.gone(w, closed, time.Now())
	}
}

// Begin notes a call of one who claims by single calls, which ends with Worker.Done.
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
	if w = r.found(k, false); w == nil {
		w = &Worker{r: r, key: k, hello: *hello, since: now, running: map[task.ID]Run{}}
	}
	w.quiet = r.wordTo(w.key, now)
	if r.claimers.full() {
		r.sweepLocked(now)
	}
	if out := r.claimers.add(by, w); out != nil {
		r.remembers = now
		out.untold()
	}
	r.rouse()
	return w
}

// id is the same on all nodes and after a restart, so that who is quiet stays so.
func (k claimerKey) id() string {
	sum := sha256.Sum256([]byte(k.name + "\x00" + k.address))
	return hex.EncodeToString(sum[:12])
}

// Done ends a call that Begin began.
func (w *Worker) Done() {
	w.mu.Lock()
	w.calls--
	w.seen = time.Now()
	w.mu.Unlock()
}

// lent notes what a claimer got. What is beyond maxLent, or maxLentOf, is told of nobody.
func (r *Registry) lent(w *Worker, runs []Run) {
	r.lentMu.Lock()
	defer r.lentMu.Unlock()
	for i := range runs {
		r.forget(runs[i].Task)
		if len(r.lentTo) < maxLent && r.lentOf[w.key.namespace] < maxLentOf {
			r.lentTo[runs[i].Task] = w
			r.lentOf[w.key.namespace]++
		}
	}
}

// forget forgets who holds a task. It is called with lentMu held.
func (r *Registry) forget(id task.ID) {
	w := r.lentTo[id]
	if w == nil {
		return
	}
	delete(r.lentTo, id)
	if ns := w.key.namespace; r.lentOf[ns] > 1 {
		r.lentOf[ns]--
	} else {
		delete(r.lentOf, ns)
	}
}

// back forgets what a claimer had.
func (r *Registry) back(w *Worker, id task.ID) {
	r.lentMu.Lock()
	defer r.lentMu.Unlock()
	if r.lentTo[id] == w {
		r.forget(id)
	}
}

// holder is the claimer that got a task through this node; nil: none did.
func (r *Registry) holder(id task.ID) *Worker {
	r.lentMu.Lock()
	defer r.lentMu.Unlock()
	return r.lentTo[id]
}

// Ended notes that a claim is over whose holder the caller does not know.
func (r *Registry) Ended(id task.ID, t task.Token) {
	if w := r.holder(id); w != nil && w.Ended(id, t) {
		r.back(w, id)
	}
}

// Holding is what is known of a claim that was taken through this node by a single call, and has not ended.
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

// Extended is Worker.Extended of a claim whose holder the caller does not know.
func (r *Registry) Extended(id task.ID, t task.Token, until time.Time) {
	if w := r.holder(id); w != nil {
		w.Extended(id, t, until)
	}
}
