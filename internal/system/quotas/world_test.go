package quotas

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/system/systemtest"
	"github.com/pawlq/pawl/internal/task"
)

var bg = context.Background()

var errCut = errors.New("cut off")

// world is a system shard, with data shards that record what they receive.
type world struct {
	*systemtest.World
	shard   *system.Shard
	replica *replica
	divider *Divider
	log     systemtest.LogBuffer

	mu      sync.Mutex
	spaces  map[spaceName]*task.Space
	silent  map[uint32]error // of Spaces
	refuses map[uint32]error // of PutShare: the share does not arrive
	loses   map[uint32]error // of PutShare: the share arrives, the answer does not
	asked   int              // calls of Spaces
	put     []uint32         // shards of calls of PutShare
	onAsk   func(ctx context.Context, shard uint32) error
	moved   uint64 // shards take no share of a queue from before this move
	older   uint32 // the shard whose copy of a queue has no maximum length yet
	onPut   func(ctx context.Context, shard uint32) error
}

// replica is a replica whose rounds and views may fail.
type replica struct {
	*systemtest.Replica

	mu            sync.Mutex
	views, rounds int   // that were run, or failed
	failView      error // of all views; nil: none
	failRound     int   // the number of the round that fails
}

func (r *replica) View(ctx context.Context, fn func(store.Reader) error) error {
	r.mu.Lock()
	r.views++
	err := r.failView
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.Replica.View(ctx, fn)
}

func (r *replica) Update(ctx context.Context, fn func(tx *store.Tx) error) error {
	r.mu.Lock()
	r.rounds++
	fails := r.rounds == r.failRound
	r.mu.Unlock()
	if fails {
		return errCut
	}
	return r.Replica.Update(ctx, fn)
}

// failViews makes all views fail; nil: they succeed again.
func (r *replica) failViews(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failView = err
}

// inBubble runs a test in fake time, in a cluster with some data shards. Shard 1 begins its turn.
func inBubble(t *testing.T, shards int, fn func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{World: systemtest.NewWorld(t), spaces: map[spaceName]*task.Space{},
			silent: map[uint32]error{}, refuses: map[uint32]error{}, loses: map[uint32]error{}}
		w.replica = &replica{Replica: w.NewReplica()}
		w.shard = system.NewShard(w.replica)
		w.replica.Leader = systemtest.LeaderOf(w.shard)
		w.replica.Lead()
		w.setShards(shards)
		w.divider = New(w.shard, w, slog.New(slog.NewTextHandler(&w.log, nil)))
		fn(t, w)
	})
}

func (w *world) setShards(n int) {
	w.T.Helper()
	w.Put(system.SettingsKey, system.EncodeRow(system.Settings{Replication: 1, Level: 1, NextNode: 2, DataShards: n}))
}

func rowOf(ns string) []byte { return divisionKey(task.SpaceName{Namespace: ns}) }

func namespaceKey(ns string) []byte { return append([]byte{system.NamespaceTable}, ns...) }

// setQuotas writes a namespace's row.
func (w *world) setQuotas(ns string, q task.Quotas) {
	w.T.Helper()
	w.Round(func(tx *store.Tx) {
		tx.Set(namespaceKey(ns), system.EncodeRow(namespaces.Namespace{Name: ns, Quotas: q}))
		w.shard.Note(tx, system.Change{Kind: system.AccessChanged})
	})
}

// remove marks a namespace with quotas as being removed.
func (w *world) remove(ns string, q task.Quotas) {
	w.T.Helper()
	w.Put(namespaceKey(ns), system.EncodeRow(namespaces.Namespace{Name: ns, Quotas: q, RemovedBy: &task.Author{Name: "boss"}}))
}

// setRow writes how a namespace is divided.
func (w *world) setRow(ns string, parts ...divisionPart) {
	w.T.Helper()
	w.Put(rowOf(ns), system.EncodeRow(divisionRow{Parts: parts}))
}

