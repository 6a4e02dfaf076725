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

// Share is a queue that a worker takes tasks from. Weight is 0 if they are asked in their order.
type Share struct {
	Queue  string
	Weight int
}

// Hello is what a worker says of itself.
type Hello struct {
	Namespace string
	Name      string
	Host      string // as it says
	PID       int
	Version   string // of its SDK
	Address   string // host from which it comes, as the node sees it
	Queues    []Share
	Types     []string // nil: all
	Capacity  int      // tasks that it runs at once; 0: it does not say
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

// Quiet is an operator's word that a worker is to take no new tasks.
type Quiet struct {
	By     string
	Reason string
	At     time.Time
	Until  time.Time
	// Version grows with each word. A worker that tells of one comes back with it to whichever node.
	Version uint64
}

// Worker is one worker of this node. Its methods may be called from any goroutine.
type Worker struct {
	r      *Registry
	key    key
	stream bool
	// told hears that what Quiet says has changed. It is called without locks.
	told func()

	mu      sync.Mutex
	hello   Hello
	since   time.Time
	seen    time.Time
	claimed time.Time // when it got tasks last
	free    int       // slots that it has granted and that are free
	calls   int       // of a claimer that run
	noPlace bool      // a claimer that nobody is told of
	drains  bool      // it takes no more, by its own word
	running map[task.ID]Run
	before  map[task.ID]Run // what it held when an earlier stream of it broke, and has not said yet that it still holds
	expired []Run           // of a stream, whose leases have ended since the worker was heard of
	lost    *Lost           // nil: it is there
	shown   bool            // as lost
	proper  bool            // its stream ended by its own word
	cut     int             // tasks that it held when it was lost, beyond those that are kept
	weight  int             // about what it takes in memory as one that is lost; guarded by Registry.mu
	quiet   *Quiet
	// changed ends, by change, when quiet changes; nil: nobody waits.
	changed context.Context
	change  context.CancelFunc
}

// key is a worker's identity.
type key struct{ namespace, id string }

// ID is the worker's id.
func (w *Worker) ID() string { return w.key.id }

// Quiet is the operator's word to the worker; nil: there is none. Changed ends when it changes.
func (w *Worker) Quiet() (word *Quiet, changed context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed, w.change = context.WithCancel(context.Background())
	}
	return w.quiet, w.changed
}

// hush sets the operator's word.
func (w *Worker) hush(q *Quiet) {
	w.mu.Lock()
	same := w.quiet == q || w.quiet != nil && q != nil && w.quiet.Version == q.Version
	if w.quiet = q; !same && w.changed != nil {
		w.change()
		w.changed = nil
	}
	w.mu.Unlock()
	if !same && w.told != nil {
		w.told()
	}
}

// Saw notes a sign of life.
func (w *Worker) Saw(now time.Time) {
	w.mu.Lock()
	w.seen = now
	w.expired = nil
	w.mu.Unlock()
}

// Slots says how many slots of the worker are free.
func (w *Worker) Slots(free int) {
	w.mu.Lock()
	w.free = free
	w.mu.Unlock()
}

// Drains says that the worker takes no more tasks, by its own word.
func (w *Worker) Drains() {
	w.mu.Lock()
	w.drains = true
	w.mu.Unlock()
}

// Took notes tasks that the worker was given.
func (w *Worker) Took(runs []Run, now time.Time) {
	w.mu.Lock()
	for _, run := range runs {
		w.running[run.Task] = run
	}
	w.seen, w.claimed = now, now
	if !w.stream && !w.noPlace {
		w.r.lent(w, runs)
	}
	w.mu.Unlock()
}

// untold is that nobody is told of a claimer any more, nor of what it holds.
func (w *Worker) untold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noPlace = true
	for id := range w.running {
		w.r.back(w, id)
	}
}

// Ended notes that a claim of the worker is over, and says whether it had it.
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

// Extended notes that a lease of the worker ends later.
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

// Taken notes that a claim of the worker was taken from it: expired says that its lease has ended. That is no sign of life.
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

// overdue forgets tasks of a claimer whose leases are over: nobody tells this node what became of them if the word went through
// another one.
func (w *Worker) overdue(now time.Time) {
	if w.stream || w.lost != nil {
		return
	}
	for id, run := range w.running {
		if now.After(run.LeaseUntil.Add(leaseGrace)) {
			delete(w.running, id)
			w.r.back(w, id)
			w.r.doubted(doubt{w, run, now})
		}
	}
}

// leaseGrace is for clocks that do not agree: leases are told by those of the shards.
const leaseGrace = 5 * time.Second

// Info is a worker as it is told.
type Info struct {
	Hello
	ID          string
	Node        string // filled by who asks several
	Stream      bool   // connected; false: it claims by single calls
	ConnectedAt time.Time
	SeenAt      time.Time
	ClaimedAt   time.Time // when it got tasks last; zero: never
	Slots       int       // that it has; of a claimer as many as it runs, of a stream that does not say those granted and in use
	RunningNow  int
	Running     []Run // of them, those that began first
	Draining    bool
	Quiet       *Quiet
	Lost        *Lost // nil: it is there
	Hidden      bool  // it takes tasks of queues outside the scope, too
}

// info tells of the worker, with up to most of the tasks that it runs, as far as they are in the scope.
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
		i.RunningNow += w.cut
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

// load is how many slots are in use, and how many there are. A worker grants a slot anew together with the word that its task has
// ended, and until that word is in the log the task is still held: a slot is in use once for all that. It is called with mu held.
func (w *Worker) load() (busy, slots int) {
	busy = len(w.running)
	if w.hello.Capacity > 0 {
		return min(busy, w.hello.Capacity), w.hello.Capacity
	}
	return busy, busy + w.free
}

// firstRuns are those that began first.
func firstRuns(runs []Run, most int) []Run {
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Task.String(), b.Task.String()))
	})
	return runs[:min(most, len(runs)):min(most, len(runs))]
}

// takes says whether the worker takes tasks of the queue and the type of a query, or any that its scope sees.
func (w *Worker) takes(q Query) bool {
	if q.Queue == "" && q.Type == "" && q.Scope.All() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.hello.Queues, func(s Share) bool { return (q.Queue == "" || s.Queue == q.Queue) && q.Scope.Sees(s.Queue) }) &&
		(q.Type == "" || len(w.hello.Types) == 0 || slices.Contains(w.hello.Types, q.Type))
}
