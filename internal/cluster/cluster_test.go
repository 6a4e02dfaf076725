package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// world is a system shard without Raft, and data shards that only remember what they were told.
type world struct {
	t      *testing.T
	state  *store.Store
	mu     sync.Mutex
	copies map[string]task.QueueConfig // by shard and name
	full   map[string]bool             // queues that have tasks
	fail   error                       // of the next copy
	room   error                       // what Room says
}

func newWorld(t *testing.T) *world {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &world{t: t, state: s, copies: map[string]task.QueueConfig{}, full: map[string]bool{}}
}

func (w *world) Update(_ context.Context, fn func(tx *store.Tx) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.state.Applied()
	tx := w.state.Begin(at.Time+1, at.Index+1)
	defer tx.Close()
	if err := fn(tx); err != nil {
		return err
	}
	return w.state.Apply(store.Position{Index: at.Index + 1, Term: 1, Time: tx.Now()}, tx.Seal(0))
}

func (w *world) View(_ context.Context, fn func(store.Reader) error) error { return fn(w.state) }

func (w *world) CopyQueues(_ context.Context, shard uint32, _ string, configs map[string]task.QueueConfig) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fail; err != nil {
		w.fail = nil
		return err
	}
	for name, c := range configs {
		if key := fmt.Sprint(shard, name); w.copies[key].Version < c.Version {
			w.copies[key] = c
		}
	}
	return nil
}

func (w *world) DropQueue(_ context.Context, shard uint32, _, name string) error {
	if w.full[name] {
		return &task.Error{Code: task.CodeWrongState, Message: "not empty"}
	}
	delete(w.copies, fmt.Sprint(shard, name))
	return nil
}

func (w *world) open(shards ...uint32) *Cluster {
	w.t.Helper()
	c, err := Open(context.Background(), Config{System: w, Shards: w, DataShards: shards, MaxQueues: 3, Room: func() error { return w.room }})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func setLength(n int64) func(*task.QueueConfig) error {
	return func(c *task.QueueConfig) error { c.Settings.MaxLength = n; return nil }
}

func TestQueuesAppearOnce(t *testing.T) {
	w := newWorld(t)
	c := w.open(1, 2, 3)
	var callers sync.WaitGroup
	shards := make([]uint32, 8)
	for i := range shards {
		callers.Go(func() { shards[i], _ = c.Place(context.Background(), "default", "mail") })
	}
	callers.Wait()
	for _, s := range shards {
		if s == 0 || s != shards[0] {
			t.Fatalf("placed in %v", shards)
		}
	}
	if q, ok := c.Queue("default", "mail"); !ok || q.Config.Version != 1 || q.Shard != shards[0] {
		t.Errorf("the queue is %+v", q)
	}
	if n := w.state.Applied().Index; n < 1 {
		t.Errorf("%d entries", n)
	}
	again := w.open(1, 2, 3, 4) // a shard more moves nothing
	if s, err := again.Place(context.Background(), "default", "mail"); err != nil || s != shards[0] {
		t.Errorf("after a restart it lies in %d: %v", s, err)
	}
}

func TestChangesReachTheShard(t *testing.T) {
	w := newWorld(t)
	c := w.open(1)
	q, err := c.PutQueue(context.Background(), "default", "a", setLength(5))
	if err != nil || q.Config.Version != 1 || w.copies["1a"].Settings.MaxLength != 5 {
		t.Fatalf("%+v, %v; the shard has %+v", q, err, w.copies["1a"])
	}
	if q, err = c.PutQueue(context.Background(), "default", "a", setLength(5)); err != nil || q.Config.Version != 1 {
		t.Errorf("a change that changes nothing: %+v, %v", q, err)
	}
	refused := errors.New("refused")
	if _, err = c.PutQueue(context.Background(), "default", "a", func(*task.QueueConfig) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a refused change: %v", err)
	}
	// The copy fails: the caller is told, nothing is believed, and a repeat makes it good.
	w.fail = task.ErrUnavailable
	if _, err = c.PutQueue(context.Background(), "default", "a", setLength(6)); !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("a lost copy: %v", err)
	}
	if q, _ := c.Queue("default", "a"); q.Config.Settings.MaxLength != 5 {
		t.Errorf("after a lost copy the node believes %+v", q.Config)
	}
	if q, err = c.PutQueue(context.Background(), "default", "a", setLength(6)); err != nil || w.copies["1a"].Settings.MaxLength != 6 {
		t.Errorf("the repeat: %+v, %v", q, err)
	}
}

