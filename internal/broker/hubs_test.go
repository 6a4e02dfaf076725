package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/task"
)

// watch starts a watch whose notices can be read.
func (w *world) watch() (*ClaimWatch, chan Lost) {
	lost := make(chan Lost, 100)
	return w.WatchClaims(func(l Lost) { lost <- l }, func([]Hold) { w.t.Error("the leader has not moved") }), lost
}

// A claim that was lost before its watch began is told within a second, and one that its holder ended is not called lost.
func TestALossBeforeTheWatchIsTold(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"}, task.Spec{Queue: "a"}, task.Spec{Queue: "a"}, task.Spec{Queue: "a"})
		c := call("a")
		c.Max = 4
		claimed := <-w.claim(context.Background(), c, 0)
		err := order(context.Background(), w.Broker, Cancel, claimed[0].ID)
		w.must(err)
		w.settle(Settle{Verb: Ack, Hold: hold(claimed[1])})
		w.settle(Settle{Verb: GiveBack, Hold: hold(claimed[3])})
		if again := <-w.claim(context.Background(), c, 0); len(again) != 1 || again[0].ID != claimed[3].ID {
			t.Fatalf("claimed again: %v", again)
		}
		watch, lost := w.watch()
		watch.Add(hold(claimed[2]))
		w.pass(time.Second) // what was there in this term was read
		watch.Add(hold(claimed[0]))
		watch.Add(hold(claimed[1]))
		watch.Add(hold(claimed[3]))
		w.pass(time.Second)
		got := map[task.ID]string{}
		for len(lost) > 0 {
			l := <-lost
			got[l.ID] = l.Reason
		}
		if len(got) != 3 || got[claimed[0].ID] != task.StaleCancelled || got[claimed[1].ID] != task.StaleCompleted || got[claimed[3].ID] == "" {
			t.Errorf("told %v", got)
		}
		if !watch.Remove(claimed[2].ID, claimed[2].Token) || watch.Remove(claimed[0].ID, claimed[0].Token) {
			t.Error("what was told is to be forgotten, and nothing else")
		}
	})
}

// Claims that are held are not told, whatever their namespaces and in whichever order their watches began.
func TestClaimsThatAreHeldAreNotTold(t *testing.T) {
	inWorld(t, func(w *world) {
		var claimed []Hold
		for _, ns := range []string{"y", "x", "x"} {
			spec := task.Spec{Type: "job", Queue: "a"}
			spec.Fill()
			_, err := CopyQueues.Call(context.Background(), w.Broker, QueueCopies{OnShard{one, ns}, map[string]task.QueueConfig{"a": {Version: 1, Settings: task.DefaultSettings()}}})
			w.must(err)
			_, _, err = w.Enqueue(context.Background(), one, ns, []task.Spec{spec})
			w.must(err)
			c := call("a")
			c.Namespace = ns
			got := (<-w.claim(context.Background(), c, 0))[0]
			claimed = append(claimed, Hold{Namespace: ns, ID: got.ID, Token: got.Token})
			w.pass(time.Second) // so that later tasks have higher ids
		}
		watch, lost := w.watch()
		defer watch.Close()
		watch.Add(claimed[0])
		w.pass(time.Second) // what was there in this term was read
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
			for _, i := range order {
				watch.Add(claimed[i])
			}
			w.pass(time.Second)
		}
		if len(lost) > 0 {
			t.Errorf("told %v", <-lost)
		}
	})
}

// Who waits in a replica that is taken away is sent elsewhere at once.
func TestARemovedShardSendsAwayWhoWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		ids := w.enqueue(task.Spec{Queue: "a"})
		claimed := <-w.claim(ctx, call("a"), 0)
		var moved []Hold
		watch := w.WatchClaims(func(l Lost) { t.Errorf("lost %+v", l) }, func(h []Hold) { moved = h })
		watch.Add(hold(claimed[0]))
		errs := make(chan error, 3)
		began := time.Now()
		go func() { _, _, err := w.Claim(ctx, one, call("b"), time.Hour); errs <- err }()
		go func() { errs <- w.Await(ctx, one, call("b")) }()
		go func() { _, _, err := w.Task(ctx, ns, ids[0], time.Hour); errs <- err }()
		synctest.Wait()
		w.Remove(one)
		for range 3 {
			var elsewhere *Elsewhere
			if err := <-errs; !errors.As(err, &elsewhere) || elsewhere.Shard != one {
				t.Errorf("got %v", err)
			}
		}
		if time.Since(began) > time.Second || len(moved) != 1 || moved[0] != hold(claimed[0]) {
			t.Errorf("after %s; watches moved: %v", time.Since(began), moved)
		}
		if watch.Add(hold(claimed[0])) {
			t.Error("a claim of a shard that is not here is watched")
		}
		var elsewhere *Elsewhere
		if _, _, err := w.Settle(ctx, one, []Settle{{Verb: Ack, Hold: hold(claimed[0])}}); !errors.As(err, &elsewhere) {
			t.Errorf("settle: %v", err)
		}
		w.Remove(one) // again: nothing
	})
}

