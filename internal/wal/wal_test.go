package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

const testSegment = 16 << 10

// world is a log on a disk that can lose power, with what must be in it.
type world struct {
	t    testing.TB
	mem  *vfs.MemFS
	fs   vfs.FS // what the log uses; nil: mem
	dir  string
	log  *Log
	keep int // how many of the newest records are needed

	mu      sync.Mutex
	records []placed // all needed ones that were ever appended, in order
	synced  int      // how many of them were confirmed as synced
	live    []LSN    // of the records in the log, as known to its owner
	failed  error
}

type placed struct {
	at      LSN
	content []byte
}

// seeds returns how many seeds a model tries: a sixth with -short. Many seeds find a wrong decision, but a few suffice for races.
func seeds(many uint64) uint64 {
	if testing.Short() {
		return (many + 5) / 6
	}
	return many
}

func newWorld(t testing.TB, keep int) *world {
	w := &world{t: t, mem: vfs.NewCrashableMem(), dir: "/wal", keep: keep}
	if err := w.mem.MkdirAll("/wal", 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := w.mem.OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) config() Config {
	fs := w.fs
	if fs == nil {
		fs = w.mem
	}
	return Config{Dir: w.dir, FS: fs, Owner: []byte("us"), SegmentSize: testSegment, Checkpoint: w.checkpoint,
		Failed: func(err error) { w.failed = err }}
}

// checkpoint declares the newest records as needed. It holds the number of records before them.
func (w *world) checkpoint(segment uint32) ([]byte, uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := segment
	if n := len(w.live); n > 0 {
		first = w.live[max(0, n-w.keep)].Segment()
	}
	return []byte("checkpoint of " + strconv.Itoa(int(segment))), first
}

// open opens the log and returns what it replays.
func (w *world) open() (got []placed, err error) {
	w.live = nil
	w.log, err = Open(w.config(), func(at LSN, content []byte, checkpoint bool) error {
		if checkpoint {
			if want := "checkpoint of " + strconv.Itoa(int(at.Segment())); string(content) != want {
				return fmt.Errorf("checkpoint %q, want %q", content, want)
			}
			return nil
		}
		got = append(got, placed{at, bytes.Clone(content)})
		w.live = append(w.live, at)
		return nil
	})
	return got, err
}

func (w *world) mustOpen() []placed {
	w.t.Helper()
	got, err := w.open()
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) close() {
	w.t.Helper()
	if err := w.log.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// add appends a record.
func (w *world) add(content []byte, sync bool) error {
	return w.fill(len(content), sync, func(_ LSN, b []byte) { copy(b, content) })
}

// fill appends a record of n bytes that fill chooses, knowing where they go.
func (w *world) fill(size int, sync bool, fill func(at LSN, b []byte)) error {
	n := 0
	err := w.log.Append(size, sync, func(at LSN, b []byte) {
		fill(at, b)
		w.mu.Lock()
		w.records = append(w.records, placed{at, bytes.Clone(b)})
		w.live = append(w.live, at)
		n = len(w.records)
		w.mu.Unlock()
	})
	if err == nil && sync {
		w.mu.Lock()
		w.synced = max(w.synced, n)
		w.mu.Unlock()
	}
	return err
}

func (w *world) mustAdd(content []byte, sync bool) {
	w.t.Helper()
	if err := w.add(content, sync); err != nil {
		w.t.Fatal(err)
	}
}

// losePower keeps what was synced and percent of the rest.
func (w *world) losePower(percent int, rng *rand.Rand) {
	w.t.Helper()
	after := w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
	w.close()
	w.mem = after
}

// check compares the replayed records with the appended ones: all synced ones are there, followed by a prefix of the
// others. The missing ones count as never appended.
func (w *world) check(got []placed) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(got) == 0 && w.synced == 0 {
		w.records = nil
		return
	}
	if len(got) == 0 {
		w.t.Fatalf("none of %d synced records is left", w.synced)
	}
	from := 0
	for from < len(w.records) && w.records[from].at != got[0].at {
		from++
	}
	// A checkpoint also counts records that were not confirmed as synced: they precede it.
	if len(got) < min(w.keep, from+len(got)) {
		w.t.Fatalf("the log begins with record %d of %d (%d synced), but the newest %d are needed", from, len(w.records), w.synced, w.keep)
	}
	if from+len(got) < w.synced || from+len(got) > len(w.records) {
		w.t.Fatalf("replayed records %d to %d of %d, %d of them synced", from, from+len(got), len(w.records), w.synced)
	}
	for i, g := range got {
		if want := w.records[from+i]; want.at != g.at || !bytes.Equal(want.content, g.content) {
			w.t.Fatalf("record %d is %s %.20q, want %s %.20q", from+i, g.at, g.content, want.at, want.content)
		}
	}
	w.records = w.records[:from+len(got)]
	w.synced = len(w.records)
}

func content(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestPowerLoss appends, loses power, keeping any part of what was not synced, and reopens the log, over and over.
func TestPowerLoss(t *testing.T) {
	for seed := range seeds(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, 40)
		w.mustOpen()
		for range 40 {
			for range rng.IntN(60) {
				size := rng.IntN(900)
				if rng.IntN(100) == 0 {
					size = testSegment + rng.IntN(testSegment)
				}
				w.mustAdd(content(rng, size), rng.IntN(3) > 0)
				w.readOne(rng)
			}
			if rng.IntN(4) == 0 {
				w.close()
				w.synced = len(w.records)
			} else {
				w.losePower(rng.IntN(101), rng)
			}
			w.check(w.mustOpen())
		}
		w.close()
	}
}

// TestCrashAtAnyWrite loses power before any single operation on the log's files, including those that create and reuse
// segments.
func TestCrashAtAnyWrite(t *testing.T) {
	crashAtAnyWrite(t, 300, func(w *world, rng *rand.Rand) { w.mustAdd(content(rng, rng.IntN(900)), rng.IntN(3) > 0) })
}

func crashAtAnyWrite(t *testing.T, many uint64, add func(*world, *rand.Rand)) {
	for seed := range seeds(many) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, 20)
		for range 4 {
			var mu sync.Mutex
			var after *vfs.MemFS
			synced, left, percent := 0, rng.IntN(250), rng.IntN(101)
			w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if op.Kind.ReadOrWrite() == errorfs.OpIsRead || after != nil {
					return nil
				}
				if left--; left < 0 {
					w.mu.Lock()
					synced = w.synced
					w.mu.Unlock()
					after = w.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 2))})
				}
				return nil
			}))
			w.check(w.mustOpen())
			for range rng.IntN(120) {
				add(w, rng)
			}
			w.close()
			if w.synced = len(w.records); after != nil {
				w.mem, w.synced = after, synced
			}
		}
		w.fs = nil
		w.check(w.mustOpen())
		w.close()
	}
}

