package wal

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// notedFS is a file system with notes about its files.
type notedFS[T any] struct {
	vfs.FS
	mu    sync.Mutex
	files map[string]T // by name
}

func newNotedFS[T any](fs vfs.FS) notedFS[T] { return notedFS[T]{FS: fs, files: map[string]T{}} }

func (fs *notedFS[T]) Rename(from, to string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.files[to] = fs.files[from]
	delete(fs.files, from)
	return fs.FS.Rename(from, to)
}

func (fs *notedFS[T]) Remove(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	delete(fs.files, name)
	return fs.FS.Remove(name)
}

// cachedFS is a disk under a page cache, as of Linux without direct writes: a failed sync writes some pages, and the others count as
// written from then on. They are read from memory and no later sync writes them, so they are gone after a power loss. The names of files
// are always durable.
type cachedFS struct {
	notedFS[*pages] // over what is read
	rng             *rand.Rand
	syncs           int
	fail            func(sync int) bool // reports whether a sync fails
	kept            int                 // percentage of the pages that a failed sync writes
}

// pages are the contents of a file on the disk, and which of its pages are to be written by the next sync.
type pages struct {
	b     []byte
	dirty map[int64]bool
}

func newCachedFS(rng *rand.Rand) *cachedFS {
	return &cachedFS{notedFS: newNotedFS[*pages](vfs.NewMem()), rng: rng, fail: func(int) bool { return false }, kept: 50}
}

func (p *pages) write(page int64, b []byte) {
	at := page * blockSize
	if grow := at + int64(len(b)) - int64(len(p.b)); grow > 0 {
		p.b = append(p.b, make([]byte, grow)...)
	}
	copy(p.b[at:], b)
}

func (fs *cachedFS) failSyncs(fail func(sync int) bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.syncs, fs.fail = 0, fail
}

// losePower returns the disk after a power loss.
func (fs *cachedFS) losePower(t *testing.T) *cachedFS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	after := newCachedFS(fs.rng)
	if err := after.MkdirAll("/wal", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(fs.files)) {
		p := fs.files[name]
		f, err := after.FS.Create(name, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(slices.Clone(p.b)) // which may change it
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		after.files[name] = &pages{slices.Clone(p.b), map[int64]bool{}}
	}
	return after
}

func (fs *cachedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.files[name] = &pages{nil, map[int64]bool{}}
	return &cachedFile{File: f, fs: fs, pages: fs.files[name]}, nil
}

func (fs *cachedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, category, opts...)
	if err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return &cachedFile{File: f, fs: fs, pages: fs.files[name]}, nil
}

type cachedFile struct {
	vfs.File
	fs    *cachedFS
	pages *pages
	end   int64 // of what Write has written
}

func (f *cachedFile) touch(from, to int64) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	for page := from / blockSize; page*blockSize < to; page++ {
		f.pages.dirty[page] = true
	}
}

func (f *cachedFile) Write(b []byte) (int, error) {
	f.touch(f.end, f.end+int64(len(b)))
	f.end += int64(len(b))
	return f.File.Write(b)
}

func (f *cachedFile) WriteAt(b []byte, at int64) (int, error) {
	f.touch(at, at+int64(len(b)))
	return f.File.WriteAt(b, at)
}

func (f *cachedFile) Sync() error { return f.SyncData() }

func (f *cachedFile) SyncData() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	dirty := f.pages.dirty
	f.pages.dirty = map[int64]bool{}
	f.fs.syncs++
	failed := f.fs.fail(f.fs.syncs)
	for page := range dirty {
		if failed && f.fs.rng.IntN(100) >= f.fs.kept {
			continue
		}
		b := make([]byte, blockSize)
		n, err := f.ReadAt(b, page*blockSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		f.pages.write(page, b[:n])
	}
	if failed {
		return errBroken
	}
	return nil
}

// nextAt returns the offset of the next record.
func (l *Log) nextAt() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outAt + len(l.out)
}

// TestFailedSyncIsNotForgotten: after a failed sync the next process reads what may not be on disk. What it reads is there after a power
// loss, and what a sync that failed was to erase is not.
func TestFailedSyncIsNotForgotten(t *testing.T) {
	for seed := range seeds(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, 20)
		fs := newCachedFS(rand.New(rand.NewPCG(seed, 4)))
		if err := fs.MkdirAll("/wal", 0o700); err != nil {
			t.Fatal(err)
		}
		whole := rng.IntN(2) == 0 // records end where a block does, so that no later write erases what follows them
		for range 40 {
			which := rng.IntN(6)
			fs.failSyncs(func(sync int) bool { return sync == which })
			w.fs, w.failed = fs, nil
			got, err := w.open()
			if err == nil {
				w.check(got)
				for range rng.IntN(6) {
					size := rng.IntN(900)
					if end := w.log.nextAt(); whole {
						size = blockEnd(end+recordHead) - end - recordHead
					}
					if err = w.add(content(rng, size), rng.IntN(3) > 0); err != nil {
						break
					}
				}
				if rng.IntN(2) == 0 {
					fs.failSyncs(func(int) bool { return true })
				}
				if err = errors.Join(err, w.log.Close()); err == nil {
					w.synced = len(w.records)
				}
			}
			if err != nil && !errors.Is(err, errBroken) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rng.IntN(3) == 0 {
				fs = fs.losePower(t)
			}
		}
	}
}

// TestRecordsAfterTheEndStayAway: what was never synced does not come back either if a sync fails while the log is opened.
func TestRecordsAfterTheEndStayAway(t *testing.T) {
	for which := range 6 {
		fs := newCachedFS(rand.New(rand.NewPCG(1, 4)))
		fs.kept = 0
		if err := fs.MkdirAll("/wal", 0o700); err != nil {
			t.Fatal(err)
		}
		gap := blockSize - recordSize(checkpointHead)
		f, err := fs.Create("/wal/"+fileName(1), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = f.Write(segmentFile(1).checkpoint(0, 1).gap(gap).record("old", 0).b)
		}
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		fs.failSyncs(func(sync int) bool { return sync == which })
		if _, err := replayed(fs, false); err != nil && !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		fs.failSyncs(func(int) bool { return false })
		log, got := opened(t, fs)
		if err := log.Append(gap-recordHead, true, func(_ LSN, b []byte) { clear(b) }); err != nil || got != "" {
			t.Fatalf("replayed %q, appended %v", got, err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := replayed(fs.losePower(t), false); err != nil || len(got) != gap-recordHead {
			t.Errorf("sync %d fails: replayed %q, %v; want one record of %d zeros", which, got, err, gap-recordHead)
		}
	}
}
