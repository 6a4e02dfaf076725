// Package systemtest is a system shard without Raft for tests: replicas of one state, of which at most one leads. It knows no part of the
// control plane but the shard itself.
package systemtest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// ErrNotLeader is the error of a replica that does not lead.
var ErrNotLeader = errors.New("not the leader")

// Leader is notified of its replica's leadership, and of its rounds.
type Leader interface {
	Elected()
	Dropped(over bool)
	Committed(at uint64)
}

// World is the state of a system shard.
type World struct {
	T       testing.TB
	State   *store.Store
	Rounds  sync.Mutex // one round at a time
	Updates int        // number of rounds that were run. Guarded by Rounds

	leader   *Replica
	slept    time.Duration // how far the shard's time is ahead
	together *[]*update    // the calls that wait to share a round; nil: each has its own. Guarded by Rounds
}

// update is a call that runs in a round.
type update struct {
	fn   func(tx *store.Tx) error
	err  error
	done chan struct{}
}

// NewWorld returns an empty state that no replica leads.
func NewWorld(t testing.TB) *World {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &World{T: t, State: s}
}

// Sleep suspends the machines: the shard's time advances, and nothing is checked meanwhile. Letting hours of fake time pass would take
// seconds, because of the store's timers.
func (w *World) Sleep(d time.Duration) {
	w.Rounds.Lock()
	defer w.Rounds.Unlock()
	w.slept += d
}

// Replica is a node's replica. It implements system.Replica.
type Replica struct {
	world  *World
	Leader Leader
	Poke   func() // called when a round is committed, as in a node. May be nil
}

// NewReplica returns the replica of another node, which doesn't lead yet. Its Leader must be set before it does.
func (w *World) NewReplica() *Replica { return &Replica{world: w} }

// Lead makes this replica the leader.
func (r *Replica) Lead() {
	r.world.Rounds.Lock()
	defer r.world.Rounds.Unlock()
	if old := r.world.leader; old != nil {
		old.Leader.Dropped(true)
	}
	r.world.leader = r
	r.Leader.Elected()
}

// Together makes calls at the same moment, on the leader, in a bubble of fake time: their first updates share a round, in this order.
func (w *World) Together(calls ...func()) {
	w.Rounds.Lock()
	var waiting []*update
	w.together = &waiting
	w.Rounds.Unlock()
	var ended sync.WaitGroup
	for _, call := range calls {
		ended.Go(call)
		synctest.Wait()
	}
	w.Rounds.Lock()
	w.together = nil
	w.leader.round(waiting)
	w.Rounds.Unlock()
	ended.Wait()
}

// Update implements system.Replica.
func (r *Replica) Update(_ context.Context, fn func(tx *store.Tx) error) error {
	w := r.world
	w.Rounds.Lock()
	if w.leader != r {
		w.Rounds.Unlock()
		return ErrNotLeader
	}
	u := &update{fn: fn, done: make(chan struct{})}
	if w.together != nil {
		*w.together = append(*w.together, u)
	} else {
		r.round([]*update{u})
	}
	w.Rounds.Unlock()
	<-u.done
	return u.err
}

// round runs calls in a round. The caller holds Rounds.
func (r *Replica) round(calls []*update) {
	w := r.world
	w.Updates++
	at := w.State.Applied()
	tx := w.State.Begin(max(at.Time+1, store.TimeOf(time.Now()).Add(w.slept)), at.Index+1)
	defer tx.Close()
	for _, u := range calls {
		defer close(u.done)
		before := tx.Size()
		if u.err = u.fn(tx); u.err != nil && tx.Size() != before {
			w.T.Errorf("a call returned the error %q, but wrote to the store", u.err)
		}
	}
	if tx.Empty() {
		return
	}
	if err := w.State.Apply(store.Position{Index: at.Index + 1, Term: 1, Time: tx.Now()}, tx.Seal(nil)); err != nil {
		for _, u := range calls {
			u.err = err
		}
		return
	}
	r.Leader.Committed(at.Index + 1)
	if r.Poke != nil {
		r.Poke()
	}
}

// View implements system.Replica.
func (r *Replica) View(_ context.Context, fn func(store.Reader) error) error {
	r.world.Rounds.Lock()
	leads := r.world.leader == r
	r.world.Rounds.Unlock()
	if !leads {
		return ErrNotLeader
	}
	snap := r.world.State.Snapshot()
	defer snap.Close()
	return fn(snap)
}

// IsRefusal fails the test unless err is the wanted refusal and contains all the words.
func IsRefusal(t *testing.T, err error, want *task.Error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %s", err, want.Code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not contain %q", err, word)
		}
	}
}
