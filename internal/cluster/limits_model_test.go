package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// engines is data shards without Raft: each is an engine over a store in memory. Calls to them, and their answers, are lost or late.
//
// What happens to a call follows from the seed, the call, and the moment, and no two calls take the same time: so the
// order of goroutines does not matter. A seed gives nearly the same run each time; a loop of the control plane that may
// read from either of two channels reads from any.
type engines struct {
	t    testing.TB
	seed uint64
	rng  *rand.Rand // of the test's own goroutine

	mu     sync.Mutex
	well   bool      // nothing is lost
	slept  time.Time // when the machines were suspended last: what was sent before does not arrive afterwards
	shards map[uint32]*engineShard
	trace  []string

	onShare atomic.Pointer[func(to task.Share)] // called when a share is sent; nil: nobody asks
}

type engineShard struct {
	store  *store.Store
	leader *engine.Leader
	index  uint64
	down   bool
	runs   []running
	done   int // tasks that have ended
}

type running struct {
	id    task.ID
	token task.Token
	ends  time.Time
}

var errNoAnswer = task.Unavailable(0, "no answer")

func newEngines(t testing.TB, seed uint64, n int) *engines {
	e := &engines{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), well: true, shards: map[uint32]*engineShard{}}
	for shard := range n {
		s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		e.shards[uint32(shard)+1] = &engineShard{store: s}
		e.shards[uint32(shard)+1].lead()
	}
	return e
}

// lead has a shard begin with a leader that remembers nothing.
func (s *engineShard) lead() {
	s.leader = engine.NewLeader(engine.LeaderTerm{Began: store.TimeOf(time.Now()), Before: s.store.Applied().Time}, task.DefaultLimits())
}

// round runs a call in a round of its own. The caller holds the lock.
func (e *engines) round(shard uint32, call func(r *engine.Round) error) error {
	s := e.shards[shard]
	s.index++
	now := store.TimeOf(time.Now())
	tx := s.store.Begin(now, s.index)
	defer tx.Close()
	r := s.leader.Begin(tx)
	err := call(r)
	r.Seal()
	if applied := s.store.Apply(store.Position{Index: s.index, Term: 1, Time: now}, tx.Seal(nil)); applied != nil {
		e.t.Fatal(applied)
	}
	return err
}

// fate is what happens to a call.
type fate struct {
	lost, unanswered bool
	there, back      time.Duration // how long the call and its answer take
	again            time.Duration // when it arrives a second time, after its caller has given up; 0: never
}

// fateOf decides what happens to a call that is made now.
func (e *engines) fateOf(kind string, shard uint32) (f fate) {
	h := fnv.New64a()
	fmt.Fprint(h, kind, shard, time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(e.seed, h.Sum64()))
	f.there, f.back = time.Duration(1+rng.IntN(1e6)), time.Duration(1+rng.IntN(1e6))
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.well {
		return f
	}
	late := func(d *time.Duration) {
		if rng.IntN(12) == 0 {
			*d += time.Duration(rng.IntN(2.5e9))
		}
	}
	f.lost, f.unanswered = rng.IntN(10) == 0, rng.IntN(10) == 0
	late(&f.there)
	late(&f.back)
	if rng.IntN(3) == 0 {
		f.again = time.Duration(rng.Int64N(int64(queues.RetireEvery / 2)))
	}
	return f
}

// call is a call of the control plane to a shard. again is what it does when it arrives again later; nil: it does not.
func (e *engines) call(ctx context.Context, kind string, shard uint32, fn, again func(r *engine.Round) error) error {
	f, sent := e.fateOf(kind, shard), time.Now()
	if f.again != 0 && again != nil {
		time.AfterFunc(f.again, func() { e.arriveLate(kind+" again", shard, again, sent) })
	}
	if system.Sleep(ctx, f.there); f.lost || ctx.Err() != nil {
		return errNoAnswer
	}
	err := e.arrive(kind, shard, fn, sent)
	if system.Sleep(ctx, f.back); f.unanswered || ctx.Err() != nil {
		return errNoAnswer
	}
	return err
}

