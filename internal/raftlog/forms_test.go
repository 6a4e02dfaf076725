package raftlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
)

// A record that ends early, or has the format of another release, is refused.
func TestRecordsAreReadToTheirEnd(t *testing.T) {
	long := slices.Repeat([]byte{0xff}, 11)
	for what, read := range map[string]func(*reader){
		"byte": func(r *reader) { r.byte() }, "number": func(r *reader) { r.number() }, "shard": func(r *reader) { r.shard() },
		"entry": func(r *reader) { r.entry() }, "long number": func(r *reader) { r.rest = long; r.number() },
		"cut number": func(r *reader) {
			r.rest = long[:1]
			r.number()
		},
		"data": func(r *reader) { r.rest = []byte{1, 1, 0, 9, 'a'}; r.entry() }, "unknown type": func(r *reader) {
			r.rest = []byte{1, 1, 9, 0}
			r.entry()
		},
		"version": func(r *reader) { r.rest = []byte{2}; r.version() }, "too long": func(r *reader) { r.rest = []byte{0}; _ = r.end() },
	} {
		r := &reader{}
		if read(r); r.err == nil || r.rest != nil {
			t.Errorf("%s: %v, with %d bytes left", what, r.err, len(r.rest))
		}
	}
	for _, kind := range []pb.EntryType{pb.EntryNormal, pb.EntryConfChange, pb.EntryConfChangeV2} {
		r := &reader{rest: []byte{3, 2, byte(kind), 1, 'a'}}
		e := r.entry()
		if err := r.end(); err != nil || e.GetIndex() != 3 || e.GetTerm() != 2 || e.GetType() != kind || string(e.GetData()) != "a" {
			t.Errorf("an entry of type %v was decoded as %v, %v", kind, e, err)
		}
	}
	if e := (&reader{rest: []byte{3, 2, 0, 0, 9}}).entry(); e.Data != nil {
		t.Error("an entry without data keeps its record in memory")
	}
}

// Files are ours only if the whole identity matches.
func TestIdentityMustMatch(t *testing.T) {
	id := Identity{Cluster: [16]byte{1, 15: 2}, Node: 3}
	if err := id.check(id.encode()); err != nil {
		t.Error(err)
	}
	for at := range identityLen {
		b := id.encode()
		b[at] ^= 1
		err := id.check(b)
		if errors.Is(err, ErrIdentity) == (at == 0) || err == nil {
			t.Errorf("with byte %d changed: %v", at, err)
		}
		if at > 0 && !strings.Contains(err.Error(), "they are of cluster") {
			t.Errorf("with byte %d changed: %v", at, err)
		}
	}
	b := id.encode()
	b[24] = 9
	if err := id.check(b); err == nil || !strings.Contains(err.Error(), "cluster 01000000000000000000000000000002, node 9;") {
		t.Errorf("check = %v, want an error about node 9", err)
	}
	for _, short := range [][]byte{nil, id.encode()[:24], append(id.encode(), 0)} {
		if err := id.check(short); err == nil {
			t.Errorf("an identity of %d bytes was accepted", len(short))
		}
	}
}

func TestIndexOfShard(t *testing.T) {
	x := &shardIndex{start: position{5, 1}}
	for i := uint64(6); i <= 8; i++ {
		if err := x.set(i, place{record: 1, term: i / 2}); err != nil {
			t.Fatal(err)
		}
	}
	for index, term := range map[uint64]uint64{4: 0, 5: 0, 6: 3, 8: 4, 9: 0} {
		if got := x.at(index).term; got != term {
			t.Errorf("entry %d has term %d, want %d", index, got, term)
		}
	}
	if whole, err := x.check(); whole != 3 || err != nil {
		t.Errorf("%d entries are contiguous, %v, want 3", whole, err)
	}
	if err := x.set(4, place{record: 1, term: 9}); err != nil || x.last() != (position{8, 4}) {
		t.Errorf("after an entry that is compacted, %v, the last is %+v", err, x.last())
	}
	if x.compact(position{4, 1}); x.start != (position{5, 1}) || x.last() != (position{8, 4}) {
		t.Errorf("compacted to before its start, the log begins after %+v and ends with %+v", x.start, x.last())
	}
	x.places[1].term = 2
	if whole, err := x.check(); whole != 1 || err == nil {
		t.Errorf("when an entry of an earlier term follows %d entries are contiguous, %v, want 1", whole, err)
	}
	x.places[1] = place{}
	if whole, err := x.check(); whole != 1 || err == nil || !strings.Contains(err.Error(), "entry 7 is missing") {
		t.Errorf("when an entry is missing %d entries are contiguous, %v, want 1", whole, err)
	}
	if x.set(7, place{record: 1, term: 9}); len(x.places) != 2 || x.last() != (position{7, 9}) {
		t.Errorf("after an entry was replaced the last is %+v of %d", x.last(), len(x.places))
	}
}

