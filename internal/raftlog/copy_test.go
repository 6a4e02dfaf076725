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

// What happens to a log before its old entries are copied, or while the copy is synced, stays: no old entry comes back,
// in memory or at the next start.
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
	l := &Log{shards: map[uint32]*shardIndex{}}
	for b, says := range map[string]string{
		string(content[:3]): errShort.Error(), "\x02\x01\x00\x00\x00\x07": "unknown version 2",
		"\x01\x09\x00\x00\x00\x07": "unknown kind 9",
	} {
		if err := l.apply(1, []byte(b)); err == nil || !strings.Contains(err.Error(), says) || l.shards[0] != nil {
			t.Errorf("the record %q: %v, want an error with %q; the shards are %v", b, err, says, l.shards)
		}
	}
	for cut := range 3 {
		l := &Log{shards: map[uint32]*shardIndex{}}
		err := l.apply(wal.LSN(1), content[:len(content)-cut])
		if (err == nil) != (cut == 0) {
			t.Errorf("a record without its last %d bytes: %v", cut, err)
		}
	}
}

// A checkpoint names all shards. One that can't be read to its end is refused.
func TestCheckpoint(t *testing.T) {
	l := &Log{shards: map[uint32]*shardIndex{8: {}, 9: {start: position{4, 2}}}, rotated: make(chan struct{}, 1)}
	content, _ := l.checkpoint(1)
	l.shards = map[uint32]*shardIndex{7: {}, 8: {}}
	if err := l.applyCheckpoint(content); err != nil || len(l.shards) != 2 || l.shards[8] == nil || l.shards[9] == nil ||
		l.shards[9].start != (position{4, 2}) {
		t.Errorf("%v; after a checkpoint of the shards 8 and 9 there are %v", err, l.shards)
	}
	l.shards = map[uint32]*shardIndex{}
	if err := l.applyCheckpoint(appendNumbers([]byte{recordVersion}, 5, 1)); !errors.Is(err, errShort) || len(l.shards) > 0 {
		t.Errorf("%v; after a checkpoint that is cut short there are %v", err, l.shards)
	}
	if err := l.applyCheckpoint([]byte{2}); err == nil || !strings.Contains(err.Error(), "unknown version 2") {
		t.Errorf("a checkpoint of another version: %v", err)
	}
}

// Entries are copied out of a segment as soon as eight others lie between it and the last, if they take no more than a quarter of one.
func TestWhatIsCopied(t *testing.T) {
	for _, more := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisk(t)
			idle := d.openShard(Start{})
			other, err := d.log.Shard(9, Start{})
			if err != nil {
				t.Fatal(err)
			}
			busy, err := d.log.Shard(8, Start{})
			if err != nil {
				t.Fatal(err)
			}
			save(t, other, nil, sized(1, 100))
			save(t, idle, nil, sized(1, d.config().SegmentSize/4-100-2*7+more)) // each record has a head of 7 bytes
			for index := uint64(1); ; index++ {
				save(t, busy, nil, sized(index, 1000))
				if err := busy.Compact(index); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				old, size := d.log.entriesBefore(2)
				_, last := d.log.wal.Segments()
				if many := last <= 9 || more > 0; many && index > 16 && (len(old) != 2 || size != d.config().SegmentSize/4+more) ||
					!many && len(old) > 0 {
					t.Fatalf("with %d segments, %d shards have %d bytes in the first", last, len(old), size)
				}
				if last > 10 {
					break
				}
			}
			d.close()
		})
	}
}

// A copy that is not on disk is not read.
func TestFailedCopy(t *testing.T) {
	var broken atomic.Bool
	cfg := newDisk(t).config()
	cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isSync(op) && broken.Load() {
			return errDisk
		}
		return nil
	}))
	log, s := opened(t, cfg)
	save(t, s, nil, entries(1, 1, 3))
	before := s.index.places[0]
	old, _ := log.entriesBefore(2)
	broken.Store(true)
	if err := log.copy(old[0]); !errors.Is(err, errDisk) || s.index.places[0] != before {
		t.Errorf("copy returned %v, and entry 1 is at %+v; it was at %+v", err, s.index.places[0], before)
	}
	_ = log.Close()
}

// Close waits for a copy, which would otherwise report that the log is closed.
func TestCloseWaitsForCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		var fatal atomic.Value
		cfg := newDisk(t).config()
		cfg.Fatal = func(err error) { fatal.Store(err) }
		cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".log") {
				reads.Add(1)
				time.Sleep(time.Second)
			}
			return nil
		}))
		log, idle := opened(t, cfg)
		busy, err := log.Shard(8, Start{})
		if err != nil {
			t.Fatal(err)
		}
		save(t, idle, nil, sized(1, 100))
		for index := uint64(1); reads.Load() == 0 && index < 1000; index++ {
			save(t, busy, nil, sized(index, 1000))
			if err := busy.Compact(index); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := log.Close(); err != nil || reads.Load() == 0 {
			t.Errorf("Close returned %v after %d reads", err, reads.Load())
		}
		time.Sleep(2 * time.Second)
		if err := fatal.Load(); err != nil {
			t.Errorf("the copy that went on while the log was closed reported %v", err)
		}
	})
}