// arriveLate runs a call in its shard as soon as that has a leader, unless it is too late by then.
func (e *engines) arriveLate(kind string, shard uint32, fn func(r *engine.Round) error, sent time.Time) {
	if e.isDown(shard) && time.Since(sent) < queues.RetireEvery/2 {
		time.AfterFunc(500*time.Millisecond, func() { e.arriveLate(kind, shard, fn, sent) })
		return
	}
	_ = e.arrive(kind, shard, fn, sent)
}

// arrive runs a call in its shard, if that has a leader.
func (e *engines) arrive(kind string, shard uint32, fn func(r *engine.Round) error, sent time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shards[shard].down || sent.Before(e.slept) {
		return errNoAnswer
	}
	err := e.round(shard, fn)
	e.note("%s in shard %d: %v", kind, shard, err)
	return err
}

// note adds a line to what is shown when a test fails. The caller holds the lock.
func (e *engines) note(format string, args ...any) {
	e.trace = append(e.trace, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (e *engines) CopyQueues(ctx context.Context, shard uint32, ns string, _ uint64, configs map[string]task.QueueConfig) error {
	put := func(r *engine.Round) error {
		for name, c := range configs {
			engine.PutQueue(r, ns, name, c)
		}
		return nil
	}
	c := configs["a"]
	return e.call(ctx, fmt.Sprint("copy ", c.Version, " moved ", c.Moved, " limits ", c.Settings.MaxRunning, c.Settings.MaxLength), shard,
		put, put)
}

func (e *engines) DropQueue(ctx context.Context, shard uint32, ns, name string, version uint64) error {
	drop := func(r *engine.Round) error { return engine.DropQueue(r, ns, name, version) }
	return e.call(ctx, fmt.Sprint("drop ", version), shard, drop, drop)
}

func (e *engines) Spaces(ctx context.Context, shard uint32, names []task.SpaceName) (out []task.Space, err error) {
	err = e.call(ctx, "ask", shard, func(r *engine.Round) error {
		for _, name := range names {
			out = append(out, engine.Space(r, name))
		}
		e.note("shard %d answers: %+v", shard, out)
		return nil
	}, nil)
	return out, err
}

func (e *engines) PutShare(ctx context.Context, shard uint32, name task.SpaceName, to task.Share) (out task.Space, err error) {
	if f := e.onShare.Load(); f != nil {
		(*f)(to)
	}
	err = e.call(ctx, fmt.Sprintf("share %+v", to), shard, func(r *engine.Round) error {
		out = engine.PutShare(r, name, to)
		e.note("shard %d has: %+v", shard, out)
		return nil
	}, func(r *engine.Round) error {
		engine.PutShare(r, name, to)
		return nil
	})
	return out, err
}

func (e *engines) EraseNamespace(context.Context, uint32, string, uint64) error { return nil }

func (e *engines) CopyWatches(context.Context, uint32, map[string]task.Watch) error { return nil }

func (e *engines) CheckKeys(context.Context, uint32, string, string) error { return nil }

func (e *engines) KeysUntil(context.Context, uint32, string, string) (store.Time, error) {
	return 0, nil
}

func (e *engines) HoldsUnique(context.Context, uint32, string, string, task.SlotSet) (bool, error) {
	return false, nil
}

func (e *engines) OnceUntil(context.Context, uint32, string, string, task.SlotSet) (store.Time, error) {
	return 0, nil
}

// enqueue gives a task to a shard, if it takes any, and reports whether it was refused because the queue is full.
func (e *engines) enqueue(shard uint32) (full bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	spec := task.Spec{Queue: "a", Type: "t", Key: fmt.Sprint("k", e.rng.IntN(100))}
	spec.Fill()
	err := e.round(shard, func(r *engine.Round) error {
		_, err := engine.Enqueue(r, &engine.NewTask{Spec: spec, Namespace: "default", ID: task.NewID(shard, time.Now().UnixMilli(),
			e.rng.Uint64())})
		return err
	})
	return errors.Is(err, task.ErrQueueFull)
}

// claim claims up to most tasks in a shard, each of which runs for some time, and returns how many.
func (e *engines) claim(shard uint32, most int, took func() time.Duration) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.shards[shard]
	if s.down {
		return 0
	}
	var got []engine.Claimed
	_ = e.round(shard, func(r *engine.Round) error {
		got, _ = engine.ClaimTasks(r, &engine.ClaimRequest{Namespace: "default", Queues: []engine.Share{{Queue: "a"}},
			Max: most, MaxBytes: 1 << 20, Lease: time.Hour, Entropy: e.rng.Uint64()})
		return nil
	})
	for _, c := range got {
		s.runs = append(s.runs, running{c.ID, c.Token, time.Now().Add(took())})
	}
	return len(got)
}

// end ends the tasks whose time is over.
func (e *engines) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard := range uint32(len(e.shards)) {
		s := e.shards[shard+1]
		var left []running
		for _, t := range s.runs {
			if s.down || time.Now().Before(t.ends) {
				left = append(left, t)
			} else if err := e.round(shard+1, func(r *engine.Round) error {
				_, err := engine.Ack(r, engine.Hold{Namespace: "default", ID: t.id, Token: t.token}, schema.Result{})
				return err
			}); err != nil {
				e.t.Errorf("task %s can't end: %v", t.id, err)
			} else {
				s.done++
			}
		}
		s.runs = left
	}
}