// newMarks returns marks of a new file. Their next syncs fail, as many as failing says.
func newMarks(t *testing.T, failing *atomic.Int32) (*marks, vfs.FS) {
	t.Helper()
	var started atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && started.Load() && failing.Add(-1) >= 0 {
			return errorfs.ErrInjected
		}
		return nil
	}))
	m, err := openMarks(fs, "marks", us, newWatchdog().watch("marks"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.create(fs), m.start(fs, func(error) {})); err != nil {
		t.Fatal(err)
	}
	started.Store(true)
	return m, fs
}

func reread(t *testing.T, fs vfs.FS) *marks {
	t.Helper()
	m, err := openMarks(fs, "marks", us, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Writes of the marks alternate between the slots, and the later one counts.
func TestMarksAlternateBetweenSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, fs := newMarks(t, &atomic.Int32{})
		if m.seq != 1 {
			t.Errorf("the first marks have number %d, want 1", m.seq)
		}
		if err := m.set(mark{shard: 7}); err != nil {
			t.Fatal(err)
		}
		last := m.slot()
		for i := range uint64(4) {
			m.advance(mark{7, 0, position{i + 1, 2}, 0})
			time.Sleep(2 * markPeriod)
			synctest.Wait()
			if m.slot() == last {
				t.Errorf("write %d went to the same slot as the one before it", i+1)
			}
			last = m.slot()
			if k, ok := reread(t, fs).get(7); !ok || k.position != (position{i + 1, 2}) {
				t.Errorf("write %d: the mark is %+v, %v", i+1, k, ok)
			}
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMarksAreBounded(t *testing.T) {
	m, fs := newMarks(t, &atomic.Int32{})
	for i := range uint32(maxShards) {
		m.byShard[i] = mark{shard: i}
	}
	if err := m.set(mark{uint32(maxShards), 0, position{1, 1}, 0}); err == nil || len(m.byShard) != maxShards {
		t.Errorf("%d shards have marks, %v, want the new one refused", len(m.byShard), err)
	}
	if err := m.set(mark{5, 6, position{7, 8}, 9}); err != nil {
		t.Error(err)
	}
	m.byShard[6], m.dirty = mark{6, 1, position{2, 3}, 4}, true
	if err := m.remove(uint32(maxShards)); err != nil || reread(t, fs).byShard[6] != m.byShard[6] {
		t.Errorf("a removal of nothing dropped a change of another mark: %v", err)
	}
	if before := m.seq; m.sync() != nil || m.seq != before {
		t.Error("marks that have not changed are written again")
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
	if got := reread(t, fs); len(got.byShard) != maxShards || got.byShard[5] != (mark{5, 6, position{7, 8}, 9}) {
		t.Errorf("%d marks were read, one of them %+v", len(got.byShard), got.byShard[5])
	}
	more := func(count uint32, bytes int) error {
		b := append([]byte(slotMagic), us.encode()...)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, 1), count)
		b = append(b, make([]byte, bytes-4)...)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		_, _, _, err := decodeSlot(b)
		return err
	}
	for what, c := range map[string]struct {
		err  error
		good bool
	}{
		"none": {more(0, 4), true}, "one": {more(1, markLen+4), true}, "all": {more(uint32(maxShards), maxShards*markLen+4), true},
		"one too many": {more(uint32(maxShards)+1, (maxShards+1)*markLen+4), false}, "cut": {more(2, 2*markLen+3), false},
	} {
		if (c.err == nil) != c.good {
			t.Errorf("%s: %v", what, c.err)
		}
	}
	b := make([]byte, slotHead+4)
	copy(b, "pawlmarc")
	if _, _, _, err := decodeSlot(b); err == nil || !strings.Contains(err.Error(), "unknown format") {
		t.Errorf("marks of another version: %v", err)
	}
}

// After a failed sync, marks are never synced again, even if the disk would accept it.
func TestFailedMarks(t *testing.T) {
	failing := &atomic.Int32{}
	m, _ := newMarks(t, failing)
	failing.Store(1)
	for i := range 2 {
		if err := m.set(mark{1, 0, position{uint64(i), 1}, 0}); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("set %d: %v", i+1, err)
		}
	}
	if err := m.close(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("close: %v", err)
	}
}

// Even just the last entry may be replaced, in memory as on disk.
func TestLastEntryIsReplaced(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 5))
	save(t, s, aHardState(2, 1, 0), entries(2, 5, 5))
	if wantLog(t, s, "1:1 2:1 3:1 4:1 5:2"); len(s.tail) != 5 {
		t.Errorf("%d entries are in memory, want 5", len(s.tail))
	}
	d.close()
	wantLog(t, d.openShard(Start{}), "1:1 2:1 3:1 4:1 5:2")
	d.close()
}

