package raftlog

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
	"github.com/pawlq/pawl/internal/wal"
)

// Old entries that can't be read are noticed when they are to be copied, and end the log.
func TestUnreadableOldEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(t)
		var fatal atomic.Value
		cfg := d.config()
		cfg.Fatal = func(err error) { fatal.Store(err) }
		log, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		idle, err := log.Shard(7, Start{})
		if err != nil {
			t.Fatal(err)
		}
		busy, err := log.Shard(8, Start{})
		if err != nil {
			t.Fatal(err)
		}
		save(t, idle, aHardState(1, 1, 0), entries(1, 1, 2))
		idle.index.places[0].length++
		big := make([]byte, 1000)
		for next := uint64(1); next < 1000 && err == nil; next++ {
			if err = busy.Save(aHardState(1, 1, next), []*pb.Entry{{Index: new(next), Term: new(uint64(1)), Data: big}}); err == nil {
				err = busy.Compact(next)
			}
			synctest.Wait()
		}
		if told, _ := fatal.Load().(error); err == nil || !errors.Is(told, ondisk.ErrDamaged) {
			t.Errorf("writes ended with %v, and the log reported %v, want an error and ErrDamaged", err, told)
		}
		_ = log.Close()
	})
}

func TestCopy(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 3))
	before := s.index.places[0]
	if err := d.log.copyOnce(); err != nil || s.index.places[0] != before {
		t.Errorf("entries of the last segments were copied, %v", err)
	}
	old := func() oldEntries {
		all, _ := d.log.entriesBefore(2)
		if len(all) != 1 || !all[0].current(d.log) {
			t.Fatalf("%d shards have entries to copy, want 1", len(all))
		}
		return all[0]
	}
	if err := d.log.copy(old()); err != nil || s.index.places[0] == before {
		t.Errorf("the copied entry is still at its old place, %v", err)
	}
	s.tail = nil
	wantLog(t, s, "1:1 2:1 3:1")
	o := old()
	o.places[1].offset, s.index.places[1].offset = o.places[1].length-1, o.places[1].length-1
	if err := d.log.copy(o); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("copy of a place without an entry returned %v, want ErrDamaged", err)
	}
	if err := s.Compact(2); err != nil {
		t.Fatal(err)
	}
	o.places[0].length++
	if err := d.log.copy(o); o.current(d.log) || err != nil {
		t.Errorf("compacted entries still count as current, or copy returned %v", err)
	}
	d.close()
}

// A copy that finds its shard removed leaves nothing of it behind.
func TestCopyOfRemovedShard(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 3))
	old, _ := d.log.entriesBefore(2)
	if err := d.log.Remove(7); err != nil {
		t.Fatal(err)
	}
	if err := d.log.copy(old[0]); err != nil {
		t.Fatal(err)
	}
	d.close()
	if ids := d.open().Shards(); len(ids) > 0 {
		t.Errorf("after a restart there are logs of the shards %v", ids)
	}
	d.close()
}

// What happens to a log before its old entries are copied, or while the copy is synced, stays: no old entry comes back, in memory or at the next start.
func TestCopyOfReplacedEntries(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(log *Log, s *ShardLog) error
		start   Start // afterwards
		want    string
	}{
		"nothing":   {func(*Log, *ShardLog) error { return nil }, Start{}, "1:1 2:1 3:1"},
		"more":      {func(_ *Log, s *ShardLog) error { return s.Save(aHardState(2, 1, 0), entries(2, 4, 4)) }, Start{}, "1:1 2:1 3:1 4:2"},
		"all new":   {func(_ *Log, s *ShardLog) error { return s.Save(aHardState(2, 1, 0), entries(2, 1, 3)) }, Start{}, "1:2 2:2 3:2"},
		"fewer":     {func(_ *Log, s *ShardLog) error { return s.Save(aHardState(2, 1, 0), entries(2, 2, 2)) }, Start{}, "1:1 2:2"},
		"last new":  {func(_ *Log, s *ShardLog) error { return s.Save(aHardState(2, 1, 0), entries(2, 3, 3)) }, Start{}, "1:1 2:1 3:2"},
		"compacted": {func(_ *Log, s *ShardLog) error { return s.Compact(2) }, Start{Index: 2, Term: 1}, "3:1"},
		"reset":     {func(_ *Log, s *ShardLog) error { return s.Reset(5, 2) }, Start{Index: 5, Term: 2}, ""},
		"removed":   {func(log *Log, _ *ShardLog) error { return log.Remove(7) }, Start{}, ""},
	} {
		for _, during := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var slow atomic.Bool
				d := newDisk(t)
				cfg := d.config()
				cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if isSync(op) && strings.HasSuffix(op.Path, ".log") && slow.Load() {
						time.Sleep(time.Second)
					}
					return nil
				}))
				log, s := opened(t, cfg)
				save(t, s, aHardState(1, 1, 0), entries(1, 1, 3))
				old, _ := log.entriesBefore(2)
				slow.Store(during)
				copied, happened := make(chan error, 1), make(chan error, 1)
				copies := func() { copied <- log.copy(old[0]) }
				happens := func() { happened <- c.happens(log, s) }
				if during {
					go copies()
					synctest.Wait() // the copy is written, and its sync goes on
					go happens()
				} else {
					happens()
					copies()
				}
				if err := errors.Join(<-copied, <-happened); err != nil {
					t.Fatal(err)
				}
				if name != "removed" {
					s.tail, s.tailLen = nil, 0 // so that entries are read from disk
					wantLog(t, s, c.want)
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
				if s = d.openShard(c.start); !t.Failed() {
					wantLog(t, s, c.want)
				}
				d.close()
				if t.Failed() {
					t.Errorf("the failure is in: %s, while the copy is synced: %t", name, during)
				}
			})
		}
	}
}

// A record that ends within an entry is refused, whatever came before it.
func TestTruncatedRecordIsRefused(t *testing.T) {
	content := append(appendHead(nil, recordSave, 7), 0)
	for _, e := range entries(1, 1, 2) {
		content = appendEntry(content, e)
	}
	for cut := range 3 {
		l := &Log{shards: map[uint32]*shardIndex{}}
		err := l.apply(wal.LSN(1), content[:len(content)-cut])
		if (err == nil) != (cut == 0) {
			t.Errorf("a record without its last %d bytes: %v", cut, err)
		}
	}
}