// show shows what happened, if the test has failed.
func (e *engines) show() {
	if e.t.Failed() {
		e.t.Log(strings.Join(e.trace, "\n"))
	}
}

// clear ends all tasks.
func (e *engines) clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard, s := range e.shards {
		_ = e.round(shard, func(r *engine.Round) error {
			for _, t := range s.runs {
				_ = engine.Cancel(r, "default", t.id)
			}
			_, _, err := engine.Purge(r, "default", "a", engine.Purging{}, 1000)
			return err
		})
		s.runs = nil
	}
}

// copyOf returns a shard's copy of the queue.
func (e *engines) copyOf(shard uint32) (c task.QueueConfig, has bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, err := engine.CopiedQueues(e.shards[shard].store)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, q := range all {
		c, has = q.Config, true
	}
	return c, has
}

// space returns what the queue uses in a shard.
func (e *engines) space(shard uint32) (s task.Space) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.round(shard, func(r *engine.Round) error {
		s = engine.Space(r, task.SpaceName{Namespace: "default", Queue: "a"})
		return nil
	})
	return s
}

// log is note for a caller that does not hold the lock.
func (e *engines) log(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note(format, args...)
}

// sum returns how many tasks run and how many wait in all shards.
func (e *engines) sum() (runs int, waits int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for shard := range uint32(len(e.shards)) {
		runs += len(e.shards[shard+1].runs)
		_ = e.round(shard+1, func(r *engine.Round) error {
			waits += engine.Space(r, task.SpaceName{Namespace: "default", Queue: "a"}).Use.Backlog
			return nil
		})
	}
	return runs, waits
}

// inForce is the highest limits that may be in force: those of the last call that succeeded, unless a later one has
// changed the row since, and those that calls have tried to set since.
type inForce struct {
	mu   sync.Mutex
	last int // the number of the last call
	most task.Amounts
}

// try notes that limits are about to be set. ok is called when the call has succeeded.
func (l *inForce) try(to task.Quotas) (ok func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := to.Whole()
	l.last++
	this := l.last
	l.most.Running, l.most.Backlog = max(l.most.Running, whole.Running), max(l.most.Backlog, whole.Backlog)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if this == l.last {
			l.most = whole
		}
	}
}