// The node dies between a change and its copy: the next one brings it.
func TestOpenBringsCopies(t *testing.T) {
	w := newWorld(t)
	c := w.open(1)
	w.fail = task.ErrUnavailable
	if _, err := c.PutQueue(context.Background(), "default", "a", setLength(7)); err == nil {
		t.Fatal("the copy was to fail")
	}
	c = w.open(1)
	if w.copies["1a"].Settings.MaxLength != 7 {
		t.Errorf("the shard has %+v", w.copies["1a"])
	}
	if q, ok := c.Queue("default", "a"); !ok || q.Config.Settings.MaxLength != 7 {
		t.Errorf("the node has %+v", q)
	}
}

// On a full disk no queue appears by use, but one that is there is found, and an operator may configure.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	c := w.open(1)
	if _, err := c.Place(context.Background(), "default", "mail"); err != nil {
		t.Fatal(err)
	}
	w.room = task.Unavailable(time.Second, "full")
	before := w.state.Applied()
	if _, err := c.Place(context.Background(), "default", "new"); !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("a new queue on a full disk: %v", err)
	}
	if after := w.state.Applied(); after.Index != before.Index {
		t.Error("the refusal wrote something")
	}
	if _, err := c.Place(context.Background(), "default", "mail"); err != nil {
		t.Errorf("a known queue on a full disk: %v", err)
	}
	if _, err := c.PutQueue(context.Background(), "default", "mail", setLength(7)); err != nil {
		t.Errorf("new settings on a full disk: %v", err)
	}
}

func TestDropAndLimit(t *testing.T) {
	w := newWorld(t)
	c := w.open(1)
	for _, name := range []string{"c", "a", "b"} {
		if _, err := c.Place(context.Background(), "default", name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Place(context.Background(), "default", "d"); !errors.Is(err, task.ErrInvalidArgument) {
		t.Errorf("a fourth queue of three: %v", err)
	}
	w.full["a"] = true
	if err := c.DropQueue(context.Background(), "default", "a"); !errors.Is(err, task.ErrWrongState) {
		t.Errorf("a queue with tasks was dropped: %v", err)
	}
	if err := c.DropQueue(context.Background(), "default", "b"); err != nil {
		t.Error(err)
	}
	if err := c.DropQueue(context.Background(), "default", "b"); !errors.Is(err, task.ErrNotFound) {
		t.Errorf("dropped twice: %v", err)
	}
	var names []string
	for _, q := range c.Queues("default", "", 10) {
		names = append(names, q.Name)
	}
	if fmt.Sprint(names) != "[a c]" || fmt.Sprint(c.Namespaces()) != "[default]" {
		t.Errorf("queues %v of %v", names, c.Namespaces())
	}
	if rest := c.Queues("default", "a", 10); len(rest) != 1 || rest[0].Name != "c" {
		t.Errorf("behind a: %+v", rest)
	}
	if _, err := c.Place(context.Background(), "default", "d"); err != nil {
		t.Errorf("a queue in the place of the dropped one: %v", err)
	}
	if len(w.open(1).Queues("default", "", 10)) != 3 {
		t.Error("a restart finds other queues")
	}
}

func FuzzQueueRow(f *testing.F) {
	q := Queue{Namespace: "default", Name: "a", Shard: 1, Config: task.QueueConfig{Version: 1, Settings: task.DefaultSettings()}}
	f.Add(queueKey("default", "a"), encodeQueue(q))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(key) < 2 {
			return
		}
		_, _ = decodeQueue(key, value) // an error or a queue, no panic
	})
}
