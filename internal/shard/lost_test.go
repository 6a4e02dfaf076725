package shard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// prepared returns the loop of a new replica, which does not run.
func prepared(t *testing.T, replica uint64, voters ...uint64) *loop {
	t.Helper()
	mem := vfs.NewMem()
	log, err := raftlog.Open(raftlog.Config{Dir: "raft", FS: mem, SegmentSize: smallSegment})
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.Open(store.Config{Dir: "state", FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(state.Close(), log.Close()) })
	_, l, err := prepare(Config{ID: 1, Replica: replica, Voters: voters, Log: log, State: state})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// handleAll handles what the Raft group has to do.
func (l *loop) handleAll(t *testing.T) {
	t.Helper()
	for l.raft.HasReady() {
		if err := l.handle(l.raft.Ready()); err != nil {
			t.Fatal(err)
		}
	}
}

// A leader's message contradicts the log of a replica if it says that the replica has acknowledged what it doesn't have, or if it has
// other entries where this log is committed. Old leaders' messages, and entries that are not committed, may differ.
func TestContradiction(t *testing.T) {
	l := prepared(t, 3, 1, 2, 3)
	// Entries 2 and 3 of term 4 are committed, 4 of term 4 and 5 of term 5 are not.
	entries := func(terms ...uint64) (out []*pb.Entry) {
		for i, term := range terms {
			out = append(out, &pb.Entry{Index: new(uint64(i + 2)), Term: new(term), Type: pb.EntryNormal.Enum()})
		}
		return out
	}
	l.step(&pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(1)), To: new(uint64(3)), Term: new(uint64(5)), Index: new(uint64(1)),
		LogTerm: new(uint64(1)), Commit: new(uint64(3)), Entries: entries(4, 4, 4, 5)})
	l.handleAll(t)
	for _, c := range []struct {
		what string
		kind pb.MessageType
		term uint64
		// of a heartbeat what was acknowledged and committed, of entries what is before them
		index, other uint64
		entries      []*pb.Entry
		lost         bool
	}{
		{"it has all", pb.MsgHeartbeat, 5, 5, 3, nil, false},
		{"acknowledged more", pb.MsgHeartbeat, 5, 6, 3, nil, true},
		{"more is committed", pb.MsgHeartbeat, 5, 0, 6, nil, true},
		{"to an old leader", pb.MsgHeartbeat, 4, 6, 6, nil, false},
		{"nothing yet in a new term", pb.MsgHeartbeat, 6, 0, 0, nil, false},
		{"something in a term that it doesn't know", pb.MsgHeartbeat, 6, 2, 0, nil, true},
		{"new entries", pb.MsgApp, 5, 5, 5, nil, false},
		{"later entries", pb.MsgApp, 6, 9, 6, nil, false},
		{"known entries", pb.MsgApp, 5, 1, 1, entries(4, 4, 4, 5), false},
		{"others where nothing is committed", pb.MsgApp, 6, 1, 1, entries(4, 4, 6), false},
		{"another after the first", pb.MsgApp, 6, 1, 1, entries(6), true},
		{"another at the commit index", pb.MsgApp, 6, 1, 1, entries(4, 6), true},
		{"another before them", pb.MsgApp, 6, 3, 3, nil, true},
		{"another before them, which is not committed", pb.MsgApp, 6, 5, 6, nil, false},
		{"another, from an old leader", pb.MsgApp, 4, 3, 3, nil, false},
		{"a vote", pb.MsgVote, 9, 99, 9, nil, false},
	} {
		m := &pb.Message{Type: c.kind.Enum(), From: new(uint64(2)), To: new(uint64(3)), Term: new(c.term), Index: new(c.index),
			Entries: c.entries}
		if c.kind == pb.MsgHeartbeat {
			m.Commit = new(c.other)
		} else {
			m.LogTerm = new(c.other)
		}
		if err := contradiction(l, m); (err != nil) != c.lost || c.lost && !errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	// Raft has replaced entries 4 and 5, and committed what replaced them, before anything of that is saved.
	l.step(&pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(3)), Term: new(uint64(6)), Index: new(uint64(3)),
		LogTerm: new(uint64(4)), Commit: new(uint64(5)), Entries: []*pb.Entry{{Index: new(uint64(4)), Term: new(uint64(6)),
			Type: pb.EntryNormal.Enum()}, {Index: new(uint64(5)), Term: new(uint64(6)), Type: pb.EntryNormal.Enum()}}})
	if committed := l.raft.BasicStatus().GetCommit(); committed != 5 {
		t.Fatalf("Raft has committed %d entries, want 5", committed)
	}
	next := &pb.Message{Type: pb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(3)), Term: new(uint64(6)), Index: new(uint64(5)),
		LogTerm: new(uint64(6))}
	if err := contradiction(l, next); err != nil {
		t.Errorf("entries after some that are not saved yet: %v", err)
	}
}

// A follower that comes back on an earlier copy of its disk, while the leader that it had acknowledged more to is in office, ends with
// damage, although the leader has committed nothing since; it does not panic, nor continue.
func TestEarlierCopyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGroup(t, 1, 3, 3, new(sometimes))
		var told atomic.Uint64 // what the third is told that it has acknowledged
		w.mu.Lock()
		w.lose = func(m *pb.Message) bool {
			if m.GetType() == pb.MsgHeartbeat && m.GetTo() == 3 {
				told.Store(m.GetIndex())
			}
			return false
		}
		w.mu.Unlock()
		c := w.clients(1)[0]
		w.countOnce(c)
		w.caughtUp(1, 2, 3)
		w.wait(time.Second)
		n := w.nodes[2]
		if w.leader().id == n.id {
			w.onLeader("transfer", func(ctx context.Context, l *life) error { return l.shard.Transfer(ctx, 1, "test") })
		}
		n.end(true)
		copied := n.mem.CrashClone(vfs.CrashCloneCfg{})
		n.start(0)
		for range 20 {
			w.countOnce(c)
		}
		w.wait(time.Second)
		if st, err := w.leader().shard.Status(t.Context()); err != nil || told.Load() != st.Last {
			t.Errorf("it is told that it has acknowledged entry %d, want %d (%v)", told.Load(), st.Last, err)
		}
		n.end(true)
		n.mem = copied
		ended := make(chan error, 1)
		n.fatal = func(err error) { ended <- err }
		n.start(0)
		w.wait(time.Second)
		select {
		case err := <-ended:
			if !errors.Is(err, ondisk.ErrDamaged) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("it goes on")
		}
		w.endAll()
	})
}

// The only voter of a group is not led by others, unless its log has a change of membership, or it may have voted for the leader.
func TestOnlyVoterIsNotLed(t *testing.T) {
	l := prepared(t, 1, 1)
	l.handleAll(t) // it elects itself
	check := func(what string, term uint64, lost bool) {
		t.Helper()
		m := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(term)}
		if err := contradiction(l, m); (err != nil) != lost || lost && !errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("it leads, and is led in its term", l.term, true)
	check("it leads, and is led in a later term", l.term+1, true)
	check("a former leader", l.term-1, false)
	l.soft.RaftState = raft.StateFollower
	check("it may have voted", l.term, false)
	check("it follows, in a later term", l.term+1, true)
	if err := l.log.Save(nil, []*pb.Entry{{Index: new(l.cfg.State.Applied().Index + 1), Term: new(l.term),
		Type: pb.EntryNormal.Enum()}}); err != nil {
		t.Fatal(err)
	}
	check("its log has more", l.term+1, false)
	l.alone = false
	check("it is not the only voter", l.term+1, false)
}