func (l *inForce) now() task.Amounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// TestLimitsOfSpreadQueues runs a queue over shards with the engine in each, while it is spread over others and back, deleted and created
// again in another shard, its limits change and go away, leaders change and come back, and calls, answers and whole shards are lost or
// late. Calls go on beside each other. No task begins, and none is accepted, beyond the limits of the queue. Shards may use no more
// together, and the row says of each at least what it may use. In the end, with a limit below the number of shards, each shard's tasks make
// progress.
func TestLimitsOfSpreadQueues(t *testing.T) {
	var all modelCounts
	for seed := range seeds(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) { limitsModel(t, w, seed, &all) })
		})
	}
	if !testing.Short() && (all.began < 60 || all.accepted < 60 || all.full < 30 || all.spread < 5 || all.dropped < 5) {
		t.Errorf("the model does too little: %+v", all)
	}
}

// modelCounts counts what the models did.
type modelCounts struct {
	began, accepted, full int // tasks
	spread, dropped       int // how often a queue was spread and deleted, while calls were lost
}

// limitsRun is a run of the model.
type limitsRun struct {
	t        *testing.T
	w        *world
	e        *engines
	rng      *rand.Rand
	replicas []*systemReplica
	leads    int
	limits   inForce
	set      task.Quotas    // what was set last
	calls    sync.WaitGroup // that go on beside the steps
	begun    int            // number of calls

	mu     sync.Mutex              // guards the fields below
	shares map[uint64]task.Amounts // the sums of those that were sent, by version
	before task.Amounts            // the limits before they were set last
	setAt  time.Time
}

const modelShards = 4

// elect makes the other replica the leader, or elects the same one again.
func (m *limitsRun) elect(other bool) {
	if other {
		m.leads = 1 - m.leads
	}
	m.e.log("leader %d", m.leads)
	m.replicas[m.leads].lead()
}

// call makes a call beside the steps. What it changes in the row it has changed when call returns.
func (m *limitsRun) call(what string, fn func(c *Control) error) {
	c := m.w.leader.control
	m.begun++
	n := m.begun
	m.calls.Go(func() {
		m.e.log("call %d begins: %s", n, what)
		err := fn(c)
		m.e.log("call %d ends: %v", n, err)
	})
	synctest.Wait()
}

// putLimits sets the limits of the queue. A queue that does not exist is created, in a shard chosen at random.
func (m *limitsRun) putLimits(running, length int64) {
	m.set = task.Quotas{Running: running, Backlog: length}
	m.mu.Lock()
	m.before, m.setAt = m.inRow(), time.Now()
	m.mu.Unlock()
	ok := m.limits.try(m.set)
	home := m.w.Get(system.Key(system.QueueTable, "default", "a")) == nil
	if home {
		m.dataShards(1 + m.rng.IntN(modelShards))
	}
	m.call(fmt.Sprint("limits ", running, " ", length), func(c *Control) error {
		err := putLimits(c, running, length)
		if err == nil {
			ok()
		}
		return err
	})
	if home {
		m.dataShards(modelShards)
	}
}

// inRow returns the limits of the queue.
func (m *limitsRun) inRow() task.Amounts {
	snap := m.w.State.Snapshot()
	defer snap.Close()
	q, _, _, err := queues.Get(snap, "default", "a")
	must(m.t, err)
	return q.Limits().Whole()
}

// checkShare checks that the shares of one division allow no more together than the limits when it was written: those of now, or, in the
// moment in which they are set, those before.
func (m *limitsRun) checkShare(to task.Share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum, limits := m.shares[to.Version], m.inRow()
	for f, all := range sum.Each() {
		limit := *limits.Each()[f]
		if m.setAt.Equal(time.Now()) {
			limit = max(limit, *m.before.Each()[f])
		}
		if limit == task.NoLimit {
			continue
		}
		if *all += *to.Each()[f]; *all > limit {
			m.t.Errorf("the shares of version %d allow %d of %s, want at most %d", to.Version, *all, task.ShareQuotas[f], limit)
		}
	}
	m.shares[to.Version] = sum
}

func putLimits(c *Control, running, length int64) error {
	_, err := c.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error {
		c.Settings.MaxRunning, c.Settings.MaxLength = int(running), length
		return nil
	})
	return err
}

