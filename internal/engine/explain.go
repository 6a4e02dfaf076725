package engine

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Explanation says why a task is not running, or by whom it runs, or how it has ended.
type Explanation struct {
	ID      task.ID
	Queue   string
	Type    string
	Key     string
	State   task.State
	Reasons []Reason // at least one; the one that decides first is the first
}

// Reason is one thing that stands between a task and a worker. What does not belong to it is zero.
type Reason struct {
	Code   task.Why
	Detail string // a sentence with the facts
	Change string // a sentence: what would change it

	Since store.Time
	Until store.Time // it is over then at the latest: when the task is due, a token comes, a lease ends
	Type  string     // of what is paused, of what no worker takes, or of what is on its way
	Queue string     // to which that is on its way; else the reason is of the task's own
	Key   string     // of what is paused or limited
	Cause string     // what was said of a pause; what opened a breaker; the reason of an end; how the last attempt ended that is to be repeated
	Error string     // of the last attempt; the last that a breaker has seen; of the last try to bring what is on its way

	Limit   int // tasks that may run at once
	Rate    task.Rate
	Running []Runner // up to maxRunners of those that use up the limit; the probe of a breaker; of a task that runs, itself
	Types   []string // that workers take, up to maxTypesTold
	// Count is of what goes first: tasks, of other_keys the keys; of on_its_way the tries that came to nothing; and in a queue's explanation of
	// the ready tasks that wait for this. More says that there are more than were counted.
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

// Bounds of an explanation: it is read in a round, and must not hold up other calls.
const (
	maxRunners    = 10    // told of a limit
	maxLooked     = 2_000 // claimed tasks looked at to find those
	maxAhead      = 1_000 // older tasks counted, and other keys looked at
	maxAheadReads = 100   // lanes that are read to see which key's task is older, where keys have used the same
	maxAheadLanes = 100   // types of a key of which older tasks are counted
	maxTypesTold  = 10
	maxErrorTold  = 1_024 // bytes
	maxErrorShort = 200   // bytes of it within a detail
)

// Explain computes from the state and the leader's memory why a task is not running. It changes neither. Takers tells what is
// known of the workers of its queue, carried what the sender has seen of a message.
func Explain(r *Round, ns string, id task.ID, takers func(queue string) Takers, carried func(message task.ID) Delivery) (*Explanation, error) {
	x, err := r.Exec(ns, id)
	if err != nil {
		return nil, err
	}
	most, q := x.MaxAttempts, r.Queue(ns, x.Queue)
	if q != nil { // else it was deleted since the task ended
		most = q.lastAttempt(x)
	}
	out := explained(id, x, lastAttempt(r.tx, ns, id), most)
	if x.State.Ended() {
		out.Reasons = append(out.Reasons, r.whyAway(ns, id, x, carried)...)
	}
	if q == nil || !x.State.Waiting() {
		return out, nil
	}
	e := &explainer{r: r, q: q, id: id, x: x, takers: takers(x.Queue), reasons: out.Reasons}
	r.readKey(q, x.Priority, x.Key)
	e.flow, e.cold = q.lanes.flows[x.Key], q.lanes.cold.byKey[x.Key]
	for _, blocks := range blockers {
		blocks(e)
	}
	if len(e.reasons) == 0 {
		e.add(Reason{Code: task.WhyNext, Detail: fmt.Sprintf("nothing holds it back: the next claim that takes queue %q and type %q gets it", x.Queue, x.Type),
			Change: "a worker asks for tasks, which it does as soon as it has a free slot"})
	}
	out.Reasons = e.reasons
	return out, nil
}

// ExplainView is what can be said of a task without the leader of its shard.
func ExplainView(v *query.View) *Explanation {
	var last *schema.Attempt
	if n := len(v.Attempts); n > 0 {
		last = v.Attempts[n-1]
	}
	return explained(v.ID, v.Exec, last, v.MaxAttempts())
}

// blockers are what may hold back a task that waits, in the order in which it is decided. A new policy has its line here.
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

// explainer collects the reasons why a task that waits is not running.
type explainer struct {
	r       *Round
	q       *Queue
	id      task.ID
	x       *schema.Exec
	flow    *flow     // nil: nothing of its key is ready or claimed, or it is cold
	cold    *coldLane // of its key
	takers  Takers
	reasons []Reason
}

func (e *explainer) add(reason Reason) { e.reasons = append(e.reasons, reason) }

// ready says whether the task lies in its lane.
func (e *explainer) ready() bool { return e.x.State == task.Ready && !e.x.Parked() }

// held says whether a pause, a breaker or a limit keeps the task from running, whoever asks.
func (e *explainer) held() bool {
	return slices.ContainsFunc(e.reasons, func(r Reason) bool { return r.Code.Holds() })
}

func (e *explainer) uniqueKey() {
	if e.x.State != task.Ready || e.x.Role != schema.RoleNext {
		return
	}
	why := whyUnique(e.q.name, 1)
	if u, ok := schema.ReadUnique(e.r.tx, e.q.ns, e.q.name, e.x.Unique.Key); ok {
		why.Running = e.r.asRunners(e.q.ns, []task.ID{u.Holder})
	}
	e.add(why)
}

func (e *explainer) queuePaused() {
	if e.q.config.Paused {
		e.add(whyQueuePaused(e.q.name, &e.q.config))
	}
}

func (e *explainer) typePaused() {
	if h, held := e.q.config.HeldType(e.x.Type); held {
		e.add(whyHeld(e.q.name, h))
	}
}

func (e *explainer) breakerOpen() {
	b := e.q.breakers.of(e.x.Type)
	if b == nil || b.state == BreakerClosed || e.isProbe() {
		return
	}
	why := whyBreaker(e.q.name, b.info(e.q.config.Settings.BreakerOf(e.x.Type)))
	if b.probe != (task.ID{}) {
		why.Running = e.r.asRunners(e.q.ns, []task.ID{b.probe})
	}
	e.add(why)
}

// isProbe says whether the task is the one that the breaker of its type lets through.
func (e *explainer) isProbe() bool {
	shown := e.q.lanes.trials[e.x.Type]
	if shown == nil || !e.ready() || shown != e.q.lanes.byName[e.x.Lane()] {
		return false
	}
	older, _ := e.r.countBefore(e.q, shown, e.x.Seq, 1)
	return older == 0
}

func (e *explainer) keyPaused() {
	if h, held := e.q.config.HeldKey(e.x.Key); held {
		e.add(whyHeld(e.q.name, h))
	}
}

func (e *explainer) queueFull() {
	if e.ready() && e.q.full() {
		e.add(whyQueueFull(e.q.name, &e.q.config, e.q.counts.Claimed, e.r.runners(e.q)))
	}
}

func (e *explainer) namespaceFull() {
	if s := e.q.space; e.ready() && s.full() {
		e.add(whyNamespaceFull(s.info()))
	}
}

func (e *explainer) queueRate() {
	if rate := e.q.config.Settings.Rate; e.ready() {
		if until, empty := e.q.buckets[""].emptyUntil(rate, e.r.now); empty {
			e.add(whyQueueRate(e.q.name, &e.q.config, until, e.r.now))
		}
	}
}

func (e *explainer) keyFull() {
	rules := e.q.config.Settings.RulesOf(e.x.Key)
	if e.ready() && e.flow != nil && rules.MaxRunning > 0 && e.flow.use.claims() >= rules.MaxRunning {
		e.add(whyKeyFull(e.q.name, e.x.Key, rules.MaxRunning, e.flow.use.claims(), e.r.runnersOf(e.q.ns, e.flow)))
	}
}

func (e *explainer) keyRate() {
	if rate := e.q.config.Settings.RulesOf(e.x.Key).Rate; e.ready() && e.x.Key != "" {
		if until, empty := e.q.buckets[e.x.Key].emptyUntil(rate, e.r.now); empty {
			e.add(whyKeyRate(e.q.name, e.x.Key, rate, until, e.r.now))
		}
	}
}

func (e *explainer) draining() {
	if e.takers.Draining {
		e.add(whyDraining())
	}
}

func (e *explainer) noWorker() {
	if why := e.takers.why(e.q.name, e.x.Type, e.q.counts.Claimed, e.r.now); why != nil && why.Code != task.WhyWorkersBusy {
		e.add(*why)
	}
}

func (e *explainer) workersBusy() {
	if !e.ready() || e.held() {
		return
	}
	if why := e.takers.why(e.q.name, e.x.Type, e.q.counts.Claimed, e.r.now); why != nil && why.Code == task.WhyWorkersBusy {
		e.add(*why)
	}
}

// higherPriority counts the ready tasks of higher priorities of which some may run.
func (e *explainer) higherPriority() {
	if !e.ready() {
		return
	}
	p, n := int(e.x.Priority-task.High), int64(0)
	for higher := range p {
		if e.q.lanes.waits(higher) {
			n += e.q.counts.Ready[higher]
		}
	}
	if n == 0 {
		return
	}
	detail := fmt.Sprintf("%s of higher priority %s ready in queue %q, and what of them may run goes first", count(n, "task"), one(n, "is", "are"), e.q.name)
	if w := e.q.config.Settings.Weights; e.q.config.Settings.Weighted() {
		detail = fmt.Sprintf("%s of higher priority %s ready in queue %q, where priorities share the claims by their weights: %d, %d, %d",
			count(n, "task"), one(n, "is", "are"), e.q.name, w[0], w[1], w[2])
	}
	e.add(Reason{Code: task.WhyHigherPriority, Count: n, Detail: detail,
		Change: e.raise("they run, faster with more workers")})
}

// raise adds that a higher priority would help, if there is one.
func (e *explainer) raise(change string) string {
	if e.x.Priority == task.High {
		return change
	}
	return fmt.Sprintf("%s; or raise its priority: pawl task edit %s --priority high", change, e.id)
}

// otherKeys counts the keys whose next task comes before the next of this task's key.
func (e *explainer) otherKeys() {
	s, f, p := &e.q.lanes, e.flow, int(e.x.Priority-task.High)
	inOrder := f != nil && f.place[p] >= 0 || e.cold != nil && !e.cold.of.held
	if !e.ready() || !inOrder || !s.shared() {
		return
	}
	n, more := e.r.before(e.q, f, e.cold, p)
	if n == 0 {
		return
	}
	whose := fmt.Sprintf("key %q", e.x.Key)
	if e.x.Key == "" {
		whose = "the tasks without a key"
	}
	e.add(Reason{Code: task.WhyOtherKeys, Key: e.x.Key, Count: int64(n), More: more,
		Detail: fmt.Sprintf("%s%s of queue %q %s used less of the workers' time than %s and %s first",
			over(more), count(int64(n), "other key"), e.q.name, one(int64(n), "has", "have"), whose, one(int64(n), "goes", "go")),
		Change: "they have their turn; a key's weight gives it more of them: pawl queue set --for-key KEY --weight N"})
}

// before counts the keys that come before one in the order of a priority, looking at no more than maxAhead. The key is a flow or a
// cold lane.
func (r *Round) before(q *Queue, f *flow, c *coldLane, p int) (n int, more bool) {
	s := &q.lanes
	turnOf := func(g *flow) float64 { return max(g.rank, turn(s.price(g, r.now))) } // as settle would have it
	reads := maxAheadReads
	var mine order
	if c != nil {
		mine = order{c.rank().rank, r.firstOfCold(q, c, &reads)}
	} else {
		mine = order{turnOf(f), r.firstOf(q, f, p, &reads)}
	}
	looked := 0
	upTo := func(o order) bool {
		if more || mine.before(o) {
			return false // nor do those below it: their turn is no earlier than their rank
		}
		looked++
		more = looked > maxAhead
		return !more
	}
	s.order[p].walk(upTo, func(g *flow) {
		if its := turnOf(g); g != f && (its < mine.rank || its == mine.rank && r.firstOf(q, g, p, &reads) < mine.first) {
			n++
		}
	})
	s.cold.order[p].walk(upTo, func(t *coldType) {
		t.lanes.walk(upTo, func(d *coldLane) {
			if its := d.rank().rank; d != c && (its < mine.rank || its == mine.rank && r.firstOfCold(q, d, &reads) < mine.first) {
				n++
			}
		})
	})
	return n, more
}

// firstOfCold is the sequence number of a cold lane's first task. One that is not in memory is read while there are reads left, else a
// lower bound is taken.
func (r *Round) firstOfCold(q *Queue, c *coldLane, reads *int) uint64 {
	if c.first.ID != (task.ID{}) {
		return c.first.Seq
	}
	return r.firstIn(q, c.lane(), c.first.Seq, reads)
}

// firstIn is the sequence number of a lane's first task, of which a lower bound is known.
func (r *Round) firstIn(q *Queue, l *lane, first uint64, reads *int) uint64 {
	if len(l.head) == 0 && *reads > 0 {
		*reads--
		schema.ScanLane(r.tx, q.ns, q.name, l.LaneName, l.inRow, first, math.MaxUint64, func(t schema.ReadyTask) bool {
			first = t.Seq
			return false
		})
	}
	return first
}

// firstOf is the first sequence number of a flow in a priority. Of lanes of which nothing is in memory it is read while there are
// reads left, else a lower bound is taken.
func (r *Round) firstOf(q *Queue, f *flow, p int, reads *int) uint64 {
	best, lanes := uint64(math.MaxUint64), f.ready[p].items
	var look func(at int)
	look = func(at int) {
		if at >= len(lanes) || lanes[at].first >= best {
			return
		}
		best = min(best, r.firstIn(q, lanes[at].of, lanes[at].first, reads))
		look(2*at + 1)
		look(2*at + 2)
	}
	look(0)
	return best
}

// olderTasks counts the tasks of the same key and priority that became ready before. They come first in claims that take their
// types.
func (e *explainer) olderTasks() {
	own := e.q.lanes.byName[e.x.Lane()]
	if e.cold != nil {
		own = e.cold.lane()
	}
	if !e.ready() || own == nil {
		return
	}
	sameType, more := e.r.countBefore(e.q, own, e.x.Seq, maxAhead)
	n, looked := sameType, 0
	var others []ranked[*lane]
	if e.flow != nil {
		others = e.flow.ready[e.x.Priority-task.High].items
	}
	var look func(at int)
	look = func(at int) {
		if at >= len(others) || others[at].first > e.x.Seq || more {
			return
		}
		if looked++; looked > maxAheadLanes {
			more = true
			return
		}
		if l := others[at].of; l != own {
			k, cut := e.r.countBefore(e.q, l, e.x.Seq, maxAhead-n)
			n, more = n+k, cut
		}
		look(2*at + 1)
		look(2*at + 2)
	}
	look(0)
	if n == 0 {
		return
	}
	of := "without a key"
	if e.x.Key != "" {
		of = fmt.Sprintf("of key %q", e.x.Key)
	}
	detail := fmt.Sprintf("%s%s %s and of its priority came before it", over(more), count(int64(n), "task"), of)
	if n > sameType {
		detail += fmt.Sprintf(": %d of its type, %d that go first in claims that take their types", sameType, n-sameType)
	}
	e.add(Reason{Code: task.WhyOlderTasks, Key: e.x.Key, Count: int64(n), More: more, Detail: detail, Change: e.raise("they run, faster with more workers")})
}

// countBefore counts the tasks of a lane before a sequence number, up to most.
func (r *Round) countBefore(q *Queue, l *lane, seq uint64, most int) (n int, more bool) {
	n = sort.Search(len(l.head), func(i int) bool { return l.head[i].Seq >= seq })
	if n == len(l.head) && l.scan < seq && l.count > int64(n) {
		schema.ScanLane(r.tx, q.ns, q.name, l.LaneName, l.inRow, l.scan, seq, func(schema.ReadyTask) bool {
			n++
			return n <= most
		})
	}
	if n > most {
		return most, true
	}
	return n, false
}

// emptyUntil says whether a bucket has no token, and when it has one again.
func (b *bucket) emptyUntil(rate task.Rate, now store.Time) (until store.Time, empty bool) {
	if b == nil || !rate.IsSet() {
		return 0, false
	}
	at := *b // the bucket itself stays as it is
	if at.fill(rate, now); at.level >= enough {
		return 0, false
	}
	return max(at.reaches(1, rate), now+1), true
}

// runnersOf are tasks of a key that are claimed.
func (r *Round) runnersOf(ns string, f *flow) []Runner {
	var ids []task.ID
	f.use.each(func(id task.ID) bool {
		ids = append(ids, id)
		return len(ids) < maxLooked
	})
	return r.asRunners(ns, ids)
}

// runners are tasks of a queue that are claimed: of those of keys all are known, of the others those that this leader has in
// memory.
func (r *Round) runners(q *Queue) []Runner {
	var ids []task.ID
	looked := 0
	for id, t := range r.l.hot.tasks {
		if t.ns == q.ns && t.exec.Queue == q.name && t.exec.State == task.Claimed {
			ids = append(ids, id)
		}
		if looked++; looked == maxLooked {
			break
		}
	}
	return r.asRunners(q.ns, ids)
}

func (r *Round) asRunners(ns string, ids []task.ID) (running []Runner) {
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

// lastAttempt is the last attempt that has ended, if there was one.
func lastAttempt(from store.Reader, ns string, id task.ID) (last *schema.Attempt) {
	prefix := schema.IDKey(ns, schema.TableAttempt, id)
	from.ScanBack(prefix, schema.After(prefix), func(k, v []byte) bool {
		var err error
		last, err = schema.DecodeAttempt(binary.BigEndian.Uint64(k[len(k)-8:]), v)
		schema.Must(err)
		return false
	})
	return last
}

// WaitsIn is the queue of a task that waits; "": it does not, or is not there.
func WaitsIn(from store.Reader, ns string, id task.ID) string {
	row, ok := from.Get(schema.IDKey(ns, schema.TableExec, id))
	if !ok {
		return ""
	}
	x, err := schema.DecodeExec(row)
	schema.Must(err)
	if !x.State.Waiting() {
		return ""
	}
	return x.Queue
}
