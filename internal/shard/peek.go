package shard

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/store"
)

// freshness tracks how old a replica's state is.
type freshness struct {
	l       *loop
	commit  uint64       // the commit index in the leader's last message
	latest  announcement // the time of that message
	applied announcement // the latest message whose committed entries are all applied; zero: none yet
}

// announcement is when a leader sent a message, and when it arrived, in monotonic time: perhaps much later.
type announcement struct {
	sent  store.Time
	heard time.Duration
}

// stampTime adds the time of sending to an append message.
func (f *freshness) stampTime(m *pb.Message) {
	if f.l.leading != nil {
		m.Context = binary.BigEndian.AppendUint64(nil, uint64(f.l.leading.clock.Now())) // #nosec G115 -- not negative
	}
}

// noteCommit records the commit index of an append message. Heartbeats don't count, since their commit index never exceeds what this
// replica has; nor do messages that arrive out of order.
func (f *freshness) noteCommit(m *pb.Message) {
	if m.GetType() != pb.MsgApp || len(m.GetContext()) != 8 || m.GetFrom() != f.l.raft.BasicStatus().Lead {
		return
	}
	if sent := store.Time(binary.BigEndian.Uint64(m.GetContext())); sent > f.latest.sent { // #nosec G115 -- as stamped
		f.refresh()
		f.commit, f.latest = m.GetCommit(), announcement{sent, f.l.cfg.Time.Elapsed()}
	}
}

func (f *freshness) refresh() {
	if f.l.cfg.State.Applied().Index >= f.commit {
		f.applied = f.latest
	}
}

// age returns the maximum age of the state. A deposed leader may not know it for an election timeout. For any other replica,
// everything newer than the last applied entry came after that entry's time. If this node's wall clock is slow, the state may
// be older by as much.
func (f *freshness) age() time.Duration {
	if f.l.alone {
		return 0
	}
	if f.l.leading != nil {
		return time.Duration(f.l.cfg.ElectionTicks) * f.l.cfg.TickInterval
	}
	f.refresh()
	now := store.TimeOf(f.l.cfg.Time.Wall())
	age := max(now.Sub(f.l.cfg.State.Applied().Time), 0)
	if last := f.applied; last != (announcement{}) {
		age = min(age, max(now.Sub(last.sent), f.l.cfg.Time.Elapsed()-last.heard))
	}
	return age
}

// Peek runs fn on the caller's goroutine against this replica's own state, whether it leads or not. What fn reads was true at
// most age ago.
func Peek[T any](ctx context.Context, s *Shard, fn func(store.Reader) (T, error)) (out T, at Stamp, age time.Duration, err error) {
	type sight struct {
		view *view
		at   Stamp
		age  time.Duration
	}
	seen := make(chan sight, 1)
	var taken atomic.Bool // by the loop, or by a caller that leaves
	err = s.runOnLoop(ctx, func(l *loop) {
		p := l.cfg.State.Applied()
		v := sight{l.newView(1), Stamp{l.cfg.ID, p.Index, p.Term, p.Time}, l.freshness.age()}
		if taken.Swap(true) {
			v.view.release()
			return
		}
		seen <- v
	})
	if err != nil {
		return out, at, 0, err
	}
	var v sight
	select {
	case v = <-seen:
	case <-ctx.Done():
		if !taken.Swap(true) {
			return out, at, 0, ctx.Err()
		}
		v = <-seen // sent at this very moment
	case <-s.done: // the loop may have run the function before it ended
		select {
		case v = <-seen:
		default:
			return out, at, 0, ErrStopped
		}
	}
	defer v.view.release()
	out, err = readView(s, v.view, fn)
	return out, v.at, v.age, err
}
