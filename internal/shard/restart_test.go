package shard

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/raftlog"
	"github.com/pawlq/pawl/internal/store"
)

// BenchmarkRestart measures the time from the start of a killed shard with a million rows of 1 KiB to its first answer: it
// reads the log, and applies what the state had not flushed. With -short it has some thousand rows.
func BenchmarkRestart(b *testing.B) {
	rows := uint64(1_000_000)
	if testing.Short() {
		rows = 10_000
	}
	dir := b.TempDir()
	open := func() (*Shard, func()) {
		log, err := raftlog.Open(raftlog.Config{Dir: filepath.Join(dir, "raft")})
		if err != nil {
			b.Fatal(err)
		}
		state, err := store.Open(store.Config{Dir: filepath.Join(dir, "state")})
		if err != nil {
			b.Fatal(err)
		}
		s, err := Start(Config{ID: 1, Replica: 1, Voters: []uint64{1}, Log: log, State: state})
		if err != nil {
			b.Fatal(err)
		}
		return s, func() { s.Stop(); log.Close(); state.Close() }
	}
	s, stop := open()
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for next.Load() < rows {
				if _, _, err := Update(context.Background(), s, setRows(&next, 50)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	durable, err := s.cfg.State.Durable()
	if err != nil {
		b.Fatal(err)
	}
	replayed := s.cfg.State.Applied().Index - durable.Index
	stop() // which flushes nothing
	for b.Loop() {
		start := time.Now()
		s, stop := open()
		if _, _, err := View(context.Background(), s, func(store.Reader) (int, error) { return 0, nil }); err != nil {
			b.Fatal(err)
		}
		b.Logf("first answer after %v", time.Since(start))
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(replayed), "entries-replayed")
}
