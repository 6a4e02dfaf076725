package engine

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// A lease that expires around two changes of leader ends as it would have with one: the graces of two leaders don't add
// up beyond the bound of a run, and a lease that expired while there was no leader costs no attempt, however many
// leaders followed.
func TestLeaseAcrossTwoElections(t *testing.T) {
	for _, x := range []struct {
		name    string
		first   time.Duration // from the claim to the first new leader; the second comes 13 s later, and the run is over after 20 s
		outcome task.Outcome
		ended   time.Duration // after the claim
	}{
		{"ran out while nobody served", 22 * time.Second, task.OutcomeLeaderless, 50 * time.Second},
		{"ran out under the first new leader", 9 * time.Second, task.OutcomeTimedOut, 35 * time.Second},
		{"ran out under the first new leader, late", 12 * time.Second, task.OutcomeTimedOut, 35 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := NewWorld(t)
			a, err := w.Enqueue(task.Spec{Type: "job", Timeout: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			w.Claim(ClaimRequest{Queues: []Share{{Queue: "default"}}})
			claimed := w.Now
			w.Now = w.Now.Add(x.first)
			w.BecomeLeader()
			w.Pass(13 * time.Second)
			w.BecomeLeader()
			for {
				if found := CheckAll(w.Store, "default"); len(found) > 0 {
					t.Fatalf("%v after the claim, Check found %q", w.Now.Sub(claimed), found)
				}
				e, err := schema.ReadExec(w.Store, "default", a.ID)
				if err != nil {
					t.Fatal(err)
				}
				if e.State != task.Claimed {
					break
				}
				w.Pass(time.Second)
			}
			attempts := schema.ReadAttempts(w.Store, "default", a.ID)
			if ended := w.Now.Sub(claimed); len(attempts) != 1 || attempts[0].Outcome != x.outcome || ended != x.ended {
				t.Errorf("%v after the claim: %+v, want %s after %v", ended, *attempts[0], x.outcome, x.ended)
			}
		})
	}
}