// A shard that comes while the broker runs gets all that the others have: time passes in it.
func TestAShardCanBeAddedLate(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.Add(one, func(shard.Hooks) (*shard.Shard, error) { return nil, errors.New("started twice") }); err == nil || err.Error() == "shard 1: started twice" {
			t.Errorf("a shard was added twice: %v", err)
		}
		const two = 2
		stop := w.addShard(two)
		w.pass(5 * time.Second) // until it is led
		began := time.Now()
		_, _, err := w.Enqueue(context.Background(), two, ns, []task.Spec{{Type: "job", Queue: "late", Priority: task.Normal, Delay: 10 * time.Second}})
		w.must(err)
		got, _, err := w.Claim(context.Background(), two, call("late"), time.Minute)
		if err != nil || len(got) != 1 || time.Since(began) < 10*time.Second || time.Since(began) > 11*time.Second {
			t.Errorf("after %s: %v, %v", time.Since(began), got, err)
		}
		stop()
	})
}

// A wait for a result survives that the leader's memory is thrown away.
func TestAWaitOutlivesTheLeadersMemory(t *testing.T) {
	inWorld(t, func(w *world) {
		ids := w.enqueue(task.Spec{Queue: "a"})
		began := time.Now()
		states := make(chan task.State, 1)
		go func() {
			v, _, err := w.Task(context.Background(), ns, ids[0], time.Minute)
			if err != nil {
				t.Error(err)
				return
			}
			states <- v.Exec.State
		}()
		synctest.Wait()
		r, err := w.replica(one)
		w.must(err)
		r.results.again()
		w.pass(10 * time.Second)
		err = order(context.Background(), w.Broker, Cancel, ids[0])
		w.must(err)
		if s := <-states; s != task.Cancelled || time.Since(began) > 11*time.Second {
			t.Errorf("%s after %s", s, time.Since(began))
		}
	})
}

func TestRefusalsAroundARound(t *testing.T) {
	refused := task.NotFound("task", "x")
	if got := Refusal(3, refused); got != error(refused) {
		t.Errorf("a refusal became %v", got)
	}
	var elsewhere *Elsewhere
	if err := Refusal(3, &shard.NotLeader{Leader: 5<<32 | 2}); !errors.As(err, &elsewhere) || *elsewhere != (Elsewhere{3, 2}) || err.Error() != "shard 3 is led by node 2" {
		t.Errorf("not leader became %v", err)
	}
	if err := Refusal(3, shard.ErrStopped); !errors.As(err, &elsewhere) || *elsewhere != (Elsewhere{3, 0}) {
		t.Errorf("stopped became %v", err)
	}
	err := Refusal(3, shard.ErrUnknown)
	if e, ok := task.AsError(err); !ok || e.Code != task.CodeUnavailable || !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown became %v", err)
	}
	if err := Refusal(3, shard.ErrBusy); !errors.Is(err, task.ErrUnavailable) || errors.Is(err, ErrUnknown) {
		t.Errorf("busy became %v", err)
	}
	// What was done in part is no call that did not run.
	if err := halfway(&Elsewhere{Shard: 3}, 7); errors.As(err, &elsewhere) || !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("halfway became %v", err)
	}
	if err := halfway(&Elsewhere{Shard: 3}, 0); !errors.As(err, &elsewhere) {
		t.Errorf("at the start: %v", err)
	}
	for o := task.OutcomeSucceeded; o <= task.OutcomeLeaderless; o++ {
		if staleReason(o) == "" {
			t.Errorf("%s has no reason", o)
		}
	}
}
