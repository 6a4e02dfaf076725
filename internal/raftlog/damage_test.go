package raftlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/pawlq/pawl/internal/ondisk"
)

// wornDisk returns a disk with several segments and marks, whose log holds entries up to 60, and the first entry that is not
// compacted. The marks cover the entries up to promised.
func wornDisk(t *testing.T, clean bool) (d *disk, first, promised uint64) {
	d = newDisk(t)
	s := d.openShard(Start{})
	next := uint64(1)
	add := func(n int) {
		var es []*pb.Entry
		for range n {
			es = append(es, &pb.Entry{Index: new(next), Term: new(uint64(1)), Data: payload(next)})
			next++
		}
		save(t, s, aHardState(1, 1, next-1), es)
	}
	add(10)
	add(10)
	d.close()
	s = d.openShard(Start{})
	for range 10 {
		add(2)
	}
	if err := s.Compact(5); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		add(1)
	}
	if err := d.log.marks.sync(); err != nil {
		t.Fatal(err)
	}
	if clean {
		for range 10 {
			add(1)
		}
		d.close()
		return d, 6, next - 1
	}
	promised = next - 1
	for range 10 {
		add(1)
	}
	d.losePower(50, 1)
	return d, 6, promised
}

func payload(index uint64) []byte {
	return fmt.Appendf(nil, "%d%s", index, strings.Repeat(string(rune('a'+index%26)), 700))
}

// files returns the paths of all files.
func (d *disk) files() (out []string) {
	for _, dir := range []string{"/data/raft", "/data/raft/log"} {
		names, err := d.mem.List(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			d.t.Fatal(err)
		}
		for _, n := range names {
			if n != "log" && n != "LOCK" {
				out = append(out, path.Join(dir, n))
			}
		}
	}
	return out
}

func (d *disk) read(file string) []byte {
	f, err := d.mem.Open(file)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

func (d *disk) write(file string, b []byte) {
	f, err := d.mem.Create(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disk) copy() *disk {
	return &disk{t: d.t, mem: d.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})}
}

// lost returns a promised entry that is missing although the log opened without an error; 0: none.
func (d *disk) lost(first, promised uint64) (index uint64, refused error) {
	log, err := Open(d.config())
	if err != nil {
		return 0, err
	}
	defer log.Close()
	s, err := log.Shard(7, Start{Index: first - 1, Term: 1})
	if err != nil {
		return 0, err
	}
	es, err := s.Entries(first, promised+1, 1<<40)
	if err != nil {
		return first, nil
	}
	for i := first; i <= promised; i++ {
		if i-first >= uint64(len(es)) || string(es[i-first].GetData()) != string(payload(i)) {
			return i, nil
		}
	}
	return 0, nil
}

// A single flipped bit, anywhere in any file, loses nothing that was promised without an error.
func TestFlippedBitIsNoticed(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed=%v", clean), func(t *testing.T) {
			t.Parallel()
			worn, first, promised := wornDisk(t, clean)
			if index, err := worn.copy().lost(first, promised); index != 0 || err != nil {
				t.Fatalf("with no bit flipped entry %d is lost; %v", index, err)
			}
			flips, refusals := 0, 0
			for _, file := range worn.files() {
				size := len(worn.read(file))
				for at := 0; at < size; at += stride {
					if worn.flip(file, min(at+flips%64, size-1), flips%8, first, promised) {
						refusals++
					}
					flips++
				}
			}
			t.Logf("%d flips, %d refused", flips, refusals)
			if refusals == 0 {
				t.Error("no flip was refused")
			}
		})
	}
}

// flip flips a bit in a copy of the disk and reports whether the log was refused.
func (d *disk) flip(file string, at, bit int, first, promised uint64) bool {
	worn := d.copy()
	b := worn.read(file)
	b[at] ^= 1 << bit
	worn.write(file, b)
	index, err := worn.lost(first, promised)
	if index != 0 {
		d.t.Errorf("bit %d of byte %d of %d in %q flipped: entry %d was lost without an error", bit, at, len(b), file, index)
	}
	if err != nil && !errors.Is(err, ondisk.ErrDamaged) && !errors.Is(err, ErrIdentity) {
		d.t.Errorf("bit %d of byte %d in %q flipped: refused with %v, want ondisk.ErrDamaged", bit, at, file, err)
	}
	return err != nil
}

