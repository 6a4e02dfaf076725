package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// file is the file of a segment, built by hand.
type file struct {
	number uint32
	seed   uint64 // of the records added from now on
	b      []byte
	at     int // where the next record goes
}

const testSeed = 0x0807060504030201

func segmentFile(number uint32) *file {
	return &file{number, testSeed, append(encodeHead(number, testSeed, []byte("us")), make([]byte, testSegment-segmentHead)...),
		segmentHead}
}

func (f *file) lsn() LSN { return lsnOf(f.number, f.at) }

// record adds a record that claims the log was synced up to the given LSN.
func (f *file) record(content string, synced LSN) *file {
	size := recordSize(len(content))
	rec := f.b[f.at : f.at+size]
	setLength(rec, len(content))
	copy(rec[recordHead:], content)
	sealAll(rec, &segment{number: f.number, seed: f.seed}, f.at, synced)
	f.at += size
	return f
}

// checkpoint adds a first record, with the end of the previous segment and the number of the first needed segment.
func (f *file) checkpoint(end LSN, first uint32) *file {
	b := make([]byte, checkpointHead)
	for i := range 8 {
		b[i] = byte(end >> (8 * i))
	}
	b[8] = byte(first)
	return f.record(string(b), end)
}

// gap skips some bytes.
func (f *file) gap(n int) *file {
	f.at += n
	return f
}

// seeded makes the next records those of another life of the file.
func (f *file) seeded(seed uint64) *file {
	f.seed = seed
	return f
}

// cut makes the file shorter.
func (f *file) cut(size int) *file {
	f.b = f.b[:size]
	return f
}

// headless damages the head.
func (f *file) headless() *file {
	f.b[0] ^= 1
	return f
}

// version gives the head the magic of another version, with a matching checksum.
func (f *file) version(v byte) *file {
	f.b[7] = v
	end := 8 + 16 + len("us")
	binary.LittleEndian.PutUint32(f.b[end:], crc32.Checksum(f.b[:end], castagnoli))
	return f
}

// named gives the file the head of another segment or owner.
func (f *file) named(number uint32, owner string) *file {
	copy(f.b, encodeHead(number, testSeed, []byte(owner)))
	return f
}

