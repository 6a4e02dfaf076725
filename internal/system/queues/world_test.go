package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var bg = context.Background()

// nobody is an author whose calls leave no entry in the audit log.
var nobody task.Author

// onceSlots is a set of slots in a shard.
type onceSlots struct {
	shard uint32
	slots task.SlotSet
}

// world is a system shard, with data shards that only record what they receive.
type world struct {
	*systemtest.World
	most   int // maximum number of queues
	leader *systemReplica

	mu     sync.Mutex
	copies map[string]task.QueueConfig // by shard and name
	since  string                      // the namespace of the last copies, and since when it exists
	full   map[string]bool             // queues that have tasks, or those of one shard: see copyKey
	keys   map[uint32]store.Time       // the ends of their keys
	split  bool                        // CheckKeys finds a task with keys in different slots
	unique map[uint32]task.SlotSet     // slots whose unique keys are held
	onces  map[onceSlots]store.Time    // the ends of their once keys
	fail   error                       // of the next copy
	fails  map[uint32]error            // of all calls to a shard
	// called before each call to a shard, with mu locked; the call fails with its error. nil: no call fails
	onCall     func(call string, shard uint32) error
	calls      int                      // number of calls of CopyQueues
	room       error                    // what Room returns
	slow       map[uint32]time.Duration // how long a shard takes for a copy
	hangs      uint32                   // a shard that answers no call; 0: none
	onDrop     func()                   // called once a shard has dropped a queue
	shares     map[uint32]error         // what EnsureShare returns for a shard
	shared     []uint32                 // shards for which EnsureShare was called
	divisions  []string                 // of limits, and their order
	notDivided error                    // what Divide returns
	minute     int                      // how often AdvanceMoves called its minutely
	log        systemtest.LogBuffer

	overlaps bool // two shards may take tasks of one slot
}

// systemReplica is a node's replica of the system shard.
type systemReplica struct {
	*systemtest.Replica
	*world
	control *control
}

// control is the part of the control plane that queues need.
type control struct {
	shard      *system.Shard
	Queues     *Queues
	Namespaces *namespaces.Namespaces
	minutely   func()
	work       sync.WaitGroup
}

func (c *control) Elected() {
	ctx := c.shard.Elected()
	c.Queues.Elected()
	c.work.Go(func() { c.Queues.Repair(ctx) })
	c.work.Go(func() { c.Queues.AdvanceMoves(ctx, func(context.Context) { c.minutely() }) })
}

func (c *control) Dropped(over bool) {
	if c.shard.Dropped() && over {
		c.Queues.Dropped()
	}
}

func (c *control) Committed(at uint64) {
	c.Queues.Committed(at)
	c.shard.Committed(at)
}

// inBubble runs a test in fake time.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { fn(t, newWorld(t)) })
}

// seeds returns how many seeds a model tries: a third with -short. Many seeds find a wrong decision, but a few suffice for races.
func seeds(many uint64) uint64 {
	if testing.Short() {
		return (many + 2) / 3
	}
	return many
}

// pass lets fake time pass in the test's bubble.
func pass(d time.Duration) { time.Sleep(d) }

func newWorld(t testing.TB) *world {
	return &world{World: systemtest.NewWorld(t), most: 3, copies: map[string]task.QueueConfig{}, full: map[string]bool{},
		keys: map[uint32]store.Time{}, onces: map[onceSlots]store.Time{}, fails: map[uint32]error{}, shares: map[uint32]error{}}
}