// dataShards has the next queue be created in one of the first n shards.
func (m *limitsRun) dataShards(n int) {
	m.w.Round(func(tx *store.Tx) {
		s, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
		must(m.t, err)
		s.DataShards = n
		tx.Set(system.SettingsKey, system.EncodeRow(s))
	})
}

func (m *limitsRun) spread(n int, all *modelCounts) {
	shards := pick(m.rng, modelShards, n)
	m.call(fmt.Sprint("spread ", shards), func(c *Control) error {
		_, err := c.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Shards: shards})
		if err == nil {
			m.limits.mu.Lock()
			defer m.limits.mu.Unlock()
			all.spread++
		}
		return err
	})
}

// recreate deletes the queue when its tasks have ended, and creates another one of that name.
func (m *limitsRun) recreate(all *modelCounts) {
	m.e.clear()
	m.call("drop", func(c *Control) error {
		err := c.Queues.DropQueue(bg, task.Author{}, "default", "a")
		if err == nil {
			m.limits.mu.Lock()
			defer m.limits.mu.Unlock()
			all.dropped++
		}
		return err
	})
	m.pass(3 * time.Second)
	m.putLimits(m.set.Running, m.set.Backlog)
	m.pass(time.Second)
	m.spread(2+m.rng.IntN(modelShards-1), all)
}

// pass lets up to most of fake time pass.
func (m *limitsRun) pass(most time.Duration) { pass(time.Duration(m.rng.Int64N(int64(most)))) }

func limitsModel(t *testing.T, w *world, seed uint64, all *modelCounts) {
	w.open(modelShards)
	m := &limitsRun{t: t, w: w, e: newEngines(t, seed, modelShards), rng: rand.New(rand.NewPCG(seed, 5)), shares: map[uint64]task.Amounts{}}
	check := m.checkShare
	m.e.onShare.Store(&check)
	e, rng := m.e, m.rng
	defer e.show()
	defer m.calls.Wait()
	m.replicas = []*systemReplica{w.newReplicaOver(e), w.newReplicaOver(e)}
	m.replicas[0].lead()
	m.putLimits(3, 20)
	e.be(false)
	for step := range 700 {
		shard := uint32(rng.IntN(modelShards)) + 1
		switch rng.IntN(48) {
		case 0:
			m.elect(rng.IntN(3) > 0)
		case 1:
			e.toggle(shard)
		case 2:
			e.toggle(0)
		case 3, 4:
			m.spread(1+rng.IntN(modelShards), all)
		case 5:
			m.putLimits([]int64{0, 1, 2, 3, 5, 9}[rng.IntN(6)], []int64{0, 1, 5, 20}[rng.IntN(4)])
		case 6, 7: // limits change, or go away, for moments, perhaps while another leads
			was := m.set
			m.putLimits([]int64{0, 9}[rng.IntN(2)], was.Backlog*int64(rng.IntN(2)))
			m.pass(time.Second)
			elects := rng.IntN(2) == 0
			if elects {
				m.elect(true)
			}
			m.begin(step, uint32(rng.IntN(modelShards))+1, all)
			m.putLimits(was.Running, was.Backlog)
			m.pass(time.Second)
			if elects {
				m.elect(true)
			}
		case 8:
			if rng.IntN(3) == 0 {
				m.recreate(all)
			}
		case 9, 10, 11, 12:
			m.pass(2 * time.Second)
		case 13:
			m.pass(90 * time.Second)
		case 14:
			if rng.IntN(4) == 0 {
				e.suspend()
				w.Sleep(task.MovedMessageWindow) // then what slots have left behind is forgotten
			}
		case 15, 16, 17, 18, 19, 20, 21, 22:
			m.begin(step, shard, all)
		default:
			m.accept(step, shard, all)
		}
		e.end()
		m.checkRow(step)
		if rng.IntN(3) > 0 {
			m.pass(100 * time.Millisecond)
		}
		synctest.Wait()
	}
	m.calls.Wait()
	e.onShare.Store(nil) // calls that were given up may still run
	everyShardProgresses(t, e, func(running, length int64) bool { return putLimits(w.leader.control, running, length) == nil },
		func() error {
			_, err := w.leader.control.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Parts: modelShards})
			return err
		})
}

