package explain

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Explanation explains why a task is not running, which worker runs it, or how it has ended.
type Explanation struct {
	ID      task.ID
	Queue   string
	Type    string
	Key     string
	State   task.State
	Reasons []Reason // at least one, in the order in which they are decided
}

// Reason is one thing that keeps a task from running. Fields that do not apply are zero.
type Reason struct {
	Code   task.Why
	Detail string // a sentence that states the facts
	Change string // a sentence on what would change it

	Since store.Time
	Until store.Time // when it ends at the latest: when the task is due, a token arrives, or a lease ends
	Type  string     // what is paused, what no worker takes, or the type of the task on its way
	Queue string     // the destination of the task on its way; else "", and the reason concerns the task's own queue
	Key   string     // what is paused or limited
	Cause string     // why a pause was requested, why a breaker opened, the reason of an end state, or how the attempt to be retried ended
	Error string     // of the last attempt, the last one that a breaker has seen, or of the last try to deliver a message

	Limit   int // tasks that may run at the same time
	Rate    task.Rate
	Running []Runner // up to maxRunners of the tasks that use up the limit, the probe of a breaker, or the running task itself
	Types   []string // types that workers take, up to maxTypesShown
	// Count is the number of tasks that go first (for other_keys, of keys; for on_its_way, of failed tries), and in a
	// queue's explanation the number of ready tasks that wait for this reason. More means that there are more than were
	// counted.
	Count int64
	More  bool
}

// Runner is a claimed task.
type Runner struct {
	ID     task.ID
	Worker string
	Since  store.Time
	Until  store.Time // of its lease
}

// Bounds of an explanation: it is computed in a round, and must not hold up other calls.
const (
	maxRunners    = 10    // shown for a limit
	maxLooked     = 2_000 // claimed tasks examined to find those
	maxTypesShown = 10
	maxErrorShown = 1_024 // bytes
	maxErrorShort = 200   // bytes of the error within a detail
)

// Task explains a task from the state and the leader's memory, and changes neither. Workers returns what is known of
// the workers of a queue, and carried what the sender has seen of a message.
func Task(r *engine.Round, ns string, id task.ID, workers func(queue string) Workers,
	carried func(message task.ID) Delivery) (*Explanation, error) {
	x, err := r.Exec(ns, id)
	if err != nil {
		return nil, err
	}
	most, q := x.MaxAttempts, r.Queue(ns, x.Queue)
	if q != nil { // else the queue was deleted after the task ended
		most = q.LastAttempt(x)
	}
	out := explained(id, x, lastAttempt(r.State(), ns, id), most)
	if x.State.Ended() {
		out.Reasons = append(out.Reasons, whyAway(r, ns, id, x, carried)...)
	}
	if q == nil || !x.State.Waiting() {
		return out, nil
	}
	e := &explainer{r: r, q: q, ns: ns, id: id, x: x, at: r.Position(q, x), config: q.Config(), workers: workers(x.Queue),
		reasons: out.Reasons}
	e.at.Takes = e.workers.takenWith(x.Type, r.Now())
	for _, blocks := range blockers {
		blocks(e)
	}
	if len(e.reasons) == 0 {
		e.add(Reason{Code: task.WhyNext, Detail: fmt.Sprintf("nothing holds it back: the next claim for queue %q and type %q gets it",
			x.Queue, x.Type),
			Change: "wait for a worker with a free slot"})
	}
	out.Reasons = e.reasons
	return out, nil
}

// View explains a task as far as possible without the leader of its shard.
func View(v *query.View) *Explanation {
	var last *schema.Attempt
	if n := len(v.Attempts); n > 0 {
		last = v.Attempts[n-1]
	}
	return explained(v.ID, v.Exec, last, v.MaxAttempts())
}

// blockers lists what may hold back a waiting task, in the order in which it is decided. A new policy gets a line here.
var blockers = []func(*explainer){
	(*explainer).uniqueKey,
	(*explainer).keyOrder,
	(*explainer).queuePaused,
	(*explainer).typePaused,
	(*explainer).breakerOpen,
	(*explainer).keyPaused,
	(*explainer).queueFull,
	(*explainer).namespaceFull,
	(*explainer).queueRate,
	(*explainer).keyFull,
	(*explainer).keyRate,
	(*explainer).draining,
	(*explainer).noWorker,
	(*explainer).higherPriority,
	(*explainer).otherKeys,
	(*explainer).olderTasks,
	(*explainer).workersBusy,
}

