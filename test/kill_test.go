package test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestKill repeatedly kills the only node with -9 under load, also while it starts, and checks the history: nothing
// acknowledged is lost, no task is held twice, no stale holder changes anything. PAWL_KILLS sets how often.
func TestKill(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	w := newWorkload(t, s.addr, "a", "b")
	kills := count(t, "PAWL_KILLS", 12)
	slowest := s.killOften(kills)
	w.finish()
	tasks := w.check()
	t.Logf("%d kills, %d tasks; %d unanswered enqueues; slowest start %s", kills, tasks, w.unknown.Load(), slowest)
	if w.acked.Load() < int64(kills) {
		t.Errorf("only %d acks: the load hardly ran", w.acked.Load())
	}
}

// killOften kills and restarts the server repeatedly, at random times, and returns how long the slowest start took.
func (s *server) killOften(kills int) (slowest time.Duration) {
	for range kills {
		time.Sleep(time.Duration(10+rand.IntN(400)) * time.Millisecond)
		s.kill()
		if rand.IntN(4) == 0 { // again while it starts
			s.launch()
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			s.kill()
		}
		slowest = max(slowest, s.start())
	}
	return slowest
}
