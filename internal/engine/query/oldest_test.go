package query

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// scans counts how often rows are sought, and how many are read.
type scans struct {
	store.Reader
	seeks, rows int
}

func (s *scans) Scan(lo, hi []byte, fn func(key, value []byte) bool) {
	s.seeks++
	s.Reader.Scan(lo, hi, func(k, v []byte) bool {
		s.rows++
		return fn(k, v)
	})
}

// The oldest task behind another is found among many keys with few tasks, and among some with many. Looking for it
// never costs many seeks.
func TestOldestBehindIsBounded(t *testing.T) {
	for _, c := range []struct {
		name             string
		keys, tasks      int // tasks of each key, besides its first
		oldest           int // the number of the key whose task has waited for longest
		want             string
		maxSeeks, maxRow int
	}{
		{"one key", 1, 1, 0, "k00000", 2, 10},
		{"keys with few tasks", 900, 3, 899, "k00899", maxOldestLanes + 1, 3_000},
		{"as many tasks as are read past", 900, 16, 899, "k00899", maxOldestLanes + 1, 16_000},
		{"keys with many tasks", 900, 40, 48, "k00048", maxOldestLanes + maxOldestSeeks, 2_000},
		{"keys with many tasks, beyond the bound", 900, 40, 899, "k00000", maxOldestLanes + maxOldestSeeks, 2_000},
	} {
		s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		now := store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		tx := s.Begin(now, 1)
		tx.Set(schema.QueueKey("default", schema.TableCounts, "q"), (&schema.Counts{Ready: [3]int64{0, 1, 0}, Parked: 1,
			Behind: 1}).Encode())
		for k := range c.keys {
			key, place := fmt.Sprintf("k%05d", k), uint64(100+k)
			if k == c.oldest {
				place = 1
			}
			for n := range c.tasks {
				id := task.NewID(1, int64(k), uint64(n))
				tx.Set(schema.OrderKey("default", "q", key, place+uint64(n)*10_000), id[:])
				x := schema.Exec{Queue: "q", Key: key, State: task.Ready, Order: place, Behind: true,
					ReadyAt: now.Add(time.Duration(place) * time.Second)}
				tx.Set(schema.IDKey("default", schema.TableExec, id), x.Encode())
			}
		}
		from := &scans{Reader: tx}
		got := OldestBehind(from, "default", "q")
		if got.Key != c.want || from.seeks > c.maxSeeks || from.rows > c.maxRow {
			t.Errorf("%s: the oldest is of key %q, after %d seeks and %d rows, want %q after at most %d and %d",
				c.name, got.Key, from.seeks, from.rows, c.want, c.maxSeeks, c.maxRow)
		}
		tx.Close()
		_ = s.Close()
	}
}