// explainer collects the reasons why a waiting task is not running.
type explainer struct {
	r       *engine.Round
	q       *engine.Queue
	ns      string
	id      task.ID
	x       *schema.Exec
	at      *lanes.Position
	config  *task.QueueConfig
	workers Workers
	reasons []Reason
}

func (e *explainer) add(reason Reason) { e.reasons = append(e.reasons, reason) }

// held reports whether a pause, a breaker or a limit keeps the task from running, whichever worker claims.
func (e *explainer) held() bool {
	return slices.ContainsFunc(e.reasons, func(r Reason) bool { return r.Code.Holds() })
}

func (e *explainer) uniqueKey() {
	if e.x.State != task.Ready || e.x.Role != schema.RoleNext {
		return
	}
	why := whyUnique(e.x.Queue, 1)
	if u, ok := schema.ReadUnique(e.r.State(), e.ns, e.x.Queue, e.x.Unique.Key); ok {
		why.Running = runnersOf(e.r, e.ns, []task.ID{u.Holder})
	}
	e.add(why)
}

func (e *explainer) queuePaused() {
	if e.config.Paused {
		e.add(whyQueuePaused(e.x.Queue, e.config))
	}
}

func (e *explainer) typePaused() {
	if h, held := e.config.HeldType(e.x.Type); held {
		e.add(whyHeld(e.x.Queue, h))
	}
}

func (e *explainer) breakerOpen() {
	b := e.q.Breaker(e.x.Type)
	if b == nil || b.State == breaker.Closed || e.at.IsProbe() {
		return
	}
	why := whyBreaker(e.x.Queue, b.Info(e.config.Settings.BreakerOf(e.x.Type)))
	if b.Probe != (task.ID{}) {
		why.Running = runnersOf(e.r, e.ns, []task.ID{b.Probe})
	}
	e.add(why)
}

func (e *explainer) keyPaused() {
	if h, held := e.config.HeldKey(e.x.Key); held {
		e.add(whyHeld(e.x.Queue, h))
	}
}

func (e *explainer) queueFull() {
	if e.at.InLane() && e.q.Counts().Claimed >= e.q.MaxRunning() {
		e.add(whyQueueFull(e.x.Queue, e.config, e.q.MaxRunning(), e.q.Counts().Claimed,
			runnersOf(e.r, e.ns, e.r.ClaimedTasks(e.q, maxLooked))))
	}
}

func (e *explainer) namespaceFull() {
	if s, full := e.q.Space(); e.at.InLane() && full {
		e.add(whyNamespaceFull(s))
	}
}

func (e *explainer) queueRate() {
	if until, empty := e.q.NextToken("", e.r.Now()); empty && e.at.InLane() {
		e.add(whyQueueRate(e.x.Queue, e.config, until, e.r.Now()))
	}
}

func (e *explainer) keyFull() {
	most := e.config.Settings.RulesOf(e.x.Key).MaxRunning
	if n := e.at.KeyClaims(); e.at.InLane() && most > 0 && n >= most {
		e.add(whyKeyFull(e.x.Queue, e.x.Key, most, n, e.keyRunners()))
	}
}

func (e *explainer) keyRate() {
	if e.x.Key == "" || !e.at.InLane() {
		return
	}
	if until, empty := e.q.NextToken(e.x.Key, e.r.Now()); empty {
		e.add(whyKeyRate(e.x.Queue, e.x.Key, e.config.Settings.RulesOf(e.x.Key).Rate, until, e.r.Now()))
	}
}

func (e *explainer) draining() {
	if e.workers.Draining {
		e.add(whyDraining())
	}
}

func (e *explainer) noWorker() {
	if why := e.whyNoClaim(); why != nil && why.Code != task.WhyWorkersBusy {
		e.add(*why)
	}
}

func (e *explainer) workersBusy() {
	if !e.at.InLane() || e.held() {
		return
	}
	if why := e.whyNoClaim(); why != nil && why.Code == task.WhyWorkersBusy {
		e.add(*why)
	}
}

// whyNoClaim returns why no claim takes the task now; nil: a waiting claim does.
func (e *explainer) whyNoClaim() *Reason {
	return e.workers.why(e.x.Queue, e.x.Type, e.q.Counts().Claimed, e.r.Now())
}