// Entries returns only entries between the first and the last, as many as fit in maxSize bytes, but at least one.
func TestEntriesFit(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 5))
	two := uint64(entrySize(entries(1, 1, 1)[0]) + entrySize(entries(1, 2, 2)[0]))
	tail := s.tail
	for _, cached := range []bool{true, false} {
		if s.tail = tail; !cached {
			s.tail = nil
		}
		for most, want := range map[uint64]int{0: 1, two - 1: 1, two: 2, 1 << 20: 4} {
			if es, err := s.Entries(1, 5, most); err != nil || len(es) != want {
				t.Errorf("with entries in memory %v, a limit of %d bytes returned %d entries, want %d, %v", cached, most,
					len(es), want, err)
			}
		}
	}
	s.log.cfg.Fatal = func(error) {}
	s.index.places[1].term++
	if _, err := s.Entries(2, 3, 0); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("an entry of another term was read: %v", err)
	}
	s.index.places[1].term--
	s.index.places[1].offset, s.index.places[2].offset = s.index.places[2].offset, s.index.places[1].offset
	if _, err := s.Entries(1, 4, 1<<20); err == nil || !strings.Contains(err.Error(),
		"entry 3 of shard 7 is stored where entry 2 of term 1 should be") {
		t.Errorf("swapped entries were read: %v", err)
	}
	s.index.places[1].offset, s.index.places[2].offset = s.index.places[2].offset, s.index.places[1].offset
	s.index.places[0].offset, s.index.places[1].offset = s.index.places[1].offset, s.index.places[0].offset
	if es, err := s.Entries(1, 3, 1<<20); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("entries at swapped places were read as %v, %v, want ErrDamaged", es, err)
	}
}

func TestSaveAndCompactRefuse(t *testing.T) {
	d := newDisk(t)
	s := d.openShard(Start{})
	if !d.log.Has(7) || d.log.Has(8) {
		t.Error("Has is wrong about which shards have logs")
	}
	save(t, s, aHardState(1, 1, 0), entries(1, 1, 5))
	if err := s.Save(nil, entries(1, 7, 7)); err == nil {
		t.Error("an entry was saved after a gap")
	}
	for _, index := range []uint64{3, 3, 2, 0} {
		if err := s.Compact(index); err != nil {
			t.Errorf("Compact(%d) = %v", index, err)
		}
	}
	wantLog(t, s, "4:1 5:1")
	if _, err := s.Term(2); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("Term of a compacted entry: %v, want ErrCompacted", err)
	}
	for _, index := range []uint64{3, 2} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("entry %d was saved in place of a compacted one", index)
				}
			}()
			_ = s.Save(nil, entries(2, index, index))
		}()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the last entry, which is compacted, was replaced")
			}
		}()
		if err := s.Compact(5); err != nil {
			t.Error(err)
		}
		_ = s.Save(nil, entries(2, 5, 5))
	}()
	d.close()
	if err := errors.Join(s.Reset(9, 2), d.log.Remove(7)); err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("Reset and Remove of a closed log: %v, want two errors", err)
	}
}

