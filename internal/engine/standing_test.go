package engine

import (
	"testing"
	"time"
)

// TestNewDeadAreCountedUpToABound: of a queue with more of them than are counted is said that there are more.
func TestNewDeadAreCountedUpToABound(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.die("mail", 1, deadly)
		w.pass(time.Minute)
	}
	for _, c := range []struct {
		back time.Duration
		most int64
		want int64
		more bool
	}{{time.Hour, 10, 3, false}, {time.Hour, 3, 3, false}, {time.Hour, 2, 2, true}, {90 * time.Second, 10, 1, false}, {2 * time.Minute, 10, 2, false}, {0, 10, 0, false}} {
		s := &Standing{Namespace: "default", Queue: "mail"}
		if s.countNewDead(w.store, w.now.Add(-c.back), c.most); s.NewDead != c.want || s.MoreNewDead != c.more {
			t.Errorf("of the last %v, at most %d: %d (more: %v), want %d (%v)", c.back, c.most, s.NewDead, s.MoreNewDead, c.want, c.more)
		}
	}
}
