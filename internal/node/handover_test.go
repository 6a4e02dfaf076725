package node

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/internal/router/routertest"
	"github.com/pawlq/pawl/internal/verb"
)

// Leadership is transferred repeatedly under load, and each time what falls due under the new leader is done in time, even if it
// led before and lost its leadership with calls in progress.
func TestTimePassesAfterHandovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		c := w.nodes["n3"].client()
		enqueue := func(opts ...pawl.Option) {
			if _, err := c.Enqueue(t.Context(), pawl.RawTask{Type: "job"}, opts...); err != nil {
				t.Error(err)
			}
		}
		for n := range 6 {
			old := w.leaderOf(1)
			next := map[string]string{"n1": "n2", "n2": "n1", "n3": "n1"}[old]
			var load sync.WaitGroup
			for range 50 {
				load.Go(func() {
					for range 20 {
						enqueue(pawl.Queue("load"))
						pass(time.Millisecond)
					}
				})
			}
			pass(5 * time.Millisecond)
			to := w.nodes[next].replicas.get(1).id
			if err := w.nodes[old].replicas.get(1).shard.Transfer(t.Context(), to, "test"); err != nil {
				t.Fatal(err)
			}
			load.Wait()
			if now := w.leaderOf(1); now != next {
				t.Fatalf("handover %d: %s leads, want %s", n, now, next)
			}
			const delay, most = time.Second, 1500 * time.Millisecond
			enqueue(pawl.Queue("later"), pawl.In(delay))
			began := time.Now()
			got, err := claims.New(c).Claim(t.Context(), claims.Request{Queues: pawl.Strict{"later"}, Wait: 20 * time.Second})
			if took := time.Since(began); err != nil || len(got) != 1 || took > most {
				t.Errorf("handover %d, from %s to %s: what was due after %v came after %v (%d tasks, %v)", n, old, next, delay,
					took, len(got), err)
			}
		}
	})
}

// The new leader logs why it was chosen, whichever node the call on the group came from.
func TestWhyLeadershipMovesIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.lines = new(logLines)
		w.form()
		old := w.leaderOf(1)
		next := map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[old]
		third := map[string]string{"n1": "n3", "n2": "n1", "n3": "n2"}[old]
		if err := w.nodes[third].groups.Transfer(t.Context(), 1, w.nodes[next].replicas.get(1).id, "for a test"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // until the new leader has taken office
		if got := w.lines.about("node="+next, "shard=1 ", `why="handed over: for a test"`); len(got) != 1 {
			t.Errorf("%s leads since %s was asked, and logs the reason in %q, want one line", next, third, got)
		}
	})
}

// All fields of the calls on groups arrive at the leader.
func TestGroupCallsRoundTrip(t *testing.T) {
	var parts verb.Parts
	groupVerbs.Serve(nil, &parts)
	routertest.VerbsRoundTrip(t, &parts)
}