// readOne reads one of the needed records, if it is on disk.
func (w *world) readOne(rng *rand.Rand) {
	w.t.Helper()
	i := len(w.records) - 1 - rng.IntN(w.keep)
	if i < 0 || i >= w.synced {
		return
	}
	want := w.records[i]
	if got, err := w.log.Read(want.at, len(want.content)); err != nil || !bytes.Equal(got, want.content) {
		w.t.Fatalf("record %s of %d bytes: read %d bytes, %v", want.at, len(want.content), len(got), err)
	}
}

func TestRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t, 30)
	w.mustOpen()
	for i := range 200 {
		w.mustAdd(content(rng, 100+rng.IntN(1000)), true)
		for _, p := range w.records[max(0, i-29):] {
			got, err := w.log.Read(p.at, len(p.content))
			if err != nil || !bytes.Equal(got, p.content) {
				t.Fatalf("record %s of %d bytes: read %d bytes, %v", p.at, len(p.content), len(got), err)
			}
		}
	}
	last := w.records[len(w.records)-1]
	for _, more := range []int{-1, 1, 8} {
		if got, err := w.log.Read(last.at, len(last.content)+more); !errors.Is(err, ondisk.ErrDamaged) {
			t.Errorf("Read with a length off by %d returned %d bytes, %v, want ErrDamaged", more, len(got), err)
		}
	}
	if got, err := w.log.Read(lsnOf(last.at.Segment(), 0), 0); !errors.Is(err, ondisk.ErrDamaged) {
		t.Errorf("Read where there is no record returned %d bytes, %v, want ErrDamaged", len(got), err)
	}
	w.change(fileName(last.at.Segment()), func(f vfs.File, _ int64) {
		if _, err := f.WriteAt([]byte{last.content[0] ^ 1}, int64(last.at.Offset()+recordHead)); err != nil {
			t.Fatal(err)
		}
	})
	got, err := w.log.Read(last.at, len(last.content))
	var damage *ondisk.DamageError
	if from := int64(last.at.Offset()); !errors.As(err, &damage) || damage.From != from ||
		damage.To != from+int64(recordHead+len(last.content)) {
		t.Errorf("Read of the damaged record at %s returned %d bytes, %v, want a DamageError with its bytes", last.at, len(got), err)
	}
	w.close()
	w.log.next = nil // as if none were ready
	if n := w.log.DiskBytes(); n < 2*testSegment {
		t.Errorf("DiskBytes is %d, want at least two segments", n)
	}
}

