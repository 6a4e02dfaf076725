package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// bytesOf returns the contents of a segment's file.
func (w *world) bytesOf(number uint32) (b []byte) {
	w.t.Helper()
	w.change(fileName(number), func(f vfs.File, size int64) {
		b = make([]byte, size)
		if _, err := f.ReadAt(b, 0); err != nil {
			w.t.Fatal(err)
		}
	})
	return b
}

// TestRecordsHaveSyncedPosition checks the bytes of records: each says how far the log was synced before its write, and is padded with
// zeros, even if the buffer held something else before.
func TestRecordsHaveSyncedPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		w.mustOpen()
		b := w.bytesOf(1)
		first, ok := parse(b[segmentHead:], w.log.last.place(segmentHead))
		if end, needed, _, is := parseCheckpoint(first.content); !ok || !is || end != 0 || needed != 1 || first.synced != 0 {
			t.Fatalf("the first record of a new log is %+v", first)
		}
		synced := lsnOf(1, segmentHead+first.size)
		var want []LSN
		for i := range 75 { // of lengths that are not multiples of 8, over the contents of earlier ones
			w.mustAdd(slices.Repeat([]byte{0xff}, 17+37*(i%5)), i%3 == 2)
			want = append(want, synced)
			if i%3 == 2 {
				synced = w.live[len(w.live)-1] + LSN(recordSize(17+37*(i%5)))
			}
		}
		b = w.bytesOf(1)
		for i, at := range w.live {
			rec := b[at.Offset():]
			n := int(binary.LittleEndian.Uint32(rec[4:]))
			r, ok := parse(rec, w.log.segments[at.Segment()].place(at.Offset()))
			if !ok || r.synced != want[i] {
				t.Errorf("record %d at %s: synced up to %s (%t), want %s", i, at, r.synced, ok, want[i])
			}
			if pad := rec[recordHead+n : recordSize(n)]; slices.ContainsFunc(pad, func(x byte) bool { return x != 0 }) {
				t.Errorf("record %d is padded with %x, want zeros", i, pad)
			}
		}
		w.close()
	})
}

// TestFormat: later releases must read what is on disk now, and this one what earlier releases wrote.
func TestFormat(t *testing.T) {
	head := "7061776c77616c01" + "07000000" + "0102030405060708" + "02000000" + "7573"
	if got := hex.EncodeToString(encodeHead(7, testSeed, []byte("us"))); len(got) != 2*4096 || !strings.HasPrefix(got, head) ||
		strings.Trim(got[len(head)+8:], "0") != "" {
		t.Errorf("a segment begins with %s", strings.TrimRight(got, "0"))
	}
	for content, want := range map[string]string{
		"":          "00000000" + "0912030402060708" + "0010000007000000",
		"12345678":  "08000000" + "0912030402060708" + "0010000007000000" + "3132333435363738",
		"123456789": "09000000" + "0912030402060708" + "0010000007000000" + "3132333435363738" + "3900000000000000",
	} {
		f := segmentFile(7).gap(8).record(content, 7<<32|4096)
		got := f.b[4096+8 : f.at]
		sum := crc32.Checksum(got[4:24+len(content)], crc32.MakeTable(crc32.Castagnoli))
		if want := hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, sum)) + want; hex.EncodeToString(got) != want {
			t.Errorf("a record with %q is encoded as %x, want %s", content, got, want)
		}
	}
	f := on(t, segmentFile(7).record("\x09\x10\x00\x00\x06\x00\x00\x00"+"\x07\x00\x00\x00"+"what is needed", 0))
	log, err := Open(Config{Dir: "/wal", FS: f, Owner: []byte("us"), SegmentSize: testSegment}, func(at LSN, content []byte,
		checkpoint bool) error {
		if at != 7<<32|4096 || string(content) != "what is needed" || !checkpoint {
			t.Errorf("the record at %s is %q (checkpoint: %t)", at, content, checkpoint)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNextSegmentNameIsDurable: if a process ends after naming a file but before the name is durable, the next process
// makes the name durable before it writes records to the file.
func TestNextSegmentNameIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		armed := false
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRename {
				armed = strings.HasSuffix(op.Path, fileName(2)+".new")
			}
			if armed && op.Kind == errorfs.OpFileSync && op.Path == "/wal" {
				return errBroken
			}
			return nil
		}))
		w.mustOpen()
		synctest.Wait()
		if err := w.log.Close(); !errors.Is(err, errBroken) || !errors.Is(w.failed, errBroken) {
			t.Fatalf("Close returned %v, and the log reported %v, want the disk's error from both", err, w.failed)
		}
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate { // of the third
				time.Sleep(time.Hour)
			}
			return nil
		}))
		w.mustOpen()
		for len(w.live) == 0 || w.live[len(w.live)-1].Segment() == 1 {
			w.mustAdd(make([]byte, 1000), true)
		}
		w.losePower(0, nil)
		w.fs = nil
		w.check(w.mustOpen())
		w.close()
	})
}

// TestLargeRecords: a record too large for a segment gets a segment of its own, even right after the log was opened.
func TestLargeRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 100)
		w.mustOpen()
		w.close()
		w.mustOpen() // an empty log
		large := make([]byte, 2*testSegment)
		w.mustAdd(large, true)
		w.mustAdd([]byte("small"), true)
		w.mustAdd([]byte("small"), true)
		w.close()
		w.mustOpen()
		w.mustAdd(large, true)
		w.close()
		var got []uint32
		for _, at := range w.live {
			got = append(got, at.Segment())
		}
		if want := []uint32{1, 2, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("the records are in segments %d, want %d", got, want)
		}
		w.synced = len(w.records)
		w.check(w.mustOpen())
		w.close()
	})
}