// A truncated file is noticed too, or harmless.
func TestTruncatedFileIsNoticed(t *testing.T) {
	worn, first, promised := wornDisk(t, true)
	for _, file := range worn.files() {
		whole := worn.read(file)
		for n := 0; n < len(whole); n += max(stride, len(whole)/50) {
			d := worn.copy()
			d.write(file, whole[:n])
			if index, err := d.lost(first, promised); index != 0 {
				t.Errorf("%q truncated to %d of %d bytes: entry %d was lost without an error", file, n, len(whole), index)
			} else if err != nil && !errors.Is(err, ondisk.ErrDamaged) {
				t.Errorf("%q truncated to %d bytes: refused with %v, want ondisk.ErrDamaged", file, n, err)
			}
		}
		d := worn.copy()
		if err := d.mem.Remove(file); err != nil {
			t.Fatal(err)
		}
		if index, err := d.lost(first, promised); index != 0 {
			t.Errorf("%q removed: entry %d was lost without an error", file, index)
		} else if err != nil && !errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("%q removed: refused with %v, want ondisk.ErrDamaged", file, err)
		}
	}
}

// A log that was refused can be opened by accepting the loss: it has a prefix of what there was, and a new epoch.
func TestDamageCanBeAccepted(t *testing.T) {
	worn, first, promised := wornDisk(t, true)
	kept := map[bool]int{}
	for _, file := range worn.files() {
		whole := worn.read(file)
		for at := 17; at < len(whole); at += max(stride, len(whole)/20) {
			d := worn.copy()
			b := append([]byte(nil), whole...)
			b[at] ^= 0x10
			d.write(file, b)
			if _, err := d.lost(first, promised); err == nil {
				continue
			}
			d.acceptDamage(fmt.Sprintf("%s at %d", file, at), first, kept)
			if _, err := d.lost(first, first-1); err != nil {
				t.Errorf("%s at %d: still refused: %v", file, at, err)
			}
		}
	}
	if kept[true] == 0 || kept[false] == 0 {
		t.Errorf("accepting the loss kept entries %d times and none %d times, want both to happen", kept[true], kept[false])
	}
}

func (d *disk) acceptDamage(where string, first uint64, kept map[bool]int) {
	d.t.Helper()
	cfg := d.config()
	cfg.AcceptDataLoss = true
	log, err := Open(cfg)
	if err != nil {
		d.t.Errorf("%s: Open failed although the loss was accepted: %v", where, err)
		return
	}
	s, err := log.Shard(7, Start{Index: first - 1, Term: 1})
	if err != nil {
		d.t.Errorf("%s: Shard failed although the loss was accepted: %v", where, err)
		return
	}
	last, _ := s.LastIndex()
	kept[last >= first]++
	if s.Epoch() != 1 {
		d.t.Errorf("%s: epoch is %d, want 1", where, s.Epoch())
	}
	if last >= first {
		es, err := s.Entries(first, last+1, 1<<40)
		if err != nil {
			d.t.Errorf("%s: %v", where, err)
		}
		for _, e := range es {
			if string(e.GetData()) != string(payload(e.GetIndex())) {
				d.t.Errorf("%s: entry %d has other data", where, e.GetIndex())
			}
		}
	}
	if err := log.Close(); err != nil {
		d.t.Errorf("%s: %v", where, err)
	}
}