// Saving only entries, the most frequent case, waits for no sync of the marks.
func TestEntriesSyncNoMarks(t *testing.T) {
	var syncs atomic.Int32
	cfg := newDisk(t).config()
	cfg.FS = errorfs.Wrap(cfg.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, "marks") {
			syncs.Add(1)
		}
		return nil
	}))
	synctest.Test(t, func(t *testing.T) {
		log, s := opened(t, cfg)
		save(t, s, aHardState(1, 1, 0), entries(1, 1, 1))
		time.Sleep(2 * markPeriod)
		save(t, s, nil, entries(1, 2, 2))
		time.Sleep(2 * markPeriod)
		synctest.Wait()
		before := syncs.Load()
		for i := uint64(3); i < 9; i++ {
			save(t, s, nil, entries(1, i, i))
		}
		synctest.Wait()
		if n := syncs.Load() - before; n > 1 {
			t.Errorf("six entries made %d syncs of the marks, want at most one", n)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A mark's term is compared first: in a later term a log may be shorter.
func TestMarksAndTerms(t *testing.T) {
	for what, c := range map[string]struct {
		mark mark
		lost bool
	}{
		"as it is":                  {mark{7, 0, position{5, 3}, 1}, false},
		"one more":                  {mark{7, 0, position{6, 3}, 1}, true},
		"a later term":              {mark{7, 0, position{5, 4}, 0}, true},
		"an earlier one":            {mark{7, 0, position{9, 2}, 1}, false},
		"none":                      {mark{}, true},
		"before its vote":           {mark{7, 0, position{5, 3}, 0}, false},
		"another vote":              {mark{7, 0, position{5, 3}, 2}, true},
		"another in a later term":   {mark{7, 0, position{5, 4}, 2}, true},
		"another in an earlier one": {mark{7, 0, position{5, 2}, 2}, false},
	} {
		d := newDisk(t)
		save(t, d.openShard(Start{}), aHardState(3, 1, 0), entries(3, 1, 5))
		d.close()
		log := d.open()
		err := log.marks.remove(7)
		if c.mark.shard != 0 {
			err = log.marks.set(c.mark)
		}
		if err != nil {
			t.Fatal(err)
		}
		d.close()
		if _, err := d.open().Shard(7, Start{}); errors.Is(err, ondisk.ErrDamaged) != c.lost || err != nil && !c.lost {
			t.Errorf("%s: Shard returned %v", what, err)
		}
		if err := d.log.Check(7, Start{Index: 3, Term: 3, FromSnapshot: true}); (err != nil) != c.lost {
			t.Errorf("%s: with the state of a snapshot that the log has, Check returned %v", what, err)
		}
		d.close()
		if !c.lost {
			continue
		}
		cfg := d.config()
		cfg.AcceptDataLoss = true
		if log, err = Open(cfg); err != nil {
			t.Fatal(err)
		}
		s, err := log.Shard(7, Start{})
		if err != nil {
			t.Fatal(err)
		}
		if hs, _, _ := s.InitialState(); hs.GetTerm() != max(c.mark.term, 3)+1 || s.Epoch() != 1 {
			t.Errorf("%s: after the loss was accepted the term is %d in epoch %d", what, hs.GetTerm(), s.Epoch())
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Marks of another log are refused as such, and a transient read error is not damage.
func TestMarksOfAnotherLog(t *testing.T) {
	m, fs := newMarks(t, &atomic.Int32{})
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	other := us
	other.Node++
	if _, err := openMarks(fs, "marks", other, nil); !errors.Is(err, ErrIdentity) {
		t.Errorf("marks of another node: %v, want ErrIdentity", err)
	}
	broken := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen {
			return errorfs.ErrInjected
		}
		return nil
	}))
	if m, err := openMarks(broken, "marks", us, nil); m != nil || !errors.Is(err, errorfs.ErrInjected) ||
		errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("marks that can't be read at the moment: %v", err)
	}
}

// Damaged marks are given up if loss is accepted, but not after an error that may be transient.
func TestDamagedMarksAreAccepted(t *testing.T) {
	d := newDisk(t)
	save(t, d.openShard(Start{}), aHardState(3, 1, 0), entries(3, 1, 5))
	d.close()
	accepting := d.config()
	accepting.AcceptDataLoss = true
	for _, of := range []string{"/data/raft/marks", "/data/raft/log", "/data/raft"} {
		for _, kind := range []errorfs.OpKind{errorfs.OpOpen, errorfs.OpList, errorfs.OpMkdirAll, errorfs.OpLock} {
			failed := false
			cfg := accepting
			cfg.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if failed || op.Kind != kind || !strings.HasPrefix(op.Path, of) {
					return nil
				}
				failed = true
				return &os.PathError{Op: "use", Path: op.Path, Err: syscall.EIO}
			}))
			log, err := Open(cfg)
			if failed != (err != nil) || err != nil && (!errors.Is(err, syscall.EIO) || errors.Is(err, ondisk.ErrDamaged)) {
				t.Errorf("%v of %s failed: %v; Open returned %v", kind, of, failed, err)
			}
			if err == nil {
				err = log.Close()
			}
			if err != nil && !failed {
				t.Fatal(err)
			}
		}
	}
	d.write("/data/raft/marks", make([]byte, 2*slotLen))
	if _, err := Open(d.config()); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Open with damaged marks: %v, want ErrDamaged", err)
	}
	log, err := Open(accepting)
	if err != nil {
		t.Fatal(err)
	}
	s, err := log.Shard(7, Start{})
	if err != nil || s.Epoch() != 1 {
		t.Fatalf("with the loss accepted: epoch %d, %v, want 1", s.Epoch(), err)
	}
	wantLog(t, s, "1:3 2:3 3:3 4:3 5:3")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
