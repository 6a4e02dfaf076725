package wal

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// blockFS fails a test if an open segment is written to other than in whole blocks, from memory aligned to a block.
type blockFS struct {
	vfs.FS
	t      *testing.T
	writes atomic.Int32
	opened atomic.Bool // until then, segments may be repaired, but nothing is appended
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
			f.fs.t.Errorf("%d bytes at address %x are written at offset %d, want whole, aligned blocks", len(b), address, at)
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
		t.Errorf("only %d writes were checked, want at least 100", fs.writes.Load())
	}
}

func TestSegmentsAreBlocks(t *testing.T) {
	w := newWorld(t, 30)
	cfg := w.config()
	cfg.SegmentSize += 8
	if l, err := Open(cfg, nil); err == nil {
		t.Error("Open accepted a segment size of", cfg.SegmentSize, "bytes, and Close returned", l.Close())
	}
}