// TestCallersShareSyncs: callers that append during a sync wait for one more sync, all together.
func TestCallersShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int32
		w := newWorld(t, 1000)
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData {
				syncs.Add(1)
				time.Sleep(time.Millisecond)
			}
			return nil
		}))
		w.mustOpen()
		synctest.Wait()
		syncs.Store(0)
		var callers sync.WaitGroup
		start := time.Now()
		for i := range 64 {
			callers.Go(func() {
				if err := w.add(fmt.Appendf(nil, "record %d", i), true); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if took := time.Since(start); syncs.Load() != 2 || took != 2*time.Millisecond {
			t.Errorf("64 callers made %d syncs in %v, want 2 in 2ms", syncs.Load(), took)
		}
		w.close()
		if got := w.mustOpen(); len(got) != 64 {
			t.Errorf("%d records were replayed, want 64", len(got))
		}
		w.close()
	})
}

// TestFailureIsFinal: after a failed write, sync or new segment, nothing is confirmed as synced.
func TestFailureIsFinal(t *testing.T) {
	for _, kind := range []errorfs.OpKind{errorfs.OpFileWriteAt, errorfs.OpFileSyncData, errorfs.OpRename, errorfs.OpRemove} {
		w := newWorld(t, 5)
		var fail atomic.Bool
		var failed atomic.Value // the path of what has failed
		broken := errors.New("disk is broken")
		w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == kind && fail.CompareAndSwap(true, false) { // the next one succeeds
				failed.Store(op.Path)
				return broken
			}
			if (op.Kind == errorfs.OpFileWriteAt || op.Kind == errorfs.OpFileSyncData) && failed.Load() == op.Path {
				t.Errorf("kind %v: %s was written or synced again after its failure", kind, op.Path)
			}
			return nil
		}))
		w.mustOpen()
		w.mustAdd([]byte("before"), true)
		fail.Store(true)
		var err error
		size := 1000
		if kind == errorfs.OpRemove {
			size = testSegment // files that are longer than others are not reused
		}
		for range 100 {
			if err = w.add(make([]byte, size), true); err != nil {
				break
			}
		}
		if !errors.Is(err, broken) {
			t.Errorf("kind %v: Append = %v, want %v", kind, err, broken)
		}
		if again := w.add([]byte("after"), true); !errors.Is(again, broken) {
			t.Errorf("kind %v: Append after the failure = %v, want %v", kind, again, broken)
		}
		if err := w.log.Close(); !errors.Is(err, broken) {
			t.Errorf("kind %v: Close = %v, want %v", kind, err, broken)
		}
		if !errors.Is(w.failed, broken) {
			t.Errorf("kind %v: reported %v, want %v", kind, w.failed, broken)
		}
		if again := w.add([]byte("later"), true); !errors.Is(again, broken) {
			t.Errorf("kind %v: Append after Close = %v, want %v", kind, again, broken)
		}
		w.fs = nil
		w.check(w.mustOpen())
		w.close()
	}
}

