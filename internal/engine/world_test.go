package engine

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/lanes"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// World is a shard without Raft: rounds are applied immediately to a store in memory, at a time that tests control.
type World struct {
	T      testing.TB
	Store  *store.Store
	Leader *Leader
	Epoch  uint64 // of the shard
	Now    store.Time
	Index  uint64
	Last   Effects  // of the last round
	Broke  []broken // of all rounds since the last look
	IDs    uint64
	Told   map[task.ID]task.State // according to the transitions

	Written int // bytes of the last round
	read    int // lanes that it has read

	ahead *ReadAhead // read after a round was applied
	takes uint64     // the round that takes it
	Took  int        // how often one was taken

	inPlace bool   // rounds are applied as a leader applies them, not as a follower
	sealed  []byte // buffer for the entry, as a leader has it
}

type broken struct {
	breaker.Change
	At store.Time
}

// Dawn is the initial time of worlds.
var Dawn = store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func NewWorld(t testing.TB) *World {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w := &World{T: t, Store: s, Now: Dawn, Told: map[task.ID]task.State{}}
	w.BecomeLeader()
	return w
}

// BecomeLeader throws the leader's memory away, as a new leader does.
func (w *World) BecomeLeader() {
	w.Leader = NewLeader(LeaderTerm{Epoch: w.Epoch, Began: w.Now, Before: w.Store.Applied().Time}, task.DefaultLimits(), TestPolicies...)
}

// Round runs calls on one Tx and applies it.
func (w *World) Round(calls ...func(r *Round)) {
	w.Index++
	if w.ahead != nil && w.Index >= w.takes {
		w.Leader.Take(w.ahead)
		w.ahead = nil
		if w.Told != nil { // no benchmark
			if err := w.checkHot(); err != nil {
				w.T.Fatal(err)
			}
		}
		w.Took++
	}
	tx := w.Store.Begin(w.Now, w.Index)
	defer tx.Close()
	r := w.Leader.Begin(tx)
	for _, call := range calls {
		call(r)
	}
	for r.WakeBlocked() { // no claims wait
	}
	r.Seal()
	w.Written, w.read = tx.Size(), r.lanes.Read
	w.dropForgotten(r.Transitions)
	pos := store.Position{Index: w.Index, Term: 1, Time: w.Now}
	err := error(nil)
	if w.inPlace {
		w.sealed = tx.Seal(w.sealed[:0])
		err = w.Store.ApplyTx(pos, tx)
	} else {
		err = w.Store.Apply(pos, tx.Seal(nil))
	}
	if err != nil {
		w.T.Fatal(err)
	}
	w.Last = r.Effects
	if w.Told != nil {
		w.follow(r.Transitions)
	}
	for _, b := range r.Breakers {
		w.Broke = append(w.Broke, broken{b, w.Now})
	}
	w.readAhead()
}

// readAhead reads what the leader will need soon, and passes it to a later round, or to the next leader.
func (w *World) readAhead() {
	if a := w.Leader.ReadAhead(); a != nil {
		a.Read(w.Store)
		w.ahead, w.takes = a, w.Index+1+task.Mix(w.Index)%16
	}
}

// Run is one call in a round of its own. A refusal must leave nothing behind.
func Run[T any](w *World, call func(r *Round) (T, error)) (out T, err error) {
	w.Round(func(r *Round) {
		before := r.Tx().Size()
		out, err = call(r)
		if err != nil && r.Tx().Size() != before {
			w.T.Fatalf("the call was refused with %v, but wrote rows", err)
		}
	})
	return out, err
}

// Pass advances time, doing what is due when it is due.
func (w *World) Pass(d time.Duration) {
	end := w.Now.Add(d)
	for {
		next := max(w.Leader.NextDeadline(), w.Now)
		if next > end {
			break
		}
		w.Now = next
		w.Round(Tick)
	}
	w.Now = end
}

func (w *World) PutQueue(name string, s task.Settings, paused bool) {
	w.Configure(name, task.QueueConfig{Settings: s, Paused: paused})
}

func (w *World) Configure(name string, c task.QueueConfig) {
	w.Round(func(r *Round) {
		c.Version, c.CreatedAt = 1, w.Now.Time()
		if q := r.Queue("default", name); q != nil {
			c.Version, c.Divided, c.CreatedAt = q.config.Version+1, q.config.Divided, q.config.CreatedAt
		}
		PutQueue(r, "default", name, c)
	})
}

// CloseSlots moves slots of a queue to another shard, and others back: the other shard may still know keys of those.
func (w *World) CloseSlots(name string, slots task.SlotSet) {
	w.Round(func(r *Round) {
		config := r.Queue("default", name).config
		config.Elsewhere = (config.Elsewhere | config.Closed) &^ slots
		config.Version, config.Closed = config.Version+1, slots
		config.Moved, config.Divided = config.Version, true
		PutQueue(r, "default", name, config)
	})
}