// begin lets tasks begin in a shard.
func (m *limitsRun) begin(step int, shard uint32, all *modelCounts) {
	before, _ := m.e.sum()
	n := m.e.claim(shard, 1+m.rng.IntN(4), func() time.Duration { return time.Duration(m.rng.IntN(12_000)) * time.Millisecond })
	if all.began += n; n > 0 && int64(before+n) > m.limits.now().Running {
		m.t.Fatalf("step %d: %d tasks run, and %d more began in shard %d, want at most %d", step, before, n, shard, m.limits.now().Running)
	}
}

// accept gives a task to a shard. One whose copy is of an earlier queue of that name gets none.
func (m *limitsRun) accept(step int, shard uint32, all *modelCounts) {
	q, err := m.w.leader.control.Queues.Queue(bg, "default", "a")
	if c, has := m.e.copyOf(shard); err != nil || !has || m.e.isDown(shard) || !c.CreatedAt.Equal(q.Config.CreatedAt) {
		return
	}
	_, before := m.e.sum()
	if m.e.enqueue(shard) {
		all.full++
	}
	if _, after := m.e.sum(); after > before {
		if all.accepted++; after > m.limits.now().Backlog {
			m.t.Fatalf("step %d: %d tasks wait, and one more was accepted in shard %d, want at most %d", step, before, shard,
				m.limits.now().Backlog)
		}
	}
}

// checkRow checks that the row that says how the queue's limits are divided allows what shards may use and do use.
func (m *limitsRun) checkRow(step int) {
	m.w.Rounds.Lock() // nobody divides
	defer m.w.Rounds.Unlock()
	snap := m.w.State.Snapshot()
	defer snap.Close()
	q, _, ok, err := queues.Get(snap, "default", "a")
	must(m.t, err)
	row, divided, err := system.GetRow[struct {
		Parts []struct {
			Shard uint32
			Most  task.Amounts
		}
	}](snap, system.Key(system.DivisionTable, "default", "a"))
	must(m.t, err)
	if want := ok && q.Limits() != (task.Quotas{}); divided != want {
		m.t.Fatalf("step %d: the queue has limits that are divided: %t, and a row: %t", step, want, divided)
	}
	if row.Parts == nil {
		return
	}
	limits := q.Limits().Whole()
	var sum task.Amounts
	for shard := range uint32(modelShards) {
		shard++
		c, has := m.e.copyOf(shard)
		if !has || !c.CreatedAt.Equal(q.Config.CreatedAt) {
			continue
		}
		var most task.Amounts
		for _, p := range row.Parts {
			if p.Shard == shard {
				most = p.Most
			}
		}
		s, own := m.e.space(shard), c.Settings.Limits().Whole()
		for f, all := range sum.Each() {
			if may := *s.Share.Each()[f]; *all != task.NoLimit {
				*all = min(*all, task.NoLimit-may) + may
			}
		}
		for f, limit := range limits.Each() {
			may, uses, allowed := *s.Share.Each()[f], *s.Use.Each()[f], *most.Each()[f]
			if own := *own.Each()[f]; own == task.NoLimit {
				may = 0 // it may use what it likes until it gets its copy
			} else if !c.Divided {
				may = own
			}
			if *limit != task.NoLimit && max(may, uses) > allowed {
				m.t.Fatalf("step %d: shard %d may use %d and uses %d of %s, and the row allows %d", step, shard, may, uses,
					task.ShareQuotas[f], allowed)
			}
		}
	}
	now := m.limits.now()
	for f, all := range sum.Each() {
		if *all > *now.Each()[f] && f != 1 {
			m.t.Fatalf("step %d: shards may use %d of %s, want at most %d", step, *all, task.ShareQuotas[f], *now.Each()[f])
		}
	}
}

