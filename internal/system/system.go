package system

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Replica is this node's replica of the system shard.
type Replica interface {
	// Update runs fn in a round. If fn returns an error, nothing is written. If the shard is not led here, the error says so, and fn did
	// not run. fn may run again if its round was dropped.
	Update(ctx context.Context, fn func(tx *store.Tx) error) error
	// View runs fn against the state at some moment during the call, if the shard is led here.
	View(ctx context.Context, fn func(store.Reader) error) error
}

// Shard runs rounds and views on this node's replica of the system shard, and knows whether the replica leads. Its methods may be
// called from any goroutine.
type Shard struct {
	replica Replica
	// Confirm waits until the nodes' copies are complete up to a version, for a second at most, and names those that have not confirmed it.
	Confirm func(ctx context.Context, version uint64) (behind []string, err error)

	mu      sync.Mutex
	term    *Term         // nil: not leading
	changed chan struct{} // closed when a change is committed, or leadership changes
}

// Term is a term of this node's leadership.
type Term struct {
	Began   time.Time
	stop    context.CancelFunc
	pending []Change  // of the round in flight. Guarded by Shard.mu
	changes changeLog // likewise
}

// NewShard returns a system shard whose replica does not lead.
func NewShard(r Replica) *Shard {
	return &Shard{replica: r, changed: make(chan struct{})}
}

// Confirmed is Confirm for the version that a change returned, unless that failed.
func (s *Shard) Confirmed(ctx context.Context, version uint64, err error) (behind []string, _ error) {
	if err != nil {
		return nil, err
	}
	return s.Confirm(ctx, version)
}

// Elected begins a term. ctx is done when it ends.
func (s *Shard) Elected() (ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term != nil {
		s.term.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	s.term = &Term{stop: stop, Began: time.Now()}
	s.wake()
	return ctx
}

// Dropped ends the term, and reports whether there was one.
func (s *Shard) Dropped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == nil {
		return false
	}
	s.term.stop()
	s.term = nil
	s.wake()
	return true
}

// Committed is called when the round at this index of the shard's log has been applied.
func (s *Shard) Committed(at uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term == nil || len(s.term.pending) == 0 {
		return
	}
	for _, ch := range s.term.pending {
		s.term.changes.add(at, ch)
	}
	s.term.pending = nil
	s.wake()
}

// wake wakes everyone who waits for changes. The caller holds the lock.
func (s *Shard) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Term returns the current term; nil: this node's replica does not lead, as far as it knows.
func (s *Shard) Term() *Term {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.term
}

// Leads reports whether this node's replica leads, as far as it knows.
func (s *Shard) Leads() bool { return s.Term() != nil }

// Note records a change of the round in flight for those who wait for changes.
func (s *Shard) Note(tx *store.Tx, ch Change) {
	tx.Set(NewestKey, EncodeNumber(tx.Index()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.term != nil {
		s.term.pending = append(s.term.pending, ch)
	}
}

// Newest returns the version that copies have once they are complete up to now. A call that changes nothing must not wait for that of its
// own entry: there may be none.
func Newest(r store.Reader) uint64 { return GetNumber(r, NewestKey) }

// Update runs fn in a round of the system shard. The result is valid only without an error.
func Update[T any](ctx context.Context, s *Shard, fn func(tx *store.Tx) (T, error)) (T, error) {
	var out T
	err := s.replica.Update(ctx, func(tx *store.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	if err != nil {
		var zero T // the loop may still be writing to out
		return zero, named(err)
	}
	return out, nil
}

// View runs fn against the system shard's state.
func View[T any](ctx context.Context, s *Shard, fn func(store.Reader) (T, error)) (T, error) {
	var out T
	err := s.replica.View(ctx, func(r store.Reader) (err error) {
		out, err = fn(r)
		return err
	})
	if err != nil {
		var zero T
		return zero, named(err)
	}
	return out, nil
}

// named adds the origin to an error that is not a refusal. The wrapped error is unchanged.
func named(err error) error {
	if _, refused := task.AsError(err); refused {
		return err
	}
	return fmt.Errorf("system shard: %w", err)
}

// Memory is what a part of the leader remembers during a term. It is empty when a term begins. The zero Memory may be used.
type Memory[T any] struct {
	mu   sync.Mutex
	term *Term
	of   T
}

// In calls fn with what is remembered in the current term, with a lock held. It returns false, and does not call fn, if this node's
// replica does not lead.
func (m *Memory[T]) In(s *Shard, fn func(of *T)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	term := s.Term()
	if term == nil {
		return false
	}
	if m.term != term {
		m.term, m.of = term, *new(T)
	}
	fn(&m.of)
	return true
}

// LeaderChanged returns the error of a call that began under one leader and would end under another. It may be repeated.
func LeaderChanged() error {
	return task.Unavailable(100*time.Millisecond, "system shard: its leader has just changed")
}