// ForgetMoves tells the shard that no other one knows keys of a queue's slots any more.
func (w *World) ForgetMoves(name string) {
	w.Round(func(r *Round) {
		config := r.Queue("default", name).config
		config.Version, config.Elsewhere = config.Version+1, 0
		PutQueue(r, "default", name, config)
	})
}

func (w *World) NewID() task.ID {
	w.IDs++
	return task.NewID(1, int64(w.Now)/1000, task.Mix(w.IDs))
}

func (w *World) Enqueue(s task.Spec) (Accepted, error) {
	s.Fill()
	if err := s.Check(task.DefaultLimits()); err != nil {
		return Accepted{}, err
	}
	n := &NewTask{Spec: s, Namespace: "default", ID: w.NewID(), Fresh: true}
	if s.RequestID.IsV7() {
		n.ID, n.Fresh = s.RequestID, false
	}
	a, err := Run(w, func(r *Round) (Accepted, error) { return Enqueue(r, n) })
	if errors.Is(err, ErrUnknownQueue) {
		w.PutQueue(s.Queue, task.DefaultSettings(), false)
		return Run(w, func(r *Round) (Accepted, error) { return Enqueue(r, n) })
	}
	return a, err
}

func (w *World) Claim(c ClaimRequest) (got []Claimed) {
	c.Namespace = "default"
	if c.Max == 0 {
		c.Max = 1
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 20
	}
	w.IDs++
	c.Entropy = task.Mix(w.IDs)
	w.Round(func(r *Round) { got, _ = ClaimTasks(r, &c) })
	return got
}

// Check checks promise 9, and that the leader's memory agrees with the rows.
func (w *World) Check() error {
	if found := CheckAll(w.Store, "default"); len(found) > 0 {
		return fmt.Errorf("%d findings: %q", len(found), found)
	}
	if found := TestCheckAudit(w.Store); len(found) > 0 {
		return fmt.Errorf("%d findings: %q", len(found), found)
	}
	if err := w.checkHot(); err != nil {
		return err
	}
	if err := w.checkKeys(); err != nil {
		return err
	}
	if err := w.checkTold(); err != nil {
		return err
	}
	tx := w.Store.Begin(w.Now, w.Index+1)
	defer tx.Close()
	fresh := NewLeader(w.Leader.term, task.DefaultLimits(), TestPolicies...).Begin(tx)
	for name, q := range w.Leader.queues {
		again := fresh.Queue(name.ns, name.name)
		if again == nil || again.counts != q.counts || !again.own.Same(&q.own) {
			return fmt.Errorf("queue %q: memory %+v, rows %+v", name.name, q, again)
		}
		fresh.readAll(again)
		if err := q.lanes.Verify(tx, again.lanes, slices.Contains(w.Leader.reading, q)); err != nil {
			return err
		}
		if !maps.EqualFunc(q.limits.Buckets(), again.limits.Buckets(), func(a, b *limit.Bucket) bool { return a.Due == b.Due }) {
			return fmt.Errorf("queue %q: memory has the buckets %v, rows %v", name.name, q.limits.Buckets(), again.limits.Buckets())
		}
		if q.lanes.Partial() {
			continue // it is not known yet which types have a task to try
		}
		if err := sameBreakers(q, again, w.Now); err != nil {
			return err
		}
	}
	if err := sameZones(w.Leader, tx); err != nil {
		return err
	}
	if err := w.Leader.orders.Verify(w.Store); err != nil {
		return err
	}
	if err := w.Leader.leases.Verify(w.Store); err != nil {
		return err
	}
	return sameSpaces(w.Leader, tx)
}

// sameZones checks that the zones in memory agree with the rows.
func sameZones(l *Leader, from store.Reader) error {
	for ns, zs := range l.zones {
		again := zonemap.Read(from, ns)
		if !zs.Equal(again) {
			return fmt.Errorf("namespace %q: memory has zones %v, rows %v", ns, zs, again)
		}
	}
	return nil
}