func TestOtherOwner(t *testing.T) {
	w := newWorld(t, 5)
	w.mustOpen()
	w.mustAdd([]byte("ours"), true)
	w.close()
	cfg := w.config()
	cfg.Owner = []byte("them")
	var other *OwnerError
	if _, err := Open(cfg, func(LSN, []byte, bool) error { return nil }); !errors.As(err, &other) || string(other.Owner) != "us" {
		t.Errorf("Open of another owner's log = %v, want an error that it belongs to %q", err, "us")
	}
}

// TestFilesAreRecycled: a log whose old records are not needed takes no more than a few files.
func TestFilesAreRecycled(t *testing.T) {
	w := newWorld(t, 3)
	var made atomic.Int32
	w.fs = errorfs.Wrap(w.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate {
			made.Add(1)
		}
		return nil
	}))
	w.mustOpen()
	for range 2000 {
		w.mustAdd(make([]byte, 500), true)
	}
	names, err := w.mem.List("/wal")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) > 5 || made.Load() > 5 {
		t.Errorf("60 segments took %d new files, and %d are left: %q", made.Load(), len(names), names)
	}
	if first, last := w.log.Segments(); last < 50 || last-first > 1 {
		t.Errorf("segments %d to %d are needed, want the last two of over 50", first, last)
	}
	w.close()
}

// sample returns a log of several segments whose records were synced one by one.
func sample(t testing.TB) *world {
	w := newWorld(t, 60)
	w.mustOpen()
	rng := rand.New(rand.NewPCG(5, 5))
	for range 90 {
		w.mustAdd(content(rng, 100+rng.IntN(900)), true)
	}
	w.close()
	return w
}

// clone copies the files of the sample to another disk.
func (w *world) clone() *world {
	c := *newWorld(w.t, w.keep)
	c.mem = w.mem.CrashClone(vfs.CrashCloneCfg{})
	c.records, c.synced = slices.Clone(w.records), w.synced
	return &c
}

