package registry

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// Share is a queue that a worker takes tasks from. Weight is 0 if the worker asks its queues in order.
type Share struct {
	Queue  string
	Weight int
}

// Hello is how a worker introduces itself.
type Hello struct {
	Namespace string
	Name      string
	Host      string // as it claims
	PID       int
	Version   string // of its SDK
	Address   string // host from which it connects, as the node sees it
	Queues    []Share
	Types     []string // nil: all
	Capacity  int      // tasks that it runs at a time; 0: unknown
}

// Run is a task that a worker holds.
type Run struct {
	Task       task.ID
	Token      task.Token
	Type       string
	Queue      string
	Attempt    int
	Since      time.Time // when it was claimed
	LeaseUntil time.Time
}

// Quiet is an operator's request that a worker take no new tasks.
type Quiet struct {
	By     string
	Reason string
	At     time.Time
	Until  time.Time
	// Version grows with each request. A worker that reconnects presents it to whichever node.
	Version uint64
}

// Worker is one worker of this node. Its methods may be called from any goroutine.
type Worker struct {
	r      *Registry
	key    key
	stream bool
	// onQuiet is called, without locks, when Quiet has changed.
	onQuiet func()

	mu           sync.Mutex
	hello        Hello
	since        time.Time
	seen         time.Time
	claimed      time.Time // when it last got tasks
	free         int       // free slots that it has offered
	calls        int       // calls of a claimer in progress
	unlisted     bool      // a claimer that is no longer listed
	drains       bool      // it has announced that it takes no more tasks
	running      map[task.ID]Run
	before       map[task.ID]Run // what it held when an earlier stream of it broke, and has not confirmed to hold still
	expired      []Run           // of a worker with a stream: leases that have ended since it was last heard from
	lost         *Lost           // nil: it is present
	shown        bool            // listed as lost
	leftProperly bool            // it closed its stream or announced that it drains
	notKept      int             // number of tasks that it held when it was lost, beyond those kept
	weight       int             // about how many bytes it takes in memory once lost; guarded by Registry.mu
	quiet        *Quiet
	// changed is cancelled, by change, when quiet changes; nil: nobody waits.
	changed context.Context
	change  context.CancelFunc
}

// key is a worker's identity.
type key struct{ namespace, id string }

// ID returns the worker's id.
func (w *Worker) ID() string { return w.key.id }

// Quiet returns the operator's request to the worker; nil: there is none. changed is cancelled when it changes.
func (w *Worker) Quiet() (word *Quiet, changed context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed, w.change = context.WithCancel(context.Background())
	}
	return w.quiet, w.changed
}

// setQuiet sets or clears the operator's request.
func (w *Worker) setQuiet(q *Quiet) {
	w.mu.Lock()
	same := w.quiet == q || w.quiet != nil && q != nil && w.quiet.Version == q.Version
	if w.quiet = q; !same && w.changed != nil {
		w.change()
		w.changed = nil
	}
	w.mu.Unlock()
	if !same && w.onQuiet != nil {
		w.onQuiet()
	}
}

// Saw records a sign of life.
func (w *Worker) Saw(now time.Time) {
	w.mu.Lock()
	w.seen = now
	w.expired = nil
	w.mu.Unlock()
}

// Slots sets how many slots of the worker are free.
func (w *Worker) Slots(free int) {
	w.mu.Lock()
	w.free = free
	w.mu.Unlock()
}

// Drains records that the worker has announced that it takes no more tasks.
func (w *Worker) Drains() {
	w.mu.Lock()
	w.drains = true
	w.mu.Unlock()
}

// Took records tasks that the worker was given.
func (w *Worker) Took(runs []Run, now time.Time) {
	w.mu.Lock()
	for _, run := range runs {
		w.running[run.Task] = run
	}
	w.seen, w.claimed = now, now
	if !w.stream && !w.unlisted {
		w.r.addHeld(w, runs)
	}
	w.mu.Unlock()
}

// unlist stops listing a claimer, and forgets what it holds.
func (w *Worker) unlist() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlisted = true
	for id := range w.running {
		w.r.release(w, id)
	}
}

// Ended records the end of a claim, and reports whether the worker held it.
func (w *Worker) Ended(id task.ID, t task.Token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	run, ok := w.running[id]
	if ok = ok && run.Token == t; ok {
		delete(w.running, id)
		w.seen = time.Now()
	}
	return ok
}

