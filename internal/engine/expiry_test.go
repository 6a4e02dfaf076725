package engine_test

import (
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// However many tasks have expired, claims get none of them. A claim that has met too many finds nothing, and is woken until it gets a task.
func TestExpiredTasksAreNotClaimed(t *testing.T) {
	for _, weights := range [][3]int{{}, {1, 1, 1}} {
		w := engine.NewWorld(t)
		s := task.DefaultSettings()
		s.Weights = weights
		w.PutQueue("default", s, false)
		add := func(n int, spec task.Spec) {
			w.Round(func(r *engine.Round) {
				for range n {
					spec.Queue = "default"
					if _, err := engine.Enqueue(r, &engine.NewTask{Namespace: "default", ID: w.NewID(), Spec: spec}); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		add(4500, task.Spec{Type: "job", Priority: task.Normal, ExpiresIn: time.Minute})
		add(1, task.Spec{Type: "job", Priority: task.Low})
		add(1, task.Spec{Type: "other", Priority: task.Normal})
		w.Now = w.Now.Add(2 * time.Minute)
		w.BecomeLeader()
		rounds, got := 0, []engine.Claimed(nil)
		claim := engine.ClaimRequest{Namespace: "default", Queues: []engine.Share{{Queue: "default"}}, Types: []string{"job"}, Max: 10,
			MaxBytes: 1 << 20, Lease: time.Minute}
		for tick := false; len(got) == 0; tick = true {
			w.Round(func(r *engine.Round) {
				if tick {
					if w.Leader.NextDeadline() > w.Now {
						t.Fatal("a waiting claim found nothing, and nothing is due")
					}
					engine.Tick(r)
				}
				for i := 0; len(got) == 0 && (i < 2 || i < len(r.Woken)) && engine.Runnable(r, &claim); i++ {
					got, _ = engine.ClaimTasks(r, &claim)
				}
				if len(got) == 0 && engine.Runnable(r, &claim) {
					t.Fatal("a claim found nothing, but would")
				}
			})
			if tick && len(got) == 0 && len(w.Last.Woken) == 0 {
				t.Fatal("nothing wakes a claim that met too many expired tasks")
			}
			if n := len(w.Last.Ended); n > 2000 || n == 0 && len(got) == 0 {
				t.Fatalf("%d tasks were discarded in a round", n)
			}
			rounds++
		}
		if len(got) != 1 || got[0].Exec.Priority != task.Low || rounds < 3 {
			t.Errorf("after %d rounds the claim got %d tasks, the first %+v", rounds, len(got), got[0].Exec)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
		w.Pass(0)
		left := 0
		eachExec(w, func(_ task.ID, x *schema.Exec) {
			if x.State.Waiting() {
				left++
			}
		})
		if left != 1 {
			t.Errorf("%d tasks wait, want the one of another type", left)
		}
	}
}

// A task expires at the very moment that it names, whichever comes first, its claim or its deadline.
func TestExpiryIsToTheMicrosecond(t *testing.T) {
	for _, early := range []store.Time{0, 1} {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		if _, err := w.Enqueue(task.Spec{Type: "job", ExpiresIn: time.Minute}); err != nil {
			t.Fatal(err)
		}
		w.Now = w.Now.Add(time.Minute) - early
		if got := w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}}); len(got) != int(early) {
			t.Errorf("%d us before its expiry, a claim got %v", early, got)
		}
	}
}

// A claim of a run of tasks ends before one that has expired; the task behind it comes when the run has ended.
func TestRunEndsBeforeExpiredTask(t *testing.T) {
	w := engine.NewWorld(t)
	s := task.DefaultSettings()
	s.KeyOrder = task.KeyOrderStrict
	w.PutQueue("default", s, false)
	var ids []task.ID
	for _, expires := range []time.Duration{0, 0, time.Minute, 0} {
		a, err := w.Enqueue(task.Spec{Type: "job", Key: "a", ExpiresIn: expires})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, a.ID)
	}
	w.Now = w.Now.Add(time.Hour)
	claim := engine.ClaimRequest{Queues: []engine.Share{{Queue: "default"}}, Runs: true, Max: 9}
	run := w.Claim(claim)
	if len(run) != 2 || run[0].ID != ids[0] || run[1].ID != ids[1] {
		t.Fatalf("the claim got %v", run)
	}
	for _, c := range run {
		w.Round(func(r *engine.Round) {
			if _, err := engine.Ack(r, engine.Hold{Namespace: "default", ID: c.ID, Token: c.Token}, schema.Result{}); err != nil {
				t.Error(err)
			}
		})
	}
	if rest := w.Claim(claim); len(rest) != 1 || rest[0].ID != ids[3] {
		t.Errorf("when the run had ended, a claim got %v", rest)
	}
	if err := w.Check(); err != nil {
		t.Error(err)
	}
}

// An expired task costs neither its queue nor its priority a turn.
func TestExpiredTaskTakesNoTurn(t *testing.T) {
	w := engine.NewWorld(t)
	s := task.DefaultSettings()
	s.Weights = [3]int{1, 1, 1}
	for _, q := range []string{"q1", "q2"} {
		w.PutQueue(q, s, false)
		for range 40 {
			for _, p := range []task.Priority{task.High, task.Low} {
				if q == "q1" && p == task.High {
					if _, err := w.Enqueue(task.Spec{Type: "job", Queue: q, Priority: p, ExpiresIn: time.Minute}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := w.Enqueue(task.Spec{Type: "job", Queue: q, Priority: p}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	w.Now = w.Now.Add(time.Hour)
	got := map[string]int{}
	for range 40 {
		for _, c := range w.Claim(engine.ClaimRequest{Weighted: true, Queues: []engine.Share{{Queue: "q1", Weight: 1},
			{Queue: "q2", Weight: 1}}}) {
			got[c.Queue]++
			got[c.Queue+" "+c.Exec.Priority.String()]++
		}
	}
	if got["q1"] != 20 || got["q2"] != 20 || got["q1 high"] != 10 || got["q2 high"] != 10 {
		t.Errorf("claims got %v, want the same of both queues and priorities", got)
	}
}