func (w *world) change(name string, fn func(f vfs.File, size int64)) {
	f, err := w.mem.OpenReadWrite("/wal/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		w.t.Fatal(err)
	}
	fn(f, info.Size())
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// TestFlippedBit flips bits all over the files: each is noticed, or only the record that was synced last is lost.
func TestFlippedBit(t *testing.T) {
	w := sample(t)
	names, err := w.mem.List("/wal")
	if err != nil {
		t.Fatal(err)
	}
	noticed, harmless, last := 0, 0, 0
	for _, name := range names {
		for at := range int64(testSegment) {
			if head := at%segmentHead < 70 && at < 2*segmentHead; !head && at%67 != 0 { // all of a segment's head and of its first record
				continue
			}
			c := w.clone()
			c.change(name, func(f vfs.File, size int64) {
				var b [1]byte
				if _, err := f.ReadAt(b[:], at); err != nil {
					t.Fatal(err)
				}
				b[0] ^= 1 << (at % 8)
				if _, err := f.WriteAt(b[:], at); err != nil {
					t.Fatal(err)
				}
			})
			got, err := c.open()
			if err == nil {
				if len(got) > 0 && got[len(got)-1].at == w.records[len(w.records)-2].at {
					c.synced--
					last++
				} else {
					harmless++
				}
				c.check(got)
				c.close()
				continue
			}
			if !errors.Is(err, ondisk.ErrDamaged) {
				t.Fatalf("%s, byte %d flipped: Open returned %v", name, at, err)
			}
			noticed++
			c.acceptLoss()
		}
	}
	t.Logf("detected %d, lost the last record %d, no effect %d", noticed, last, harmless)
	if noticed < 500 || last == 0 || harmless == 0 {
		t.Error("the flipped bits did not cover every kind of byte")
	}
}

// acceptLoss opens what remains of a damaged log: a prefix of what was needed, which can be appended to and reopened.
func (w *world) acceptLoss() {
	w.t.Helper()
	var got []placed
	w.live, w.keep = nil, len(w.records) // nothing may be missing before what remains
	cfg := w.config()
	cfg.AcceptLoss = true
	var said bytes.Buffer
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	log, err := Open(cfg, func(at LSN, content []byte, checkpoint bool) error {
		if !checkpoint {
			got = append(got, placed{at, bytes.Clone(content)})
			w.live = append(w.live, at)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if !strings.Contains(said.String(), "is damaged") {
		w.t.Errorf("the accepted loss was not logged: %q", said.String())
	}
	w.log, w.synced = log, 0
	if len(got) == 0 {
		w.records = nil
	}
	w.check(got)
	w.mustAdd([]byte("after the loss"), true)
	w.close()
	w.check(w.mustOpen())
	w.close()
}

// TestCutAndMissingFiles: a truncated, empty or missing file is noticed, or only the record that was synced last
// is lost.
func TestCutAndMissingFiles(t *testing.T) {
	w := sample(t)
	names, err := w.mem.List("/wal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for _, left := range []int64{-1, 0, 100, segmentHead, segmentHead + 30, testSegment / 2, testSegment - 100} {
			c := w.clone()
			if left < 0 {
				if err := c.mem.Remove("/wal/" + name); err != nil {
					t.Fatal(err)
				}
			} else {
				c.truncate(name, left)
			}
			got, err := c.open()
			switch {
			case errors.Is(err, ondisk.ErrDamaged):
				c.acceptLoss()
			case err != nil:
				t.Fatalf("%s truncated to %d: Open returned %v", name, left, err)
			default:
				c.synced = 0 // the end of the log may be lost without a witness: its owner's mark would reveal it
				c.check(got)
				c.close()
			}
		}
	}
}

func (w *world) truncate(name string, size int64) {
	w.t.Helper()
	f, err := w.mem.Open("/wal/" + name)
	if err != nil {
		w.t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
	f.Close()
	if f, err = w.mem.Create("/wal/"+name, vfs.WriteCategoryUnspecified); err != nil {
		w.t.Fatal(err)
	}
	if _, err := f.Write(b); err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		w.t.Fatal(err)
	}
}

// FuzzParse: no bytes make parse panic, and every record that it accepts has its checksum.
func FuzzParse(f *testing.F) {
	rec := make([]byte, recordSize(5))
	setLength(rec, 5)
	copy(rec[recordHead:], "hello")
	s := &segment{number: 7, seed: testSeed}
	sealAll(rec, s, 77, 7)
	f.Add(rec, 77)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if r, ok := parse(b, s.place(at)); ok {
			again := make([]byte, r.size)
			setLength(again, len(r.content))
			copy(again[recordHead:], r.content)
			sealAll(again, s, at, r.synced)
			if n := recordHead + len(r.content); !bytes.Equal(again[:n], b[:n]) {
				t.Errorf("%x was parsed as a record, but encodes as %x", b, again)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1400, 40_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			log, err := Open(Config{Dir: b.TempDir(), Checkpoint: func(s uint32) ([]byte, uint32) { return nil, s }},
				func(LSN, []byte, bool) error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			defer log.Close()
			content := make([]byte, size)
			for b.Loop() {
				if err := log.Append(size, true, func(_ LSN, b []byte) { copy(b, content) }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
