package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// stopped returns the disk of a bench that lost power: its log is complete, its state has what was flushed.
func (b *bench) stopped() *vfs.MemFS {
	mem := b.mem.CrashClone(vfs.CrashCloneCfg{})
	b.close()
	return mem
}

// atRest opens a log and a state without a replica.
func atRest(t *testing.T, mem *vfs.MemFS) (log *raftlog.Log, state *store.Store, stop func()) {
	t.Helper()
	fatal := func(err error) { t.Error(err) }
	log, err := raftlog.Open(raftlog.Config{Dir: "/d/raft", FS: mem, SegmentSize: smallSegment, Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	if state, err = store.Open(store.Config{Dir: "/d/state", FS: mem, Fatal: fatal}); err != nil {
		t.Fatal(err)
	}
	return log, state, func() {
		t.Helper()
		if err := errors.Join(log.Close(), state.Close()); err != nil {
			t.Error(err)
		}
	}
}

func row(r store.Reader, key string) string {
	v, _ := r.Get([]byte(key))
	return string(v)
}

// Recover applies entries of every kind in the log, and makes the replica its group's only voter, durably, even if
// power is lost and Recover is repeated.
func TestRecover(t *testing.T) {
	once := sync.Once{}
	b := startBench(t, fixture{beforeSeal: func(b *bench, tx *store.Tx) {
		if row(tx, "k1") == "" {
			return
		}
		once.Do(func() { b.proposeStale(tx) })
	}})
	ctx := context.Background()
	if _, err := b.set("k1", "v1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Change(ctx, nil, Change{2, Learner}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.StartHash(ctx, Range{}); err != nil {
		t.Fatal(err)
	}
	last, err := b.set("k2", strings.Repeat("v", maxMessage)) // more than is read of a log in one go
	if err != nil {
		t.Fatal(err)
	}
	if last, err = b.set("k3", "v3"); err != nil {
		t.Fatal(err)
	}
	mem := b.stopped()

	log, state, stop := atRest(t, mem)
	before := state.Applied()
	if reach, err := Reach(log, state, 1); err != nil || reach.Index != last.Index || reach.Term != last.Term {
		t.Errorf("Reach = %+v, %v, want entry %d of term %d", reach, err, last.Index, last.Term)
	}
	if now := state.Applied(); now.Index != before.Index || before.Index >= last.Index {
		t.Errorf("Reach moved the state from entry %d to %d of %d", before.Index, now.Index, last.Index)
	}
	refuse := errors.New("not now")
	if _, err := Recover(log, state, 1, 5<<32|1, func(*store.Tx) error { return refuse }); !errors.Is(err, refuse) {
		t.Errorf("Recover with a failing edit returned %v, want the edit's error", err)
	}
	if at := state.Applied(); at.Index != last.Index || at.Time != last.Time {
		t.Errorf("after a failed edit the state is at entry %d and time %v, want %d and %v", at.Index, at.Time, last.Index, last.Time)
	}
	for epoch := uint64(1); epoch <= 3; epoch++ {
		was := max(state.Applied().Index, last.Index)
		at, err := Recover(log, state, 1, 5<<32|1, func(tx *store.Tx) error {
			if row(tx, "k3") != "v3" || tx.Index() != was+recoveryGap {
				t.Errorf("the edit saw k3=%q at entry %d", row(tx, "k3"), tx.Index())
			}
			tx.Set([]byte("edited"), []byte("yes"))
			return nil
		})
		conf := new(pb.ConfState)
		if err != nil || proto.Unmarshal(at.Conf, conf) != nil || !slices.Equal(conf.Voters, []uint64{5<<32 | 1}) ||
			len(conf.Learners) > 0 {
			t.Fatalf("Recover left members %v, %v", conf, err)
		}
		if at.Index != was+recoveryGap || at.Term != last.Term || at.Time != last.Time {
			t.Errorf("Recover returned %+v, want entry %d of term %d", at, was+recoveryGap, last.Term)
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		stop()
		log, state, stop = atRest(t, mem)
		if now := state.Applied(); now.Index != at.Index || now.Term != at.Term {
			t.Errorf("after a power loss the state is at %+v, want %+v", now, at)
		}
		if got, err := state.Epoch(); err != nil || got != epoch {
			t.Errorf("the epoch is %d, %v, want %d", got, err, epoch)
		}
		for key, want := range map[string]string{"k1": "v1", "k3": "v3", "stale": "", "edited": "yes"} {
			if got := row(state, key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		if epoch == 2 { // the log was lost, and then the power
			if err := log.Remove(1); err != nil {
				t.Fatal(err)
			}
			if reach, err := Reach(log, state, 1); err != nil || reach.Index != at.Index {
				t.Errorf("Reach without a log = %+v, %v", reach, err)
			}
		}
	}
	stop()
}

// Recover refuses a log that can't be applied, and a replica that never had a state.
func TestRecoverRefuses(t *testing.T) {
	mem := vfs.NewCrashableMem()
	log, state, stop := atRest(t, mem)
	if _, err := Recover(log, state, 1, 5<<32|1, nil); err == nil || err.Error() != "replica 1.5 never received the state of its shard" {
		t.Errorf("Recover without a state returned %v", err)
	}
	stop()
	b := startBench(t, fixture{beforeSeal: func(b *bench, tx *store.Tx) {
		if err := b.loop.raft.Propose([]byte{entryVersion + 9}); err != nil {
			t.Error(err)
		}
	}})
	if _, err := b.set("a", "1"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v, want ErrUnknown", err)
	}
	b.Stop()
	b.fatals = nil
	log, state, stop = atRest(t, b.stopped())
	before := state.Applied().Index
	if _, err := Recover(log, state, 1, 1, nil); err == nil || err.Error() != "shard 1: entry 3: entry of 1 bytes is cut short" {
		t.Errorf("Recover with an entry of an unknown version returned %v", err)
	}
	if at, err := Reach(log, state, 1); err != nil || at.Index != 4 || before >= at.Index {
		t.Errorf("Reach went from entry %d to %d, %v", before, at.Index, err)
	}
	stop()
}

// The state of a founder that is lost is made again from its log, if that is complete. Check says so before, and
// refuses a state that nobody can make.
func TestCheckOfALostState(t *testing.T) {
	b := startBench(t, fixture{})
	if _, err := b.set("k", "v"); err != nil {
		t.Fatal(err)
	}
	mem := b.stopped()
	if err := mem.RemoveAll("/d/state"); err != nil {
		t.Fatal(err)
	}
	log, state, stop := atRest(t, mem)
	if err := Check(Config{ID: 1, Ran: true, Log: log}); !errors.Is(err, raftlog.ErrStateBehind) {
		t.Errorf("Check of a replica that is no founder returned %v, want ErrStateBehind", err)
	}
	for _, lost := range []*store.Store{nil, state} {
		if err := Check(Config{ID: 1, Ran: true, Voters: []uint64{1}, Log: log, State: lost}); err != nil {
			t.Errorf("Check of a founder returned %v", err)
		}
	}
	stop()
	b = startBench(t, fixture{mem: mem})
	if got := b.get("k"); got != "v" {
		t.Errorf("the new state has k=%q, want v", got)
	}
	b.close()
}

// A log whose marks are from before it existed is damaged, and not a log that is already gone.
func TestRecoverWithOldMarks(t *testing.T) {
	b := startBench(t, fixture{})
	if _, err := b.set("a", "1"); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	mem, old := b.stopped(), vfs.NewMem()
	log, err := raftlog.Open(raftlog.Config{Dir: "/d/raft", FS: old})
	if err = errors.Join(err, log.Close(), vfs.CopyAcrossFS(old, "/d/raft/marks", mem, "/d/raft/marks")); err != nil {
		t.Fatal(err)
	}
	log, state, stop := atRest(t, mem)
	defer stop()
	if at, err := Reach(log, state, 1); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Reach = %+v, %v", at, err)
	}
	if at, err := Recover(log, state, 1, 1, nil); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Recover = %+v, %v", at, err)
	}
}