// row reads how a namespace is divided.
func (w *world) row(ns string) []divisionPart {
	w.T.Helper()
	value := w.Get(rowOf(ns))
	if value == nil {
		return nil
	}
	row, err := system.DecodeRow[divisionRow](rowOf(ns), value)
	if err != nil {
		w.T.Fatal(err)
	}
	return row.Parts
}

// space returns what a namespace uses in a shard. The caller holds the lock.
func (w *world) space(shard uint32, ns string) *task.Space {
	name := spaceName{task.SpaceName{Namespace: ns}, shard}
	s := w.spaces[name]
	if s == nil {
		s = &task.Space{Namespace: ns, Share: task.Share{Amounts: task.Unlimited}}
		w.spaces[name] = s
	}
	return s
}

// use changes what a namespace uses in a shard.
func (w *world) use(shard uint32, ns string, fn func(s *task.Space)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn(w.space(shard, ns))
}

// hold gives shards a queue of a namespace each, with a backlog.
func (w *world) hold(ns string, backlogs ...int64) {
	for i, n := range backlogs {
		w.use(uint32(i)+1, ns, func(s *task.Space) { s.Queues, s.Use.Backlog = 1, n }) // #nosec G115 -- a few
	}
}

// fail makes calls to a shard fail; nil: they succeed again.
func (w *world) fail(calls map[uint32]error, shard uint32, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls[shard] = err
}

// share returns the share that a shard has received.
func (w *world) share(shard uint32, ns string) task.Share {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.space(shard, ns).Share
}

// backlogs returns the shares of a namespace's backlog, of so many shards.
func (w *world) backlogs(ns string, shards uint32) (all []int64) {
	for shard := range shards {
		all = append(all, w.share(shard+1, ns).Backlog)
	}
	return all
}

// running returns the shares of a namespace's running tasks, of so many shards.
func (w *world) running(ns string, shards uint32) (all []int64) {
	for shard := range shards {
		all = append(all, w.share(shard+1, ns).Running)
	}
	return all
}

// traffic returns the number of calls of Spaces, and the shards that were sent a share, since the last call.
func (w *world) traffic() (asked int, put []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked, put = w.asked, w.put
	w.asked, w.put = 0, nil
	slices.Sort(put)
	return asked, put
}

// Spaces implements Shards. Beside an error it returns spaces, which nobody may look at.
func (w *world) Spaces(ctx context.Context, shard uint32, names []task.SpaceName) (spaces []task.Space, err error) {
	w.mu.Lock()
	w.asked++
	onAsk := w.onAsk
	w.mu.Unlock()
	if onAsk != nil {
		if err := onAsk(ctx, shard); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		spaces = append(spaces, w.answer(shard, name))
	}
	return spaces, w.silent[shard]
}

// PutShare implements Shards. Beside an error it may return a space, which nobody may look at.
func (w *world) PutShare(ctx context.Context, shard uint32, name task.SpaceName, to task.Share) (task.Space, error) {
	w.mu.Lock()
	onPut := w.onPut
	w.mu.Unlock()
	if onPut != nil {
		if err := onPut(ctx, shard); err != nil {
			return task.Space{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put = append(w.put, shard)
	if err := w.refuses[shard]; err != nil {
		return task.Space{}, err
	}
	s := w.space(shard, name.Namespace)
	if s.Share.Version < to.Version && (name.Queue == "" || to.Moved >= w.moved) {
		s.Share = to
	}
	return w.answer(shard, name), w.loses[shard]
}

// answer returns what a shard answers. The caller holds the lock.
func (w *world) answer(shard uint32, name task.SpaceName) task.Space {
	s := *w.space(shard, name.Namespace)
	if shard == w.older {
		s.Share.Backlog = task.NoLimit
	}
	return s
}

// setOnAsk sets what happens when a shard is asked; nil: nothing.
func (w *world) setOnAsk(fn func(ctx context.Context, shard uint32) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onAsk = fn
}

// setOnPut sets what happens when a shard is sent a share.
func (w *world) setOnPut(fn func(ctx context.Context, shard uint32) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onPut = fn
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var is = systemtest.IsRefusal
