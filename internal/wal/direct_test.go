package wal

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// blockFS fails a test when a segment that is open is written to in anything but whole blocks, from memory that begins at one.
type blockFS struct {
	vfs.FS
	t      *testing.T
	writes atomic.Int32
	opened atomic.Bool // until then, segments are mended and not appended to
}

func (fs *blockFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	return blockFile{f, fs}, err
}

type blockFile struct {
	vfs.File
	fs *blockFS
}

func (f blockFile) WriteAt(b []byte, at int64) (int, error) {
	if f.fs.opened.Load() && at >= segmentHead {
		f.fs.writes.Add(1)
		if address := uintptr(unsafe.Pointer(&b[0])); at%blockSize != 0 || len(b)%blockSize != 0 || address%blockSize != 0 {
			f.fs.t.Errorf("%d bytes at %x are written at %d", len(b), address, at)
		}
	}
	return f.File.WriteAt(b, at)
}

func TestWritesAreBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	w := newWorld(t, 30)
	fs := &blockFS{FS: w.mem, t: t}
	w.fs = fs
	for range 10 {
		fs.opened.Store(false)
		w.check(w.mustOpen())
		fs.opened.Store(true)
		for range 50 {
			w.mustAdd(content(rng, rng.IntN(3*blockSize)), rng.IntN(3) > 0)
		}
		w.mustAdd(content(rng, testSegment+rng.IntN(blockSize)), true)
		w.close()
		w.synced = len(w.records)
	}
	if fs.writes.Load() < 100 {
		t.Errorf("only %d writes were looked at", fs.writes.Load())
	}
}

// TestDirectWrites appends to files of the operating system from several goroutines, reads them, and opens the log again and again.
func TestDirectWrites(t *testing.T) {
	w := newWorld(t, 30)
	w.fs, w.dir = vfs.Default, t.TempDir()
	for round := range uint64(5) {
		w.check(w.mustOpen())
		if w.log.last.direct == nil {
			t.Skip("the file system of the test's directory has no direct writes")
		}
		var callers sync.WaitGroup
		for caller := range uint64(4) {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(round, caller))
				for range 30 {
					if err := w.add(content(rng, rng.IntN(2*blockSize)), rng.IntN(3) > 0); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		w.mustAdd([]byte("the last one"), true)
		if w.log.last.direct == nil {
			t.Error("a later segment has no direct writes")
		}
		for _, p := range w.records[len(w.records)-30:] {
			if got, err := w.log.Read(p.at, len(p.content)); err != nil || string(got) != string(p.content) {
				t.Fatalf("record %s of %d bytes: read %d bytes, %v", p.at, len(p.content), len(got), err)
			}
		}
		w.close()
	}
}

func TestSegmentsAreBlocks(t *testing.T) {
	w := newWorld(t, 30)
	cfg := w.config()
	cfg.SegmentSize += 8
	if l, err := Open(cfg, nil); err == nil {
		t.Error("opened with segments of", cfg.SegmentSize, "bytes:", l.Close())
	}
}
