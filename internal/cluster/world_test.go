package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

// world is a system shard without Raft, with replicas of which at most one leads, and data shards that only record what they receive.
type world struct {
	*systemtest.World
	leader *systemReplica

	mu     sync.Mutex
	copies map[string]task.QueueConfig // by shard and name
	fails  map[uint32]error            // of all calls to a shard

	watches map[uint32]map[string]task.Watch // by shard and namespace
	spaces  map[string]*task.Space           // by shard and namespace: use, and the shares that were set
	erased  []string                         // shard and namespace
}

// systemReplica is a node's replica of the system shard.
type systemReplica struct {
	*systemtest.Replica
	*world
	control *Control
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
	return &world{World: systemtest.NewWorld(t), copies: map[string]task.QueueConfig{}, spaces: map[string]*task.Space{},
		fails: map[uint32]error{}, watches: map[uint32]map[string]task.Watch{}}
}

// newReplica returns the replica of another node, which doesn't lead yet.
func (w *world) newReplica() *systemReplica { return w.newReplicaOver(w) }

// newReplicaOver is newReplica with other data shards.
func (w *world) newReplicaOver(shards Shards) *systemReplica {
	s := &systemReplica{Replica: w.NewReplica(), world: w}
	s.control = NewControl(Config{System: s.Replica, Shards: shards})
	s.Leader = s.control
	w.T.Cleanup(s.control.Close)
	return s
}

// lead makes this replica the leader.
func (s *systemReplica) lead() {
	s.world.leader = s
	s.Lead()
}

// open creates a cluster with the given number of data shards, unless it exists, and returns the leader's Control.
func (w *world) open(shards int) *Control {
	w.T.Helper()
	s := w.newReplica()
	s.lead()
	if err := s.control.Placement.Found(context.Background(), FirstNode{Name: "n1", Version: "v1", MinLevel: 1, MaxLevel: 1},
		shards); err != nil {
		w.T.Fatal(err)
	}
	synctest.Wait()
	return s.control
}

func (w *world) CopyQueues(_ context.Context, shard uint32, ns string, _ uint64, configs map[string]task.QueueConfig) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails[shard]; err != nil {
		return err
	}
	w.space(shard, ns).Queues += len(configs)
	for name, c := range configs {
		if key := copyKey(shard, name); w.copies[key].Version < c.Version {
			w.copies[key] = c
		}
	}
	return nil
}

// cut makes all calls to a shard fail. With nil they succeed again.
func (w *world) cut(shard uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails[shard] = err; err == nil {
		delete(w.fails, shard)
	}
}

// CopyWatches implements Shards.
func (w *world) CopyWatches(_ context.Context, shard uint32, watches map[string]task.Watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails[shard]; err != nil {
		return err
	}
	if w.watches[shard] == nil {
		w.watches[shard] = map[string]task.Watch{}
	}
	maps.Copy(w.watches[shard], watches)
	return nil
}

// space returns a shard's usage and share of a namespace.
func (w *world) space(shard uint32, ns string) *task.Space {
	s := w.spaces[copyKey(shard, ns)]
	if s == nil {
		s = &task.Space{Namespace: ns, Share: task.Share{Amounts: task.Unlimited}}
		w.spaces[copyKey(shard, ns)] = s
	}
	return s
}

func (w *world) Spaces(_ context.Context, shard uint32, names []task.SpaceName) (spaces []task.Space, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		spaces = append(spaces, *w.space(shard, name.Namespace))
	}
	return spaces, w.fails[shard]
}

func (w *world) PutShare(_ context.Context, shard uint32, name task.SpaceName, to task.Share) (task.Space, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails[shard]; err != nil {
		return task.Space{}, err
	}
	s := w.space(shard, name.Namespace)
	if s.Share.Version < to.Version {
		s.Share = to
	}
	return *s, nil
}

func (w *world) EraseNamespace(_ context.Context, shard uint32, ns string, _ uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.fails[shard]; err != nil {
		return err
	}
	w.erased = append(w.erased, copyKey(shard, ns))
	delete(w.spaces, copyKey(shard, ns))
	return nil
}

func (w *world) DropQueue(_ context.Context, shard uint32, _, _ string, _ uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fails[shard]
}

func (w *world) CheckKeys(context.Context, uint32, string, string) error { return nil }

func (w *world) KeysUntil(context.Context, uint32, string, string) (store.Time, error) { return 0, nil }

func (w *world) HoldsUnique(context.Context, uint32, string, string, task.SlotSet) (bool, error) {
	return false, nil
}

func (w *world) OnceUntil(context.Context, uint32, string, string, task.SlotSet) (store.Time, error) {
	return 0, nil
}

func copyKey(shard uint32, name string) string { return fmt.Sprintf("%d/%s", shard, name) }

// asItIs changes nothing.
func asItIs(*task.QueueConfig) error { return nil }

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

func base64Of(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// nobody is an author whose calls leave no entry in the audit log.
var nobody task.Author