// newReplica returns the replica of another node, which doesn't lead yet.
func (w *world) newReplica() *systemReplica {
	s := &systemReplica{Replica: w.NewReplica(), world: w}
	shard := system.NewShard(s.Replica)
	s.control = &control{shard: shard, Namespaces: namespaces.New(namespaces.Config{Shard: shard}),
		Queues: New(Config{Shard: shard, Shards: w,
			EnsureShare: w.ensureShare, Divide: w.divide, Divided: w.divides, Renew: w.renew, Undivide: w.undivide, Room: func() error {
				return w.room
			}, Logger: slog.New(slog.NewTextHandler(&w.log, nil))})}
	s.control.Queues.most = w.most
	s.control.minutely = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.minute++
	}
	s.Leader = s.control
	w.T.Cleanup(func() {
		s.control.Dropped(true)
		s.control.work.Wait()
	})
	return s
}

// lead makes this replica the leader.
func (s *systemReplica) lead() {
	s.world.leader = s
	s.Lead()
}

// open creates a cluster with the given number of data shards, unless it exists, and returns the leader's control.
func (w *world) open(shards int) *control {
	w.T.Helper()
	w.newReplica().lead()
	w.settings(func(s *system.Settings) {
		if s.Level == 0 {
			*s = system.Settings{Replication: 3, Level: 1, NextNode: 2, DataShards: shards}
		}
	})
	synctest.Wait()
	return w.leader.control
}

// setShards sets the number of data shards.
func (w *world) setShards(n int) { w.settings(func(s *system.Settings) { s.DataShards = n }) }

func (w *world) settings(change func(s *system.Settings)) {
	w.T.Helper()
	if err := w.leader.Update(bg, func(tx *store.Tx) error {
		s, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
		change(&s)
		tx.Set(system.SettingsKey, system.EncodeRow(s))
		return err
	}); err != nil {
		w.T.Fatal(err)
	}
}

func (w *world) ensureShare(_ context.Context, _ string, shard uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shared = append(w.shared, shard)
	return w.shares[shard]
}

// divide, divides, renew and undivide record how the limits of queues are divided.
func (w *world) divide(_ context.Context, _, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.divisions = append(w.divisions, "divide "+name)
	return w.notDivided
}

func (w *world) divides(_ *store.Tx, _, name string, _ uint64, whole uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.divisions = append(w.divisions, fmt.Sprint(name, " of ", whole))
}

func (w *world) renew(_ *store.Tx, q Queue, unknown task.Quotas) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.divisions = append(w.divisions, fmt.Sprintf("renew %s, unknown %d %d", q.Name, unknown.Running, unknown.Backlog))
}

func (w *world) undivide(_ *store.Tx, _, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.divisions = append(w.divisions, "undivide "+name)
}

// denyDivision makes Divide fail; nil: it succeeds again.
func (w *world) denyDivision(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notDivided = err
}

// takeDivisions returns what was recorded since the last call.
func (w *world) takeDivisions() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := strings.Join(w.divisions, ", ")
	w.divisions = nil
	return got
}

// denyShare makes EnsureShare fail for a shard; nil: it succeeds again.
func (w *world) denyShare(shard uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shares[shard] = err
}

// minutes returns how often AdvanceMoves called its minutely.
func (w *world) minutes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.minute
}

func (w *world) CopyQueues(ctx context.Context, shard uint32, ns string, since uint64, configs map[string]task.QueueConfig) error {
	if err := w.hang(ctx, shard); err != nil {
		return err
	}
	w.mu.Lock()
	slow := w.slow[shard]
	w.mu.Unlock()
	if system.Sleep(ctx, slow); ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.since = fmt.Sprint(ns, since)
	if err := w.refusal("copy", shard); err != nil {
		return err
	}
	if err := w.fail; err != nil {
		w.fail = nil
		return err
	}
	for name, c := range configs {
		if key := copyKey(shard, name); w.copies[key].Version < c.Version {
			w.copies[key] = c
		}
		w.mustBeApart(name)
	}
	return nil
}