// everyShardProgresses ends the faults, and lets a queue over all shards run one task at a time.
func everyShardProgresses(t *testing.T, e *engines, set func(running, length int64) bool, spread func() error) {
	e.be(true)
	pass(2 * time.Minute)
	e.end()
	if err := spread(); err != nil {
		t.Fatalf("without faults, the queue can't be spread: %v", err)
	}
	if !set(1, 40) {
		t.Fatal("without faults, the limits can't be set")
	}
	was := map[uint32]int{}
	for shard := range e.shards {
		was[shard] = e.shards[shard].done
	}
	for range 4 * 60 * 4 {
		for shard := range uint32(len(e.shards)) {
			e.enqueue(shard + 1)
			e.claim(shard+1, 1, func() time.Duration { return 2 * time.Second })
		}
		if runs, waits := e.sum(); runs > 1 || waits > 40 {
			t.Fatalf("%d tasks run and %d wait, want at most one and 40", runs, waits)
		}
		pass(250 * time.Millisecond)
		e.end()
	}
	for shard, s := range e.shards {
		if s.done-was[shard] < 3 {
			t.Errorf("in four minutes, shard %d ended %d tasks", shard, s.done-was[shard])
		}
	}
}

// pick returns n of the shards.
func pick(rng *rand.Rand, shards, n int) (some []uint32) {
	for _, i := range rng.Perm(shards)[:n] {
		some = append(some, uint32(i)+1)
	}
	return some
}

// be ends all faults, or lets calls be lost again.
func (e *engines) be(well bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.well = well; well {
		for _, s := range e.shards {
			s.down = false
		}
	}
}

// toggle takes a shard down, or brings it back with a new leader; 0: brings all back.
func (e *engines) toggle(shard uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n, s := range e.shards {
		if n == shard || shard == 0 {
			if s.down = !s.down && shard != 0; !s.down {
				s.lead()
			}
		}
	}
}

// suspend has nothing arrive that is on its way.
func (e *engines) suspend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slept = time.Now()
}

func (e *engines) isDown(shard uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.shards[shard].down
}

// While a queue has no limits, nobody keeps account of what its shards use, so nothing is known of it when the queue gets limits again.
func TestLimitsRemovedAndSetAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(2)
		replica := w.newReplicaOver(newEngines(t, 1, 2))
		replica.lead()
		set := func(running, length int64) string {
			must(t, putLimits(replica.control, running, length))
			row, _, _ := strings.Cut(string(w.Get(system.Key(system.DivisionTable, "default", "a"))), ",")
			return row
		}
		set(3, 0)
		_, err := replica.control.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Parts: 2})
		must(t, err)
		before := set(3, 0)
		if got := set(0, 0); got != "" {
			t.Errorf("a queue without limits has the row %s", got)
		}
		for _, length := range []int64{0, 20} {
			for _, running := range []int64{0, 3} {
				after := set(running, length)
				if free := running+length == 0; (after == "") != free || !free && after == before {
					t.Errorf("with the limits %d and %d, the row begins with %s, and began with %s before", running, length, after, before)
				}
				before = after
			}
		}
		for _, without := range [][2]int64{{3, 0}, {0, 20}, {3, 0}, {0, 20}} { // one of two limits goes away, and comes back
			set(without[0], without[1])
			if after := set(3, 20); after == before {
				t.Errorf("the limits were %v and are two again, and the row still begins with %s", without, after)
			} else {
				before = after
			}
		}
	})
}

