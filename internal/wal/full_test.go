package wal

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// smallFS is a disk with little room.
type smallFS struct {
	notedFS[int64]       // the sizes of the files that were created here
	room           int64 // for all files
}

func (fs *smallFS) setRoom(room int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.room = room
}

func (fs *smallFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.files[name] = 0
	return smallFile{f, fs, name}, err
}

type smallFile struct {
	vfs.File
	fs   *smallFS
	name string
}

func (f smallFile) Write(b []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	used := int64(len(b))
	for _, n := range f.fs.files {
		used += n
	}
	if used > f.fs.room {
		return 0, syscall.ENOSPC
	}
	f.fs.files[f.name] += int64(len(b))
	return f.File.Write(b)
}

// TestFullDisk: a log goes on while its last segment has room, and beyond if the disk has room again by then.
func TestFullDisk(t *testing.T) {
	const room = testSegment * 3 / 2
	for _, c := range []struct {
		name        string
		again, wait time.Duration // when the disk has room again (0: never), and how long after the start the segment is full
		fails       bool
	}{
		{"never", 0, time.Hour, true},
		{"too late", time.Hour, time.Minute, true},
		{"in time", time.Minute, time.Hour, false},
		{"just when the next segment is needed", retryAfter / 2, retryAfter * 3 / 4, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 100)
				fs := &smallFS{newNotedFS[int64](w.mem), room}
				w.fs = fs
				cfg := w.config()
				var said bytes.Buffer
				cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
				var err error
				if w.log, err = Open(cfg, func(LSN, []byte, bool) error { return nil }); err != nil {
					t.Fatal(err)
				}
				if c.again > 0 {
					time.AfterFunc(c.again, func() { fs.setRoom(1 << 30) })
				}
				synctest.Wait()
				if names, err := w.mem.List("/wal"); err != nil || len(names) != 1 {
					t.Errorf("the files are %q (%v), want only the first segment", names, err)
				}
				for range 10 {
					w.mustAdd(make([]byte, 1000), true)
					time.Sleep(c.wait / 10)
				}
				synctest.Wait()
				names, err := w.mem.List("/wal")
				if prepared := 0 < c.again && c.again+retryAfter < c.wait; err != nil || (len(names) > 1) != prepared {
					t.Errorf("before the next segment is needed, the files are %q (%v); want it among them: %t", names, err, prepared)
				}
				if n := strings.Count(said.String(), "no room for the next segment"); n != 1 ||
					!strings.Contains(said.String(), fileName(2)) {
					t.Errorf("the full disk was logged %d times, want once, with the second segment: %s", n, said.String())
				}
				start := time.Now()
				for range 10 {
					err = errors.Join(err, w.add(make([]byte, 1000), true))
				}
				if failed := errors.Is(err, syscall.ENOSPC); failed != c.fails || failed != errors.Is(w.failed, syscall.ENOSPC) ||
					!failed && err != nil {
					t.Errorf("Append returned %v and the log reported %v; want a failure: %t", err, w.failed, c.fails)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("Append waited for %v, want it to try again at once", took)
				}
				if err := w.log.Close(); (err != nil) != c.fails {
					t.Error(err)
				}
				w.fs = nil
				w.check(w.mustOpen())
				w.close()
			})
		})
	}
}

// TestFullDiskAgain: that a segment was needed once, or that the disk was full once, says nothing about the next time.
func TestFullDiskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1000)
		fs := &smallFS{newNotedFS[int64](w.mem), testSegment * 3 / 2}
		w.fs = fs
		cfg := w.config()
		var said bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		var err error
		if w.log, err = Open(cfg, func(LSN, []byte, bool) error { return nil }); err != nil {
			t.Fatal(err)
		}
		for segment := range uint32(3) {
			synctest.Wait() // until the disk is found full
			if n := uint32(strings.Count(said.String(), "no room for the next segment")); n != segment+1 || w.failed != nil {
				t.Fatalf("in segment %d: the full disk was logged %d times, and the log reported %v", segment+1, n, w.failed)
			}
			fs.setRoom(int64(testSegment) * int64(2*segment+5) / 2)
			for _, last := w.log.Segments(); last == segment+1; _, last = w.log.Segments() {
				w.mustAdd(make([]byte, 1000), true)
			}
		}
		w.close()
	})
}