// hang waits until ctx ends, if the shard hangs.
func (w *world) hang(ctx context.Context, shard uint32) error {
	w.mu.Lock()
	hangs := w.hangs == shard
	w.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

// refusal returns why a call to a shard fails.
func (w *world) refusal(call string, shard uint32) error {
	if w.onCall != nil {
		if err := w.onCall(call, shard); err != nil {
			return err
		}
	}
	return w.fails[shard]
}

// mustBeApart fails the test if two shards take new tasks of the same slot.
func (w *world) mustBeApart(name string) {
	var taken task.SlotSet
	for key, c := range w.copies {
		if _, of, _ := strings.Cut(key, "/"); of != name {
			continue
		}
		if taken&^c.Closed != 0 && !w.overlaps {
			w.T.Errorf("two shards take tasks of slots %064b of %q: %+v", taken&^c.Closed, name, w.copies)
		}
		taken |= ^c.Closed
	}
}

// cut makes all calls to a shard fail. With nil they succeed again.
func (w *world) cut(shard uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails[shard] = err; err == nil {
		delete(w.fails, shard)
	}
}

func (w *world) OnceUntil(ctx context.Context, shard uint32, _, _ string, slots task.SlotSet) (store.Time, error) {
	if err := w.hang(ctx, shard); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refusal("once keys", shard); err != nil {
		return 0, err
	}
	return w.onces[onceSlots{shard, slots}], nil
}

func (w *world) KeysUntil(ctx context.Context, shard uint32, _, _ string) (store.Time, error) {
	if err := w.hang(ctx, shard); err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refusal("keys", shard); err != nil {
		return 0, err
	}
	return w.keys[shard], nil
}

func (w *world) CheckKeys(_ context.Context, shard uint32, _, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.split {
		return task.ErrWrongState
	}
	return w.refusal("check keys", shard)
}

func (w *world) HoldsUnique(ctx context.Context, shard uint32, _, _ string, slots task.SlotSet) (bool, error) {
	if err := w.hang(ctx, shard); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refusal("unique keys", shard); err != nil {
		return false, err
	}
	return w.unique[shard]&slots != 0, nil
}

func (w *world) DropQueue(ctx context.Context, shard uint32, _, name string, version uint64) error {
	if err := w.hang(ctx, shard); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refusal("drop", shard); err != nil {
		return err
	}
	if w.full[name] || w.full[copyKey(shard, name)] || w.copies[copyKey(shard, name)].Version > version {
		return &task.Error{Code: task.CodeWrongState, Message: "not empty"}
	}
	delete(w.copies, copyKey(shard, name))
	if fn := w.onDrop; fn != nil {
		w.onDrop = nil
		w.mu.Unlock()
		fn()
		w.mu.Lock()
	}
	return nil
}

// repair repairs what the rows say is unfinished, one lane after another.
func (c *control) repair() (err error) {
	rows := c.Queues.copyAll(bg, func(_ string, repair func(context.Context) error) { err = errors.Join(err, repair(bg)) })
	return errors.Join(rows, err)
}

// setOnCall sets what happens before a call to a shard; nil: nothing.
func (w *world) setOnCall(do func(call string, shard uint32) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onCall = do
}

// setHangs sets the shard that answers no call; 0: none.
func (w *world) setHangs(shard uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangs = shard
}

func copyKey(shard uint32, name string) string { return fmt.Sprintf("%d/%s", shard, name) }

// copyOf returns a data shard's copy of a queue.
func (w *world) copyOf(shard uint32, name string) task.QueueConfig {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copies[copyKey(shard, name)]
}

func setLength(n int64) func(*task.QueueConfig) error {
	return func(c *task.QueueConfig) error { c.Settings.MaxLength = n; return nil }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var is = systemtest.IsRefusal

// checkQueues compares the names of the listed queues of the default namespace.
func (c *control) checkQueues(t *testing.T, q Query, want string) {
	t.Helper()
	list, err := c.Queues.Queues(bg, "default", q)
	must(t, err)
	names := []string{}
	for _, one := range list {
		names = append(names, one.Name)
	}
	if got := fmt.Sprint(names); got != want {
		t.Errorf("%+v: %s, want %s", q, got, want)
	}
}