// After a recovery, nothing is known of what shards may use of a queue's limits.
func TestRecoveredLimits(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		e := newEngines(t, 1, 2)
		w.open(2)
		replica := w.newReplicaOver(e)
		replica.lead()
		_, err := replica.control.Queues.PutQueue(bg, auditlog.Action{}, "default", "a", func(c *task.QueueConfig) error {
			c.Settings.MaxRunning = 3
			return nil
		})
		must(t, err)
		_, err = replica.control.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Parts: 2})
		must(t, err)
		row := func() string { return string(w.Get(system.Key(system.DivisionTable, "default", "a"))) }
		if got := row(); !strings.Contains(got, `"shard":1`) || !strings.Contains(got, `"shard":2`) {
			t.Fatalf("the limits of a spread queue are divided as %s", got)
		}
		for shard := range uint32(2) { // it is newer than the system shard
			must(t, e.round(shard+1, func(r *engine.Round) error {
				engine.PutShare(r, task.SpaceName{Namespace: "default", Queue: "a"}, task.Share{Version: 1 << 50, Moved: 1 << 50})
				return nil
			}))
		}
		must(t, replica.Update(bg, func(tx *store.Tx) error { return Recovered(tx, 1, map[uint32]uint64{}, nil) }))
		if got := row(); got == "" || strings.Contains(got, `"shard"`) {
			t.Errorf("after a recovery the row is %s", got)
		}
		pass(2 * time.Minute)
		for shard := range uint32(2) {
			if share := e.space(shard + 1).Share; share.Running == 0 {
				t.Errorf("two minutes later, shard %d may run no task of 3", shard+1)
			}
		}
	})
}

// A queue gets its first limits while one of its shards is away. They are divided when it is back, although nobody repeats the call.
func TestLimitsSetWithoutAShard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(2)
		e := newEngines(t, 1, 2)
		replica := w.newReplicaOver(e)
		replica.lead()
		must(t, putLimits(replica.control, 0, 0))
		_, err := replica.control.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Parts: 2})
		must(t, err)
		pass(time.Hour)
		e.toggle(1)
		is(t, putLimits(replica.control, 4, 0), task.ErrUnavailable)
		pass(time.Minute)
		e.toggle(1)
		pass(time.Minute)
		for shard := range uint32(2) {
			if share := e.space(shard + 1).Share; share.Running != 2 {
				t.Errorf("a minute after shard 1 is back, shard %d may run %d tasks of 4", shard+1, share.Running)
			}
		}
	})
}

// A shard is away while its queue gets a lower limit. The other shard goes on with what that shard may not use, unless the queue was being
// deleted, since then nobody knows that. All is divided when the shard is back, although nobody repeats the call.
func TestLimitLoweredWithoutAShard(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			w.open(2)
			e := newEngines(t, 1, 2)
			replica := w.newReplicaOver(e)
			replica.lead()
			must(t, putLimits(replica.control, 8, 0))
			_, err := replica.control.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Parts: 2})
			must(t, err)
			pass(time.Minute)
			e.toggle(1)
			if deleted {
				is(t, replica.control.Queues.DropQueue(bg, task.Author{}, "default", "a"), task.ErrUnavailable)
			}
			is(t, putLimits(replica.control, 7, 0), task.ErrUnavailable)
			pass(time.Minute)
			if first, second := e.space(1).Share.Running, e.space(2).Share.Running; first != 4 || !deleted && second != 3 {
				t.Errorf("of 7 tasks, the shard that is away may run %d, and the other one %d", first, second)
			}
			e.toggle(1)
			pass(time.Minute)
			if first, second := e.space(1).Share.Running, e.space(2).Share.Running; second == 0 || first+second != 7 {
				t.Errorf("deleted: %t: a minute after the first shard is back, the shards may run %d and %d of 7 tasks",
					deleted, first, second)
			}
		})
	}
}

// The last places of a queue go to the shard that refuses tasks, though others have some.
func TestLastPlaceGoesWhereItIsNeeded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.open(2)
		e := newEngines(t, 1, 2)
		replica := w.newReplicaOver(e)
		replica.lead()
		must(t, putLimits(replica.control, 0, 5))
		_, err := replica.control.Queues.Spread(bg, task.Author{}, "default", "a", queues.SpreadTarget{Parts: 2})
		must(t, err)
		waits := func(shard uint32) int64 { return e.space(shard).Use.Backlog }
		fill := func(shard uint32, most int64) {
			for range 100 {
				if waits(shard) < most {
					e.enqueue(shard)
				}
				pass(100 * time.Millisecond)
			}
			if waits(shard) != most {
				t.Errorf("shard %d refuses tasks for 10 s: %d and %d of 5 wait", shard, waits(1), waits(2))
			}
		}
		fill(1, 4)
		fill(2, 1)
	})
}
