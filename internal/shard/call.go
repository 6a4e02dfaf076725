package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/pawlq/pawl/internal/store"
)

var (
	// ErrUnknown: the call may have taken effect, may still take effect, or may never do so.
	ErrUnknown = errors.New("outcome unknown")
	// ErrStopped: the replica has stopped; the call did not run.
	ErrStopped = errors.New("shard is stopped")
	// ErrBusy: too many calls are waiting; the call did not run.
	ErrBusy = errors.New("shard has too many calls waiting")
	// ErrTooLarge: the call wrote more than an entry can hold; nothing was kept.
	ErrTooLarge = errors.New("call writes too much for one entry")
)

// NotLeader is returned for a call that did not run because this replica is not the leader.
type NotLeader struct {
	Leader uint64 // the leader's replica, as far as known here; 0: none
}

func (e *NotLeader) Error() string {
	if e.Leader == 0 {
		return "not the leader; there is none"
	}
	return fmt.Sprintf("not the leader: the replica on node number %d is", uint32(e.Leader)) // #nosec G115 -- the number is the lower half
}

// PanicError is the error of a call that panicked, that refused after writing, or whose writes made BeforeSeal panic. Nothing of the call
// was kept.
type PanicError struct{ Value any }

func (e *PanicError) Error() string { return fmt.Sprintf("call panicked: %v", e.Value) }

// Unwrap returns the value of the panic, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Stamp is where and when a call took effect. Two calls on a shard took effect in the order of their indexes. For a call
// that wrote nothing, Index is the last entry in the state that it read.
type Stamp struct {
	Shard uint32
	Index uint64
	Term  uint64
	Time  store.Time
}

// Update runs fn in a round on the leader and returns its result when the round is committed and applied. fn runs on
// the shard's loop, so it must not block. It may run again if its round is dropped, so it must have no side effects except
// through tx and its result. It may still run after Update has returned ErrUnknown.
//
// An error from fn is a refusal: fn must have written nothing, so it decides first and writes afterwards. The refusal is
// returned unchanged once a majority has confirmed that this was the leader. Of the other errors, *NotLeader, ErrStopped,
// ErrBusy, ErrTooLarge and the context's own mean that the call had no effect; ErrUnknown means that it may have had one.
// An error that wraps both ErrUnknown and the context's means that the context ended too late.
func Update[T any](ctx context.Context, s *Shard, fn func(*store.Tx) (T, error)) (T, Stamp, error) {
	return UpdateOf(ctx, s, "", fn)
}

// UpdateOf is like Update, on behalf of one of several owners whose calls take turns.
func UpdateOf[T any](ctx context.Context, s *Shard, owner string, fn func(*store.Tx) (T, error)) (T, Stamp, error) {
	var out T
	c := newCall(ctx)
	c.owner = owner
	c.update = func(tx *store.Tx) (err error) {
		out, err = fn(tx)
		return err
	}
	if err := s.do(c); err != nil {
		var zero T // the loop may still use out
		return zero, c.stampIfDone(), err
	}
	return out, c.stamp, nil
}

// View runs fn on the caller's goroutine against the state at some moment during the call. Only the leader answers.
// Errors are as for Update; fn's own error is returned unchanged.
func View[T any](ctx context.Context, s *Shard, fn func(store.Reader) (T, error)) (out T, at Stamp, err error) {
	c := newCall(ctx)
	if err := s.do(c); err != nil {
		return out, Stamp{}, err
	}
	defer c.view.release()
	out, err = readView(s, c.view, fn)
	return out, c.stamp, err
}

// readView runs fn against a view, and returns its panic as an error.
func readView[T any](s *Shard, v *view, fn func(store.Reader) (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			if f, ok := p.(*store.Failure); ok {
				err = f // the store has reported it
			} else {
				err = s.panicked("a read panicked", p)
			}
		}
	}()
	return fn(v.snap)
}

// panicked logs a panic with its stack, and returns its error.
func (s *Shard) panicked(what string, p any) *PanicError {
	s.cfg.Logger.Error(what, "shard", s.cfg.ID, "panic", p, "stack", string(debug.Stack()))
	return &PanicError{Value: p}
}

// States of a call. The caller may leave it at any time before it is answered.
const (
	callWaiting = iota
	callTaken   // by the loop
	callAnswered
	callLeft // by its caller
)

// call is a caller waiting for the loop. All fields except state are owned by the loop until done is closed, and by the
// caller afterwards.
type call struct {
	ctx    context.Context
	state  atomic.Int32
	done   chan struct{}
	update func(*store.Tx) error // nil: a view
	owner  string                // calls of different owners take turns
	wrote  bool

	refusal error // returned by update
	err     error // returned to the caller
	stamp   Stamp
	view    *view
}

func newCall(ctx context.Context) *call { return &call{ctx: ctx, done: make(chan struct{})} }

// take hands the call to the loop, unless its caller has left. A call that goes into a second round has been taken before.
func (c *call) take() bool {
	if c.state.Load() == callTaken {
		return true
	}
	return c.state.CompareAndSwap(callWaiting, callTaken)
}

// answer ends the call. It returns false if the caller has left or already has an answer.
func (c *call) answer(at Stamp, err error) bool {
	if s := c.state.Load(); s == callAnswered || s == callLeft {
		return false
	}
	c.stamp, c.err = at, err
	if c.state.CompareAndSwap(callTaken, callAnswered) || c.state.CompareAndSwap(callWaiting, callAnswered) {
		close(c.done)
		return true
	}
	return false
}

func (c *call) stampIfDone() Stamp {
	if c.state.Load() == callAnswered {
		return c.stamp
	}
	return Stamp{}
}

// do waits until the loop has answered c, or its context ends.
func (s *Shard) do(c *call) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if err := s.calls.push(c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-c.ctx.Done():
	}
	if c.state.CompareAndSwap(callWaiting, callLeft) {
		return c.ctx.Err()
	}
	if c.state.CompareAndSwap(callTaken, callLeft) {
		if c.update == nil {
			return c.ctx.Err()
		}
		return fmt.Errorf("%w: %w", ErrUnknown, c.ctx.Err())
	}
	<-c.done // answered at this very moment
	return c.err
}

// view is a snapshot shared by several readers.
type view struct {
	snap    *store.Snapshot
	readers atomic.Int32
	open    *sync.WaitGroup // of the shard's views
	ctx     context.Context // ends when the loop waits for the views to be released
}

// newView opens a snapshot of the current state for n readers.
func (l *loop) newView(n int) *view {
	v := &view{snap: l.cfg.State.Snapshot(), open: &l.views, ctx: l.outgoing.ctx}
	v.readers.Store(int32(n))
	v.open.Add(1)
	return v
}

func (v *view) release() {
	if v.readers.Add(-1) == 0 {
		v.snap.Close()
		v.open.Done()
	}
}

// ReadAsync runs fn on its own goroutine, against the current state. Only hooks may call it. A panic of fn ends the replica, as in a hook.
func (s *Shard) ReadAsync(fn func(store.Reader)) {
	v := &view{snap: s.cfg.State.Snapshot(), open: &s.views}
	v.readers.Store(1)
	v.open.Add(1)
	go func() {
		defer func() {
			p := recover()
			v.release() // first, because the loop may be waiting for the release
			if p != nil {
				_ = s.runOnLoop(context.Background(), func(*loop) { panic(p) }) // fails only if the replica has ended
			}
		}()
		fn(v.snap)
	}()
}