// on returns a disk with the files.
func on(t *testing.T, files ...*file) *vfs.MemFS {
	t.Helper()
	w := newWorld(t, 0)
	for _, f := range files {
		to, err := w.mem.Create("/wal/"+fileName(f.number), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(f.b); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(to.Sync(), to.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return w.mem
}

// replayed opens and closes a log. It returns the contents of its records except for the checkpoints.
func replayed(fs vfs.FS, acceptLoss bool) (string, error) {
	log, got, err := openOn(fs, acceptLoss)
	if err == nil {
		err = log.Close()
	}
	return got, err
}

func opened(t *testing.T, fs vfs.FS) (*Log, string) {
	t.Helper()
	log, got, err := openOn(fs, false)
	if err != nil {
		t.Fatal(err)
	}
	return log, got
}

func openOn(fs vfs.FS, acceptLoss bool) (*Log, string, error) {
	var got []string
	log, err := Open(Config{Dir: "/wal", FS: fs, Owner: []byte("us"), SegmentSize: testSegment, AcceptLoss: acceptLoss,
		Checkpoint: func(uint32) ([]byte, uint32) { return nil, 1 }}, func(_ LSN, content []byte, checkpoint bool) error {
		if !checkpoint {
			got = append(got, string(content))
		}
		return nil
	})
	return log, strings.Join(got, " "), err
}

// TestDamageByHand: damage with a witness is reported, with its range of bytes.
func TestDamageByHand(t *testing.T) {
	atEnd := func() *file {
		f := segmentFile(1).checkpoint(0, 1)
		synced := f.lsn() + 8
		f.at = testSegment - recordHead
		return f.record("", synced)
	}
	whole := segmentFile(1).checkpoint(0, 1).record("a", 0)
	for _, c := range []struct {
		name     string
		files    []*file
		segment  uint32
		from, to int
		reason   string
	}{
		{"the first record is not one of a segment", []*file{segmentFile(1).record("short", 0).record("a", 1<<32|segmentHead+8)}, 1,
			segmentHead, segmentHead + 32, "first record can't be read"},
		{"it needs a segment that is yet to come", []*file{segmentFile(1).checkpoint(0, 2).record("a", 1<<32|segmentHead+8)}, 1,
			segmentHead, segmentHead + 40, "first record can't be read"},
		{"it needs no segment", []*file{segmentFile(1).checkpoint(0, 0).record("a", 1<<32|segmentHead+8)}, 1, segmentHead, segmentHead + 40,
			"first record can't be read"},
		{"it is gone", []*file{segmentFile(1).gap(40).record("a", 1<<32|segmentHead+8)}, 1, segmentHead, segmentHead + 40,
			"first record can't be read"},
		{"the head is damaged", []*file{segmentFile(1).checkpoint(0, 1).headless()}, 1, 0, segmentHead, "head can't be read"},
		{"the head is that of another version", []*file{segmentFile(1).checkpoint(0, 1).version(2)}, 1, 0, segmentHead,
			"head can't be read"},
		{"the head is that of another segment", []*file{segmentFile(1).checkpoint(0, 1).named(7, "us")}, 1, 0, segmentHead,
			"head can't be read"},
		{"the head of a segment in the middle is damaged", []*file{segmentFile(1).checkpoint(0, 1).record("a", 0).headless(),
			segmentFile(2).checkpoint(whole.lsn(), 1)}, 1, 0, segmentHead, "head can't be read"},
		{"the head of a segment that has not begun is damaged", []*file{whole, segmentFile(2).headless()}, 2, 0, segmentHead,
			"head can't be read"},
		{"the head of a segment that has not begun is that of another", []*file{whole, segmentFile(2).named(9, "us")}, 2, 0, segmentHead,
			"head can't be read"},
		{"the first record of a segment in the middle is not one of a segment", []*file{segmentFile(1).record("short", 0),
			segmentFile(2).checkpoint(segmentFile(1).record("short", 0).lsn(), 1)},
			1, segmentHead, segmentHead, "unknown form"},
		{"a segment is missing", []*file{whole, segmentFile(3).checkpoint(2<<32|segmentHead, 1)}, 2, 0, 0, "missing"},
		{"an empty record at the end of the file is the witness", []*file{atEnd()}, 1, segmentHead + 40, testSegment - recordHead,
			"later ones say that it was synced"},
		{"records are lost in the middle", []*file{segmentFile(1).checkpoint(0, 1).gap(32).record("b", 1<<32|segmentHead+72),
			segmentFile(2).checkpoint(1<<32|segmentHead+104, 1)},
			1, segmentHead + 40, segmentHead + 104, "the next segment follows"},
	} {
		_, err := replayed(on(t, c.files...), false)
		var damage *ondisk.DamageError
		if !errors.As(err, &damage) {
			t.Errorf("%s: Open returned %v, want a DamageError", c.name, err)
			continue
		}
		if damage.What != "log" || damage.File != "/wal/"+fileName(c.segment) || damage.From != int64(c.from) || damage.To != int64(c.to) ||
			!strings.Contains(damage.Reason, c.reason) {
			t.Errorf("%s: %v; want segment %d, bytes %d to %d, %q", c.name, damage, c.segment, c.from, c.to, c.reason)
		}
	}
}

// TestNoDamage: what a power loss may leave is not damage.
func TestNoDamage(t *testing.T) {
	for _, c := range []struct {
		name, want string
		files      []*file
	}{
		{"a part of the last write is gone, in its middle", "a", []*file{segmentFile(1).checkpoint(0, 1).record("a", 1<<32|segmentHead+
			40).gap(64).record("b", 1<<32|segmentHead+40)}},
		{"the first write is gone but for a record", "", []*file{segmentFile(1).gap(40).record("a", 0)}},
		{"the first record needs no segment, and nothing was synced behind it", "", []*file{segmentFile(1).checkpoint(0, 0)}},
		{"another life of a file has left a record at the end", "a", []*file{segmentFile(1).checkpoint(0, 1).record("a",
			0).seeded(0).record("b", 0)}},
		{"another life of a file has left a record that claims to be synced", "a", []*file{segmentFile(1).checkpoint(0, 1).record("a",
			0).seeded(0).record("b", 2<<32)}},
		{"another life of a file has left all its records", "a", []*file{segmentFile(1).checkpoint(0, 1).record("a", 0),
			segmentFile(2).seeded(0).checkpoint(1<<32|segmentHead+72, 1).record("b", 3<<32)}},
	} {
		fs := on(t, c.files...)
		for range 2 {
			if got, err := replayed(fs, false); err != nil || got != c.want {
				t.Errorf("%s: replayed %q (%v), want %q", c.name, got, err, c.want)
			}
		}
	}
}

// TestAcceptedDamageOfTheLastSegment: earlier segments are kept, even if their numbers do not begin with 1, and what was given up does
// not come back.
func TestAcceptedDamageOfTheLastSegment(t *testing.T) {
	for name, damage := range map[string]func(f *file){
		"head":         func(f *file) { f.headless() },
		"first record": func(f *file) { f.b[segmentHead] ^= 1 },
	} {
		fifth := segmentFile(5).checkpoint(4<<32|segmentHead, 5).record("a", 5<<32|segmentHead+40)
		sixth := segmentFile(6).checkpoint(fifth.lsn(), 5)
		sixth.record("b", sixth.lsn())
		damage(sixth)
		fs := on(t, fifth, sixth)
		if _, err := replayed(fs, false); !errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("%s: Open returned %v, want ErrDamaged", name, err)
		}
		for _, accept := range []bool{true, false} {
			if got, err := replayed(fs, accept); err != nil || got != "a" {
				t.Errorf("%s: replayed %q (%v), want %q", name, got, err, "a")
			}
		}
	}
}

// TestOtherOwnerOfAnEmptyLog: the log of another owner is refused even if it has no records yet.
func TestOtherOwnerOfAnEmptyLog(t *testing.T) {
	for _, size := range []int{segmentHead, testSegment} {
		f := segmentFile(1).named(1, "them")
		f.b = f.b[:size]
		var other *OwnerError
		if _, err := replayed(on(t, f), false); !errors.As(err, &other) || string(other.Owner) != "them" {
			t.Errorf("a log of %d bytes of another owner: %v, want an OwnerError", size, err)
		}
	}
}

// TestReplayIsRefused: an error of replay is returned, with the place of the record, and ends the replay.
func TestReplayIsRefused(t *testing.T) {
	fs := on(t, segmentFile(1).checkpoint(0, 1).record("a", 0).record("b", 0))
	calls, no := 0, errors.New("no")
	_, err := Open(Config{Dir: "/wal", FS: fs, Owner: []byte("us"), SegmentSize: testSegment}, func(LSN, []byte, bool) error {
		if calls++; calls == 2 {
			return no
		}
		return nil
	})
	if want := fmt.Sprintf("record at %d: no", segmentHead+40); calls != 2 || !errors.Is(err, no) || !strings.Contains(err.Error(), want) {
		t.Errorf("replay ended after %d records with %v, want %q", calls, err, want)
	}
}

// TestRecordsAfterTheEnd: what was never synced does not come back when the log ends just before it.
func TestRecordsAfterTheEnd(t *testing.T) {
	for name, next := range map[string][]*file{
		"no next segment":   nil,
		"a next segment":    {segmentFile(2)},
		"it has records":    {segmentFile(2).gap(40).record("old", 0)},
		"it is of no use":   {segmentFile(2).named(2, "us").cut(segmentHead)},
		"two next segments": {segmentFile(2), segmentFile(3)},
	} {
		first := segmentFile(1).checkpoint(0, 1)
		gap := blockSize - recordSize(checkpointHead) // the end of a block: what follows is not overwritten with it
		fs := &countedFS{FS: on(t, append(next, first.gap(gap).record("old", 0))...)}
		record, want := strings.Repeat("new", gap)[:gap-recordHead], ""
		for range 3 {
			log, got := opened(t, fs)
			if got != want {
				t.Fatalf("%s: replayed %.99q, want %.99q", name, got, want)
			}
			if err := log.Append(len(record), true, func(_ LSN, b []byte) { copy(b, record) }); err != nil {
				t.Fatal(err)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			if fs.open != 0 {
				t.Errorf("%s: %d files are still open", name, fs.open)
			}
			want = strings.TrimSpace(want + " " + record)
		}
	}
}

// TestSparesOfNoUse: a file whose number follows the end of the log is used only if it is the segment that was prepared for this place.
func TestSparesOfNoUse(t *testing.T) {
	for name, files := range map[string][]*file{
		"no segment has begun":            {segmentFile(1)},
		"its head is that of another one": {segmentFile(1).checkpoint(0, 1), segmentFile(2).named(9, "us")},
	} {
		fs, want := on(t, files...), ""
		for round := range 3 {
			log, got, err := openOn(fs, round == 0)
			if err != nil || got != want {
				t.Fatalf("%s: replayed %.99q, want %.99q; %v", name, got, want, err)
			}
			record := strings.Repeat(strconv.Itoa(round), testSegment/2)
			for range 3 { // two segments at least
				if err := log.Append(len(record), true, func(_ LSN, b []byte) { copy(b, record) }); err != nil {
					t.Fatal(err)
				}
				want = strings.TrimSpace(want + " " + record)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCutInPadding: a file that ends within the zeros that pad its last record has lost nothing.
func TestCutInPadding(t *testing.T) {
	f := segmentFile(1).checkpoint(0, 1).record("a", 0)
	fs := on(t, f.cut(f.at-3))
	for range 2 {
		log, got := opened(t, fs)
		if got != "a" || log.DiskBytes() < segmentHead+blockSize || log.DiskBytes()%blockSize != 0 {
			t.Errorf("replayed %q, and the files have %d bytes, want a in two blocks at least", got, log.DiskBytes())
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaveFails: a log whose next segment can't be begun is not opened.
func TestLeaveFails(t *testing.T) {
	for fail := 1; ; fail++ {
		gap := blockSize - recordSize(checkpointHead) // opening the log does not overwrite what follows
		fs := &countedFS{FS: on(t, segmentFile(1).checkpoint(0, 1).gap(gap).record("b", 0)), fail: fail}
		got, err := replayed(fs, false)
		if failed := fs.done >= fail; failed != errors.Is(err, errBroken) {
			t.Errorf("operation %d fails (%v): replayed %q (%v)", fail, failed, got, err)
		} else if !failed {
			return
		}
	}
}

// TestNoDirectory: a directory that does not exist has no log, and reading it changes nothing.
func TestNoDirectory(t *testing.T) {
	w := newWorld(t, 0)
	w.dir = "/nowhere"
	log, err := Load(w.config(), nil)
	if err == nil {
		err = log.Close()
	}
	if _, stat := w.mem.Stat(w.dir); err != nil || !errors.Is(stat, fs.ErrNotExist) {
		t.Errorf("Load without a directory returned %v, and the directory now is: %v", err, stat)
	}
}

func TestOwnersAreShort(t *testing.T) {
	for _, n := range []int{0, 256, 257} {
		w := newWorld(t, 0)
		cfg := w.config()
		cfg.Owner = bytes.Repeat([]byte{7}, n)
		for range 2 {
			log, err := Open(cfg, func(LSN, []byte, bool) error { return nil })
			if (err == nil) != (n <= 256) {
				t.Errorf("Open with an owner of %d bytes: %v", n, err)
			}
			if err == nil {
				if err := log.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		if names, err := w.mem.List("/wal"); err != nil || n > 256 && len(names) > 0 {
			t.Errorf("Open with an owner of %d bytes left the files %q (%v)", n, names, err)
		}
	}
}