func (e *explainer) higherPriority() {
	if !e.at.InLane() {
		return
	}
	n, more := e.at.HigherPriority(e.q.Counts().Ready)
	if n == 0 {
		return
	}
	tasks := over(more) + humanize.Count(n, "task")
	detail := fmt.Sprintf("%s of higher priority %s ready in queue %q and %s first", tasks, humanize.One(n, "is", "are"), e.x.Queue,
		humanize.One(n, "runs", "run"))
	if w := e.config.Settings.Weights; e.config.Settings.Weighted() {
		detail = fmt.Sprintf("%s of higher priority %s ready in queue %q, where priorities share the claims by their weights: %d, %d, %d",
			tasks, humanize.One(n, "is", "are"), e.x.Queue, w[0], w[1], w[2])
	}
	e.add(Reason{Code: task.WhyHigherPriority, Count: n, More: more, Detail: detail,
		Change: e.raise("wait until they have run, or start more workers")})
}

// raise adds the advice to raise the task's priority, unless it is the highest.
func (e *explainer) raise(change string) string {
	if e.x.Priority == task.High {
		return change
	}
	return change + "; or raise its priority: " + taskCommand("edit", e.id, "--priority high")
}

func (e *explainer) otherKeys() {
	n, more := e.at.KeysBefore()
	if n == 0 {
		return
	}
	whose := fmt.Sprintf("key %q", e.x.Key)
	if e.x.Key == "" {
		whose = "the tasks without a key"
	}
	change := "wait for its turn"
	if e.x.Key != "" {
		change += ", or give its key more turns: " + queueCommand("set", e.x.Queue, "--for-key="+e.x.Key, "--weight N")
	}
	e.add(Reason{Code: task.WhyOtherKeys, Key: e.x.Key, Count: int64(n), More: more,
		Detail: fmt.Sprintf("%s%s of queue %q %s used less worker time than %s and %s first",
			over(more), humanize.Count(int64(n), "other key"), e.x.Queue, humanize.One(int64(n), "has", "have"), whose,
			humanize.One(int64(n), "goes", "go")),
		Change: change})
}

func (e *explainer) olderTasks() {
	sameType, n, more := e.at.TasksBefore()
	if n == 0 {
		return
	}
	of := "without a key"
	if e.x.Key != "" {
		of = fmt.Sprintf("of key %q", e.x.Key)
	}
	detail := fmt.Sprintf("%s%s %s with the same priority came first", over(more), humanize.Count(int64(n), "task"), of)
	if n > sameType {
		detail += fmt.Sprintf(": %d of its type, %d of other types", sameType, n-sameType)
	}
	e.add(Reason{Code: task.WhyOlderTasks, Key: e.x.Key, Count: int64(n), More: more, Detail: detail,
		Change: e.raise("wait until they have run, or start more workers")})
}

// keyRunners returns claimed tasks of the task's key.
func (e *explainer) keyRunners() []Runner {
	return runnersOf(e.r, e.ns, e.at.KeyClaimed(maxLooked))
}

// runnersOf reads up to maxRunners of the tasks.
func runnersOf(r *engine.Round, ns string, ids []task.ID) (running []Runner) {
	slices.SortFunc(ids, func(a, b task.ID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range ids[:min(len(ids), maxRunners)] {
		if x, err := r.Exec(ns, id); err == nil {
			running = append(running, runnerOf(id, x))
		}
	}
	return running
}

func runnerOf(id task.ID, x *schema.Exec) Runner {
	return Runner{id, x.Claim.Worker, x.Claim.At, x.Claim.Until}
}

// lastAttempt returns the last ended attempt, or nil if there is none.
func lastAttempt(from store.Reader, ns string, id task.ID) (last *schema.Attempt) {
	prefix := schema.IDKey(ns, schema.TableAttempt, id)
	from.ScanBack(prefix, schema.After(prefix), func(k, v []byte) bool {
		last = schema.Must(schema.DecodeAttempt(binary.BigEndian.Uint64(k[len(k)-8:]), v))
		return false
	})
	return last
}

// WaitsIn returns the queue of a waiting task, or "" if the task is not waiting or does not exist.
func WaitsIn(from store.Reader, ns string, id task.ID) string {
	x, err := schema.ReadExec(from, ns, id)
	if err != nil || !x.State.Waiting() {
		return ""
	}
	return x.Queue
}
