package notify

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A watch remembers its answers, for as many queues as there may be.
func TestWatchRemembers(t *testing.T) {
	w := &watch{Watch: task.Watch{Rules: []task.WatchRule{{Kinds: task.NotificationKinds, Queues: []string{"q*"}}}},
		wanted: map[subject]bool{}}
	most := 0
	for i := range maxWanted + 2 {
		if !w.wants(subject{"ns", task.NotifyDead, fmt.Sprintf("q%d", i)}) || w.wants(subject{"ns", task.NotifyDead, "other"}) {
			t.Fatalf("queue number %d is not wanted, or another queue is", i)
		}
		most = max(most, len(w.wanted))
	}
	if most != maxWanted {
		t.Errorf("%d answers are cached, want %d", most, maxWanted)
	}
}

// Notifications at different times, or of different subjects, are different messages.
func TestMessages(t *testing.T) {
	seen := map[task.ID]bool{}
	for _, name := range []subject{{"ns", task.NotifyDead, "q"}, {"ns", task.NotifyDead, "r"}, {"ns", task.NotifyPoisoned, "q"},
		{"other", task.NotifyDead, "q"}} {
		for _, first := range []store.Time{1, 2} {
			a, b := tally{subject: name, first: first}, tally{subject: name, first: first, count: 7}
			if a.message() != b.message() || seen[a.message()] {
				t.Errorf("%+v has message id %s, with a higher count %s, already used by another: %t", a, a.message(),
					b.message(), seen[a.message()])
			}
			seen[a.message()] = true
		}
	}
}