// TestSegmentIsFilled: a record goes into the last segment if it fits, up to the last byte.
func TestSegmentIsFilled(t *testing.T) {
	w := newWorld(t, 100)
	w.mustOpen()
	w.mustAdd(nil, true)
	left := testSegment - w.live[0].Offset() - 2*recordHead
	w.mustAdd(make([]byte, left), true)
	w.close()
	w.mustOpen() // the log ends where its file does
	w.mustAdd(nil, true)
	if got := [2]uint32{w.live[1].Segment(), w.live[2].Segment()}; got != [2]uint32{1, 2} {
		t.Errorf("a record that just fits and the next one are in segments %d, want 1 and 2", got)
	}
	w.close()
	w.synced = len(w.records)
	w.check(w.mustOpen())
	w.close()
}

// TestOpenWritesTheTailAgain: opening a log that was closed properly writes its last record once more, and changes nothing.
func TestOpenWritesTheTailAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		w.mustOpen()
		for range 40 {
			w.mustAdd(make([]byte, 1000), true)
		}
		synctest.Wait()
		w.close()
		w.synced = len(w.records)
		last := w.live[len(w.live)-1]
		before, writes := w.bytesOf(last.Segment()), 0
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpCreate {
				writes++
			}
			return nil
		}))
		w.check(w.mustOpen())
		synctest.Wait()
		w.close()
		if after := w.bytesOf(last.Segment()); writes != 1 || !bytes.Equal(before, after) {
			t.Errorf("opening the log made %d writes, want 1; the segment is the same: %t", writes, bytes.Equal(before, after))
		}
	})
}

// TestTailBegins: opening a log writes again what its last record does not prove to be synced, from the block on where that begins.
func TestTailBegins(t *testing.T) {
	const first = 1<<32 | segmentHead + 40 // after the checkpoint
	long := strings.Repeat("a", blockSize-recordHead)
	for _, c := range []struct {
		name  string
		files []*file
		want  int64 // the block of the segment's records
	}{
		{"nothing is proven", []*file{segmentFile(1).checkpoint(0, 1).record(long, 0).record("b", 0)}, 0},
		{"the last of two blocks is not", []*file{segmentFile(1).checkpoint(0, 1).record(long, first).record("b", first+blockSize)}, 1},
		{"a whole block is not", []*file{segmentFile(1).checkpoint(0, 1).record(long, first).record(long[40:], first+blockSize)}, 1},
		{"neither block is", []*file{segmentFile(1).checkpoint(0, 1).record(long, first).record("b", first)}, 0},
		{"only the segment before is", []*file{segmentFile(1).checkpoint(0, 1).record(long, 0).record(long, 0).record("b", 0),
			segmentFile(2).checkpoint(first+2*blockSize+32, 1).record("a", first+2*blockSize+32)}, 0},
	} {
		var writes []int64
		fs := errorfs.Wrap(on(t, c.files...), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWriteAt {
				writes = append(writes, op.Offset)
			}
			return nil
		}))
		if _, err := replayed(fs, false); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if want := []int64{segmentHead + c.want*blockSize}; !slices.Equal(writes, want) {
			t.Errorf("%s: opening the log wrote at %d, want %d", c.name, writes, want)
		}
	}
}

// TestSegmentsOfAnotherSize: a file prepared when segments were smaller is not used.
func TestSegmentsOfAnotherSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		w.mustOpen()
		w.mustAdd([]byte("a"), true)
		synctest.Wait()
		w.close()
		cfg := w.config()
		cfg.SegmentSize *= 2
		log, err := Open(cfg, func(LSN, []byte, bool) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(w.bytesOf(2)); n != cfg.SegmentSize {
			t.Errorf("the next segment has %d bytes, want %d", n, cfg.SegmentSize)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDefaults: a log configured with only a directory works, on the files of the operating system.
func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, Checkpoint: func(s uint32) ([]byte, uint32) { return nil, s }}
	for round := range 3 {
		n := 0
		log, err := Open(cfg, func(_ LSN, _ []byte, checkpoint bool) error {
			if !checkpoint {
				n++
			}
			return nil
		})
		if err != nil || n != round {
			t.Fatalf("round %d: %d records were replayed, %v", round, n, err)
		}
		if err := log.Append(1, true, func(_ LSN, b []byte) { b[0] = 'a' }); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, fileName(1)))
	if err != nil || info.Size() != 16<<20 {
		t.Errorf("the first segment is %+v, %v; want 16 MiB", info, err)
	}
	synctest.Test(t, func(t *testing.T) { // without Failed and Logger
		fs := &countedFS{FS: vfs.NewMem()}
		cfg.Dir, cfg.FS = "", fs
		log, err := Open(cfg, func(LSN, []byte, bool) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the next segment is ready
		fs.mu.Lock()
		fs.fail = fs.done + 1
		fs.mu.Unlock()
		if err := log.Append(1<<20, true, func(LSN, []byte) {}); !errors.Is(err, errBroken) {
			t.Errorf("Append on a failed disk returned %v", err)
		}
		if err := log.Close(); !errors.Is(err, errBroken) {
			t.Errorf("Close of a failed log returned %v", err)
		}
	})
}
