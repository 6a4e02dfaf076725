package shard

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// startOnDisk starts a single-replica shard on the real disk, with fsync on.
func startOnDisk(b *testing.B) *Shard {
	dir := b.TempDir()
	fatal := func(err error) { b.Error(err) }
	log, err := raftlog.Open(raftlog.Config{Dir: filepath.Join(dir, "raft"), Fatal: fatal})
	if err != nil {
		b.Fatal(err)
	}
	state, err := store.Open(store.Config{Dir: filepath.Join(dir, "state"), Fatal: fatal})
	if err != nil {
		b.Fatal(err)
	}
	s, err := Start(Config{ID: 1, Replica: 1, Voters: []uint64{1}, Log: log, State: state, Fatal: fatal})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		s.Stop()
		if err := log.Close(); err != nil {
			b.Error(err)
		}
		if err := state.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

var value = make([]byte, 1024)

// setRows returns a call that writes n rows of 1 KiB under keys that no other call writes.
func setRows(next *atomic.Uint64, n uint64) func(*store.Tx) (struct{}, error) {
	return func(tx *store.Tx) (struct{}, error) {
		last := next.Add(n)
		for i := range n {
			tx.Set(binary.BigEndian.AppendUint64([]byte{'k'}, last-i), value)
		}
		return struct{}{}, nil
	}
}

func benchmarkUpdate(b *testing.B, rows uint64) {
	s := startOnDisk(b)
	ctx := context.Background()
	var next atomic.Uint64
	for b.Loop() {
		if _, _, err := Update(ctx, s, setRows(&next, rows)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(next.Load())/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkUpdate(b *testing.B)   { benchmarkUpdate(b, 1) }
func BenchmarkUpdate20(b *testing.B) { benchmarkUpdate(b, 20) }

func BenchmarkUpdate64Callers(b *testing.B) {
	s := startOnDisk(b)
	ctx := context.Background()
	var next atomic.Uint64
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := Update(ctx, s, setRows(&next, 1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(next.Load())/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(next.Load())/float64(s.cfg.State.Applied().Index), "calls/round")
}

func BenchmarkView(b *testing.B) {
	s := startOnDisk(b)
	ctx := context.Background()
	var next atomic.Uint64
	if _, _, err := Update(ctx, s, setRows(&next, 1000)); err != nil {
		b.Fatal(err)
	}
	key := binary.BigEndian.AppendUint64([]byte{'k'}, 500)
	for b.Loop() {
		if ok, _, err := View(ctx, s, func(r store.Reader) (bool, error) {
			_, ok := r.Get(key)
			return ok, nil
		}); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

// These measure the disk alone: one write of the size of an entry of one row, or of 64, and one fdatasync.
func BenchmarkBareSync(b *testing.B)   { benchmarkBareSync(b, 1400) }
func BenchmarkBareSync64(b *testing.B) { benchmarkBareSync(b, 64*1100) }

func benchmarkBareSync(b *testing.B, size int) {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 64<<20); err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, size)
	off := int64(0)
	for b.Loop() {
		if _, err := f.WriteAt(buf, off); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
		off = (off + int64(len(buf))) % (60 << 20)
	}
}
