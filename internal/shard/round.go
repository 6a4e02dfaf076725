package shard

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3"

	"github.com/pawlq/pawl/internal/store"
)

// round is a set of calls that share one entry.
type round struct {
	header
	tx    *store.Tx
	calls []*call // that have run, in order
	rest  []*call // that have not run yet
	began time.Duration
}

const (
	// maxSealed is the size of the largest buffer that is kept for the next entry, in bytes.
	maxSealed = 4 << 20
	// idleBuffers is the size of the largest buffers that a sleeping shard keeps, in bytes. Before it sleeps, it drops larger ones.
	idleBuffers = 64 << 10
)

// startRound runs the waiting calls, if the last round is done, and proposes their writes.
func (l *loop) startRound() error {
	if !l.idle() || l.changes.current.blocksRounds() {
		return nil
	}
	most := l.cfg.Limits.RoundCalls
	if l.oneByOne > 0 {
		most, l.oneByOne = 1, l.oneByOne-1
	}
	calls := l.calls.takeUpdates(most)
	if len(calls) == 0 {
		return nil
	}
	h := header{l.leading.Term, l.cfg.State.Applied().Index, l.leading.clock.Now()}
	r := &round{header: h, tx: l.cfg.State.Begin(h.time, h.base+1), calls: make([]*call, 0, len(calls)), rest: calls,
		began: l.cfg.Time.Elapsed()}
	l.round = r
	for len(r.rest) > 0 && r.tx.Size() < l.cfg.Limits.RoundBytes {
		c := r.rest[0]
		if err := l.runCall(r, c); err != nil {
			r.rest = r.rest[1:]
			c.answer(Stamp{}, err)
			l.abandon(r)
			return nil
		}
		r.rest = r.rest[1:]
	}
	l.calls.putBack(r.rest)
	r.rest = nil
	if err := l.guard("the end of a round panicked", func() { l.cfg.Hooks.BeforeSeal(r.tx) }); err != nil {
		l.suspect(r, err)
		return nil
	}
	if r.tx.Empty() {
		l.finishEmpty(r)
		return nil
	}
	return l.propose(r)
}

// unapplied reports whether the log has entries that are not applied: a round must be computed on all of them.
func (l *loop) unapplied() bool {
	last, _ := l.log.LastIndex()
	return last != l.cfg.State.Applied().Index
}

// runCall runs one call in a round, unless its caller has left. On an error the round must be dropped.
func (l *loop) runCall(r *round, c *call) error {
	if !c.take() {
		return nil
	}
	before := r.tx.Size()
	if err := l.guard("a call panicked", func() { c.refusal = c.update(r.tx) }); err != nil {
		return err
	}
	c.wrote = r.tx.Size() != before
	if c.refusal != nil && c.wrote {
		return &PanicError{Value: fmt.Sprintf("call refused with %q, but had written %d bytes", c.refusal, r.tx.Size()-before)}
	}
	if n := r.tx.Size() - before; n > l.cfg.Limits.CallBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, l.cfg.Limits.CallBytes)
	}
	r.calls = append(r.calls, c)
	return nil
}

// RunAgain is the value with which BeforeSeal panics if the round must be dropped although its calls are sound: they run again.
type RunAgain struct{}

func (RunAgain) Error() string { return "the calls of the round run again" }

// guard runs a part of a round, and returns its panic as an error, except a *store.Failure, which ends the replica.
func (l *loop) guard(panicked string, part func()) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		var f *store.Failure
		if e, ok := p.(error); ok && errors.As(e, &f) {
			panic(f)
		}
		if again, ok := p.(RunAgain); ok {
			err = again
			return
		}
		err = l.panicked(panicked, p)
	}()
	part()
	return nil
}

// suspect drops a round whose end panicked. Which of its calls is to blame shows when each runs in a round of its own: that one fails.
func (l *loop) suspect(r *round, err error) {
	if errors.Is(err, RunAgain{}) {
		l.abandon(r)
		return
	}
	if len(r.calls) == 1 {
		r.calls[0].answer(Stamp{}, err)
		r.calls = nil
	} else {
		l.oneByOne = max(l.oneByOne, len(r.calls))
	}
	l.abandon(r)
}

// abandon drops a round that certainly will not take effect. Its calls run again, before any others.
func (l *loop) abandon(r *round) {
	l.round = nil
	r.tx.Close()
	l.calls.putBack(r.rest)
	l.calls.putBack(r.calls)
	l.calls.signal()
	l.cfg.Hooks.Dropped(false)
	l.cfg.Hooks.Elected(l.leading.LeaderTerm)
}

// finishEmpty ends a round that wrote nothing, and asks for confirmation on behalf of its calls.
func (l *loop) finishEmpty(r *round) {
	at := Stamp{l.cfg.ID, r.base, r.term, r.time}
	l.cfg.Hooks.Committed(r.tx, at)
	l.round = nil
	r.tx.Close()
	if len(r.calls) > 0 {
		l.reads.readIndex(&read{calls: r.calls, stamp: at})
	}
}

// propose proposes a round to Raft.
func (l *loop) propose(r *round) error {
	entry := r.tx.Seal(l.sealed[:headerLen])
	r.header.put(entry)
	err := l.raft.Propose(entry)
	if l.sealed = entry; cap(entry) > maxSealed {
		l.sealed = make([]byte, headerLen)
	}
	if errors.Is(err, raft.ErrProposalDropped) { // leadership is being transferred
		for _, c := range r.calls {
			c.answer(Stamp{}, &NotLeader{})
		}
		r.calls = nil
		l.abandon(r)
		return nil
	}
	return err
}

// settle ends the round in flight once its entry is applied or dropped by the guard.
func (l *loop) settle(r *round, holds bool, at Stamp) {
	if !holds {
		l.abandon(r)
		return
	}
	l.cfg.Hooks.Committed(r.tx, at)
	l.cfg.Observe.Committed(l.cfg.Time.Elapsed() - r.began)
	l.round = nil
	r.tx.Close()
	r.answer(at)
}

func (r *round) answer(at Stamp) {
	for _, c := range r.calls {
		c.answer(at, c.refusal)
	}
}

// end answers the calls of a round whose outcome is out of reach: those that wrote may have happened, those that wrote nothing did not.
func (r *round) end(cause error) {
	r.tx.Close()
	for _, c := range append(r.calls, r.rest...) {
		if c.wrote {
			c.answer(Stamp{}, ErrUnknown)
		} else {
			c.answer(Stamp{}, cause)
		}
	}
}
