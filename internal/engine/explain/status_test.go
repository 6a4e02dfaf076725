package explain

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// MoreNewDead is set for a queue with more new dead letters than are counted.
func TestNewDeadAreCountedUpToABound(t *testing.T) {
	s, err := store.Open(store.Config{Dir: "state", FS: vfs.NewMem(), Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	tx := s.Begin(now, 1)
	defer tx.Close()
	for i := range 3 { // three, two and one minute ago
		tx.Set(schema.DeadKey("default", "mail", task.Dead, now.Add(time.Duration(i-3)*time.Minute), task.ID{byte(i)}), nil)
	}
	for _, c := range []struct {
		back time.Duration
		most int64
		want int64
		more bool
	}{{time.Hour, 10, 3, false}, {time.Hour, 3, 3, false}, {time.Hour, 2, 2, true}, {90 * time.Second, 10, 1, false},
		{2 * time.Minute, 10, 2,
			false}, {0, 10, 0, false}} {
		q := &QueueStatus{Namespace: "default", Queue: "mail"}
		if q.countNewDead(tx, now.Add(-c.back), c.most); q.NewDead != c.want || q.MoreNewDead != c.more {
			t.Errorf("dead letters of the last %v, at most %d: %d (more: %v), want %d (%v)", c.back, c.most, q.NewDead,
				q.MoreNewDead, c.want, c.more)
		}
	}
}