// TestLostVoteIsNoticed: if the record of a vote, the last one, is damaged, the log does not open without the vote: another vote in that
// term might elect a second leader. That holds for a log that a snapshot replaces, too.
func TestLostVoteIsNoticed(t *testing.T) {
	for _, at := range []Start{{}, {Index: 9, Term: 4, FromSnapshot: true}} {
		d := newDisk(t)
		s := d.openShard(Start{})
		save(t, s, aHardState(4, 1, 0), entries(4, 1, 3))
		save(t, s, aHardState(5, 0, 3), nil) // a candidate of term 5 is refused
		save(t, s, aHardState(5, 2, 3), nil)
		d.close()
		if hs, _, _ := d.openShard(at).InitialState(); hs.GetTerm() != 5 || hs.GetVote() != 2 {
			t.Errorf("the log opens with term %d and vote %d, want 5 and 2", hs.GetTerm(), hs.GetVote())
		}
		d.close()

		d = newDisk(t)
		s = d.openShard(Start{})
		save(t, s, aHardState(4, 1, 0), entries(4, 1, 3))
		save(t, s, aHardState(5, 0, 3), nil)
		save(t, s, aHardState(5, 2, 3), nil)
		d.close()
		file := "/data/raft/log/0000000001.log"
		b := d.read(file)
		b[bytes.Index(b, appendNumbers(append(appendHead(nil, recordSave, 7), 1), 5, 2, 3))] ^= 1
		d.write(file, b)
		if _, err := d.open().Shard(7, at); !errors.Is(err, ondisk.ErrDamaged) || !strings.Contains(err.Error(),
			"had voted for replica 2 in term 5") {
			t.Errorf("the vote is lost (snapshot: %v), and Shard returned %v", at.FromSnapshot, err)
		}
		d.close()
		cfg := d.config()
		cfg.AcceptDataLoss = true
		log, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = log.Shard(7, at); err != nil {
			t.Fatal(err)
		}
		if hs, _, _ := s.InitialState(); hs.GetTerm() != 6 || hs.GetVote() != 0 || s.Epoch() != 1 {
			t.Errorf("when the loss is accepted, the log opens with term %d, vote %d and epoch %d; want 6, 0 and 1", hs.GetTerm(),
				hs.GetVote(), s.Epoch())
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMarkOfAFailedSync: what one process reads after another's sync of the marks has failed is durable.
func TestMarkOfAFailedSync(t *testing.T) {
	d := newDisk(t)
	var broken atomic.Bool
	cfg := d.config()
	cfg.FS = errorfs.Wrap(d.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileSyncData && strings.HasSuffix(op.Path, "marks") {
			return errorfs.ErrInjected
		}
		return nil
	}))
	log, s := opened(t, cfg)
	broken.Store(true)
	if err := s.Save(aHardState(5, 2, 0), nil); !errors.Is(err, errorfs.ErrInjected) {
		t.Fatalf("Save returned %v, want the failure of the sync", err)
	}
	if err := log.Close(); !errors.Is(err, errorfs.ErrInjected) {
		t.Fatal(err)
	}
	d.openShard(Start{})
	after := d.mem.CrashClone(vfs.CrashCloneCfg{})
	d.close()
	m, err := openMarks(after, "/data/raft/marks", us, nil)
	if err != nil {
		t.Fatal(err)
	}
	if k, _ := m.get(7); k != (mark{7, 0, position{0, 5}, 2}) {
		t.Errorf("after a power loss the mark is %+v, want the vote for 2 in term 5", k)
	}
}

// TestMarksAreRewrittenAsTheyAre: a start writes the marks over themselves. If it changed their order, a power loss
// that keeps a part of that would leave only the marks before them, which the log may be shorter than on purpose.
func TestMarksAreRewrittenAsTheyAre(t *testing.T) {
	d := newDisk(t)
	log := d.open()
	for id := range uint32(50) {
		if err := log.marks.set(mark{shard: 50 - id, position: position{3, 2}}); err != nil {
			t.Fatal(err)
		}
	}
	d.close()
	before := d.read("/data/raft/marks")
	d.open()
	after := d.read("/data/raft/marks")
	d.close()
	if !bytes.Equal(before, after) {
		t.Error("the marks were written in another order")
	}
}

func FuzzDecodeSlot(f *testing.F) {
	m := marks{id: us, seq: 5, byShard: map[uint32]mark{1: {1, 0, position{7, 3}, 2}, 9: {9, 2, position{1, 1}, 0}}}
	f.Add(m.encodeSlot())
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, of, err := decodeSlot(b)
		if err == nil && len(of) > maxShards {
			t.Errorf("a slot with %d marks was accepted", len(of))
		}
	})
}

// FuzzReplay: no record of a log makes a replay panic.
func FuzzReplay(f *testing.F) {
	save := append(appendHead(nil, recordSave, 7), 1)
	save = appendNumbers(save, 3, 1, 2)
	for _, e := range entries(3, 1, 2) {
		save = appendEntry(save, e)
	}
	f.Add(save, false)
	f.Add(appendNumbers(appendHead(nil, recordReset, 7), 5, 2, 3, 1, 5), false)
	f.Add(appendHead(nil, recordRemoved, 7), false)
	f.Add(appendNumbers([]byte{recordVersion}, 7, 1, 3, 1, 2, 4, 3), true)
	f.Fuzz(func(t *testing.T, b []byte, checkpoint bool) {
		l := &Log{shards: map[uint32]*shardIndex{7: {start: position{1, 1}}}}
		if err := l.replay(1, b, checkpoint); err != nil {
			return
		}
		for _, x := range l.shards {
			if whole, err := x.check(); err == nil && whole != len(x.places) {
				t.Errorf("%d of %d entries are contiguous, but check returned no error", whole, len(x.places))
			}
		}
	})
}

// A record that names an entry far beyond the others is damage that its checksum does not reveal.
func TestEntryFarBeyond(t *testing.T) {
	x := shardIndex{start: position{10, 1}}
	for _, c := range []struct {
		index uint64
		fits  bool
	}{{10, true}, {11, true}, {11 + maxGap, true}, {11 + maxGap + maxGap + 1, false}} {
		if err := x.put(c.index, place{record: 1, term: 1}); (err == nil) != c.fits {
			t.Errorf("put of entry %d after %d: %v", c.index, x.last().index, err)
		}
	}
	content := appendHead(nil, recordCopied, 7)
	content = appendEntry(content, &pb.Entry{Index: new(uint64(maxGap + 1)), Term: new(uint64(1))})
	l := &Log{shards: map[uint32]*shardIndex{}}
	if err := l.apply(1, content); err == nil {
		t.Error("a record with a gap too large was replayed")
	}
}
