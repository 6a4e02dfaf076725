package shard

import (
	"context"
	"encoding/binary"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/store"
)

// freshness is what a replica knows of how old its state is.
type freshness struct {
	commit uint64  // what the leader last said is committed
	told   telling // when it said so
	fresh  telling // the last such moment whose entries are all applied; zero: none yet
}

// telling is when a leader said something, and when that was heard, on the monotonic clock: perhaps much later.
type telling struct {
	said  store.Time
	heard time.Duration
}

// stamp lets what a leader tells say when it was told.
func (l *loop) stamp(m *pb.Message) {
	if l.leading != nil {
		m.Context = binary.BigEndian.AppendUint64(nil, uint64(l.leading.clock.Now())) // #nosec G115 -- not negative
	}
}

// hear notes what the leader tells. A heartbeat tells of no more than this replica has, so it doesn't count; nor does what
// was told before, and comes late.
func (l *loop) hear(m *pb.Message) {
	if m.GetType() != pb.MsgApp || len(m.GetContext()) != 8 || m.GetFrom() != l.raft.BasicStatus().Lead {
		return
	}
	if said := store.Time(binary.BigEndian.Uint64(m.GetContext())); said > l.news.told.said { // #nosec G115 -- as stamped
		l.digest()
		l.news.commit, l.news.told = m.GetCommit(), telling{said, l.cfg.Time.Elapsed()}
	}
}

func (l *loop) digest() {
	if l.cfg.State.Applied().Index >= l.news.commit {
		l.news.fresh = l.news.told
	}
}

// age is how old the state may be at most: a deposed leader may not know it for an election's time, and nothing newer than
// the last entry was there when it was made. By as much as this node's wall clock is slow it may be older.
func (l *loop) age() time.Duration {
	if l.alone {
		return 0
	}
	if l.leading != nil {
		return time.Duration(l.cfg.ElectionTicks) * l.cfg.TickInterval
	}
	l.digest()
	now := store.TimeOf(l.cfg.Time.Wall())
	age := max(now.Sub(l.cfg.State.Applied().Time), 0)
	if f := l.news.fresh; f != (telling{}) {
		age = min(age, max(now.Sub(f.said), l.cfg.Time.Elapsed()-f.heard))
	}
	return age
}

// Peek runs fn on the caller's goroutine against this replica's own state, whether it leads or not. What it reads was true,
// and age says how long ago that was at most.
func Peek[T any](ctx context.Context, s *Shard, fn func(store.Reader) (T, error)) (out T, at Stamp, age time.Duration, err error) {
	type sight struct {
		view *view
		at   Stamp
		age  time.Duration
	}
	seen := make(chan sight, 1)
	err = s.ask(ctx, func(l *loop) {
		p := l.cfg.State.Applied()
		seen <- sight{l.newView(1), Stamp{l.cfg.ID, p.Index, p.Term, p.Time}, l.age()}
	})
	if err != nil {
		return out, at, 0, err
	}
	var v sight
	select {
	case v = <-seen:
	case <-s.done: // the loop may have looked before it ended
		select {
		case v = <-seen:
		default:
			return out, at, 0, ErrStopped
		}
	}
	defer v.view.release()
	out, err = readView(v.view, fn)
	return out, v.at, v.age, err
}