// sameSpaces checks that the namespaces in memory agree with the rows.
func sameSpaces(l *Leader, from store.Reader) error {
	for ns, s := range l.spaces {
		if err := s.Verify(from, func(queue string) *limit.Waiter {
			if q := l.queues[queueName{ns, queue}]; q != nil {
				return &q.waits
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads all lanes of a queue.
func (r *Round) readAll(q *Queue) {
	for q.lanes.Partial() {
		r.lanes.ReadMore(q.lanes, math.MaxInt)
	}
}

// checkHot checks that the cache agrees with the store, and that an id reported as new is neither stored nor has left a row.
func (w *World) checkHot() error {
	if err := w.Leader.hot.Verify(w.Store); err != nil {
		return err
	}
	return w.checkIDs()
}

func (w *World) checkIDs() (bad error) {
	n := w.Leader.ids["default"]
	if n == nil {
		return nil
	}
	lo, hi := schema.TableBounds("default", schema.TableExec)
	w.Store.Scan(lo, hi, func(k, _ []byte) bool {
		if n.IsNew(schema.IDAt(k)) {
			bad = fmt.Errorf("task %s is stored and called new", schema.IDAt(k))
		}
		return bad == nil
	})
	schema.EachForgotten(w.Store, "default", func(id task.ID, _ []byte) {
		if n.IsNew(id) {
			bad = fmt.Errorf("task %s has left a row and is called new", id)
		}
	})
	return bad
}

// checkKeys checks that no idempotency key with a row is reported as new.
func (w *World) checkKeys() (bad error) {
	w.Store.Scan([]byte{schema.TableKey}, []byte{schema.TableKey + 1}, func(k, _ []byte) bool {
		if w.Leader.keys.IsNew(w.Store, w.Now, k) {
			bad = fmt.Errorf("key %q is stored and called new", k)
		}
		return bad == nil
	})
	return bad
}

// CheckAll compares all rows of a namespace with its tasks.
func CheckAll(from store.Reader, ns string) []string { return TestCheck(from, ns) }

// Messages returns up to limit messages of the outbox.
func (w *World) Messages(limit int) (messages []*schema.Message) {
	for _, stored := range schema.ListMessages(w.Store, "default", task.ID{}, limit) {
		m, err := stored.Message()
		if err != nil {
			w.T.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

// Backdate moves the beginning of the leader's term back, so that its grace for leases has no effect.
func (w *World) Backdate(d time.Duration) { w.Leader.term.Began -= store.Time(d / time.Microsecond) }

// ReadyIn returns how many tasks of normal priority are ready in a queue.
func (w *World) ReadyIn(name string) int64 {
	return w.Leader.queues[queueName{"default", name}].counts.Ready[1]
}

// AllRead reports whether the leader has all lanes of a queue in memory.
func (w *World) AllRead(name string) (all bool) {
	w.Round(func(r *Round) { all = !r.Queue("default", name).lanes.Partial() })
	return all
}

// BreakerMemory is what a leader remembers of a breaker.
type BreakerMemory struct {
	State            breaker.State
	Opened, Passed   int
	Until            store.Time
	Probe            task.ID
	Attempts, Failed int // in the window of its rule
	Rule             task.Breaker
}

// BreakerMemory returns that of a type; none if there is no queue.
func (w *World) BreakerMemory(name, typ string) (m BreakerMemory, ok bool) {
	q := w.Leader.queues[queueName{"default", name}]
	if q == nil {
		return m, false
	}
	m.Rule = q.config.Settings.BreakerOf(typ)
	if b := q.breakers.Of(typ); b != nil {
		m.State, m.Opened, m.Passed, m.Until, m.Probe = b.State, b.Opened, b.Passed, b.Until, b.Probe
		if m.Rule.IsSet() {
			all := b.Seen.Sum(w.Now, m.Rule.Window)
			m.Attempts, m.Failed = all.Attempts, all.Failed
		}
	}
	return m, true
}

// TestPolicies are the policies of worlds, and TestCheck and TestCheckAudit the checkers. The external tests set them,
// because this package must not import them.
var (
	TestPolicies   []Policy
	TestCheck      func(from store.Reader, ns string) []string
	TestCheckAudit func(from store.Reader) []string
)

// Die creates dead letters or poisoned tasks in a queue, all in one round.
func (w *World) Die(queue string, n int, f FailRequest) {
	w.T.Helper()
	for range n {
		if _, err := w.Enqueue(task.Spec{Type: "job", Queue: queue, MaxAttempts: 1}); err != nil {
			w.T.Fatal(err)
		}
	}
	claimed := w.Claim(ClaimRequest{Queues: []Share{{Queue: queue}}, Max: n, Lease: time.Hour})
	w.Round(func(r *Round) {
		for _, c := range claimed {
			if _, err := Fail(r, Hold{Namespace: "default", ID: c.ID, Token: c.Token}, f); err != nil {
				w.T.Fatal(err)
			}
		}
	})
}

var Deadly = FailRequest{Action: FailDead, Failure: schema.Failure{Type: "io", Message: "\n  disk 7 is full\nat line 3"}}

// In tests a lane keeps three stale rows instead of a thousand, so that all tests meet some. Benchmarks use the real bound.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" {
		lanes.Bounds.Stale, store.RangeFrom = 3, 2
	}
	os.Exit(m.Run())
}