// Extended records that a lease of the worker was extended.
func (w *Worker) Extended(id task.ID, t task.Token, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run, ok := w.running[id]
	if !ok {
		run, ok = w.before[id]
		delete(w.before, id)
	}
	if ok && run.Token == t {
		run.LeaseUntil = until
		w.running[id] = run
		w.seen = time.Now()
	}
}

// Taken records that a claim was taken from the worker; expired is set if its lease has ended. This is no sign of life.
func (w *Worker) Taken(id task.ID, t task.Token, expired bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run, ok := w.running[id]
	if !ok || run.Token != t {
		return
	}
	delete(w.running, id)
	if expired && len(w.expired) < maxLostRuns {
		w.expired = append(w.expired, run)
	}
}

// overdue forgets tasks of a claimer whose leases are over: this node does not learn how they ended if the report went to another one.
func (w *Worker) overdue(now time.Time) {
	if w.stream || w.lost != nil {
		return
	}
	for id, run := range w.running {
		if now.After(run.LeaseUntil.Add(leaseGrace)) {
			delete(w.running, id)
			w.r.release(w, id)
			w.r.addUnclear(unclearClaim{w, run, now})
		}
	}
}

// leaseGrace allows for clocks that differ: leases are measured by the clocks of the shards.
const leaseGrace = 5 * time.Second

// Info describes a worker.
type Info struct {
	Hello
	ID          string
	Node        string // set by callers that ask several nodes
	Stream      bool   // connected; false: it claims by single calls
	ConnectedAt time.Time
	SeenAt      time.Time
	ClaimedAt   time.Time // when it got tasks last; zero: never
	Slots       int       // for a claimer as many as it runs, for a stream of unknown capacity those offered and in use
	RunningNow  int
	Running     []Run // the earliest of them
	Draining    bool
	Quiet       *Quiet
	Lost        *Lost // nil: it is present
	Hidden      bool  // it also takes tasks of queues outside the scope
}

// info describes the worker, with up to most of the tasks that it runs, as far as they are in the scope.
func (w *Worker) info(most int, now time.Time, scope task.Scope) Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.overdue(now)
	i := Info{Hello: w.hello, ID: w.key.id, Stream: w.stream, ConnectedAt: w.since, SeenAt: w.seen, ClaimedAt: w.claimed,
		Draining: w.drains, Quiet: w.quiet}
	i.RunningNow, i.Slots = w.load()
	if w.lost != nil {
		lost := *w.lost
		i.Lost, i.Stream, i.Quiet = &lost, false, nil
		i.RunningNow += w.notKept
	}
	if w.calls > 0 {
		i.SeenAt = now
	}
	i.Running = make([]Run, 0, len(w.running))
	for _, run := range w.running {
		if scope.Sees(run.Queue) {
			i.Running = append(i.Running, run)
		}
	}
	if !scope.All() {
		i.Queues = slices.DeleteFunc(slices.Clone(i.Queues), func(s Share) bool { return !scope.Sees(s.Queue) })
		i.Hidden = len(i.Queues) < len(w.hello.Queues)
	}
	i.Running = firstRuns(i.Running, most)
	return i
}

// load returns how many slots are in use, and how many there are. A worker offers a slot again in the message that reports the end of its
// task, and until that is in the log the task is still held: even so the slot counts as in use only once. It is called with mu held.
func (w *Worker) load() (busy, slots int) {
	busy = len(w.running)
	if w.hello.Capacity > 0 {
		return min(busy, w.hello.Capacity), w.hello.Capacity
	}
	return busy, busy + w.free
}

// firstRuns returns up to most runs, the earliest first.
func firstRuns(runs []Run, most int) []Run {
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Task.String(), b.Task.String()))
	})
	return runs[:min(most, len(runs)):min(most, len(runs))]
}

// takes reports whether the worker takes tasks of the queue and the type of a query, or any that its scope sees, in the query's namespace.
func (w *Worker) takes(q Query) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == 0 && w.seen.Before(q.Began) {
		return false
	}
	return q.Queue == "" && q.Type == "" && q.Scope.All() || slices.ContainsFunc(w.hello.Queues, func(s Share) bool {
		return (q.Queue == "" || s.Queue == q.Queue) && q.Scope.Sees(s.Queue)
	}) &&
		(q.Type == "" || len(w.hello.Types) == 0 || slices.Contains(w.hello.Types, q.Type))
}
