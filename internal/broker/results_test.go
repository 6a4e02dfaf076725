package broker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/task"
)

// watch starts a watch and returns a channel of its notifications.
func (w *world) watch() (*ClaimWatch, chan Lost) {
	lost := make(chan Lost, 100)
	return w.WatchClaims(func(l Lost) { lost <- l }, func([]Hold) { w.t.Error("the leader was reported as moved") }), lost
}

// A claim that was lost before its watch began is reported within a second, and one that its holder ended is not reported as lost.
func TestLossBeforeWatchIsReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"}, task.Spec{Queue: "a"}, task.Spec{Queue: "a"}, task.Spec{Queue: "a"})
		c := call("a")
		c.Max = 4
		claimed := <-w.claim(context.Background(), c, 0)
		err := operateTask(context.Background(), w.Broker, Cancel, claimed[0].ID)
		w.must(err)
		w.settle(Settle{Verb: Ack, Hold: hold(claimed[1])})
		w.settle(Settle{Verb: GiveBack, Hold: hold(claimed[3])})
		if again := <-w.claim(context.Background(), c, 0); len(again) != 1 || again[0].ID != claimed[3].ID {
			t.Fatalf("the released task was not claimed again: %v", again)
		}
		watch, lost := w.watch()
		watch.Add(hold(claimed[2]))
		w.pass(time.Second) // claims already watched in this term have been read
		watch.Add(hold(claimed[0]))
		watch.Add(hold(claimed[1]))
		watch.Add(hold(claimed[3]))
		forgotten := hold(claimed[2])
		forgotten.ID[len(forgotten.ID)-1]++
		watch.Add(forgotten)
		w.pass(time.Second)
		got := map[task.ID]string{}
		for len(lost) > 0 {
			l := <-lost
			got[l.ID] = l.Reason
		}
		if len(got) != 4 || got[claimed[0].ID] != task.StaleCancelled || got[claimed[1].ID] != task.StaleCompleted ||
			got[claimed[3].ID] != task.StaleCompleted || got[forgotten.ID] != task.StaleExpired {
			t.Errorf("reported as lost: %v", got)
		}
		if !watch.Remove(claimed[2].ID, claimed[2].Token) || watch.Remove(claimed[0].ID, claimed[0].Token) {
			t.Error("a reported claim is still watched, or the held claim is not")
		}
	})
}

// Held claims are not reported, whatever their namespaces and the order in which their watches began.
func TestHeldClaimsAreNotReported(t *testing.T) {
	inWorld(t, func(w *world) {
		var claimed []Hold
		for _, ns := range []string{"y", "x", "x"} {
			spec := task.Spec{Type: "job", Queue: "a"}
			spec.Fill()
			_, err := CopyQueues.Call(context.Background(), w.Broker, QueueCopies{OnShard{one, ns}, 0, map[string]task.QueueConfig{
				"a": {Version: 1, Settings: task.DefaultSettings()}}})
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
		w.pass(time.Second) // claims already watched in this term have been read
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}} {
			for _, i := range order {
				watch.Add(claimed[i])
			}
			w.pass(time.Second)
		}
		if len(lost) > 0 {
			t.Errorf("a held claim was reported as lost: %v", <-lost)
		}
	})
}

// Calls that wait at a replica get *NotLeader immediately when it is removed.
func TestRemovedReplicaEndsWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		ids := w.enqueue(task.Spec{Queue: "a"})
		claimed := <-w.claim(ctx, call("a"), 0)
		var moved []Hold
		watch := w.WatchClaims(func(l Lost) { t.Errorf("a claim was reported as lost: %+v", l) }, func(h []Hold) { moved = h })
		watch.Add(hold(claimed[0]))
		errs := make(chan error, 3)
		began := time.Now()
		go func() { _, _, err := w.Claim(ctx, one, call("b"), time.Hour); errs <- err }()
		go func() { errs <- w.Await(ctx, one, call("b")) }()
		go func() { _, _, err := w.Task(ctx, ns, ids[0], time.Hour); errs <- err }()
		synctest.Wait()
		r, err := w.replica(one)
		w.must(err)
		w.Remove(one)
		for range 3 {
			var notLeader *NotLeader
			if err := <-errs; !errors.As(err, &notLeader) || notLeader.Shard != one {
				t.Errorf("a call that waited at the removed replica ended with %v, want NotLeader", err)
			}
		}
		if time.Since(began) > time.Second || len(moved) != 1 || moved[0] != hold(claimed[0]) {
			t.Errorf("the calls took %s to end, and the watches moved are %v", time.Since(began), moved)
		}
		if watch.Add(hold(claimed[0])) {
			t.Error("a claim of a shard that is not on this node is watched")
		}
		var notLeader *NotLeader
		if _, _, err := w.Settle(ctx, one, []Settle{{Verb: Ack, Hold: hold(claimed[0])}}); !errors.As(err, &notLeader) {
			t.Errorf("Settle after the shard was removed: %v, want NotLeader", err)
		}
		r.watches.remove(keyOf(claimed[0].ID, claimed[0].Token), watch)
		if r.watches.add(watch, hold(claimed[0])) {
			t.Error("a claim is watched at a replica that has been removed")
		}
		w.Remove(one) // again: nothing
	})
}

// No call on a shard that is not on this node has any effect; all return *NotLeader.
func TestCallsOnAbsentShard(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		far := task.NewID(two, 1, 1)
		watch := w.WatchClaims(func(Lost) {}, func([]Hold) {})
		if watch.Add(Hold{Namespace: ns, ID: far}) {
			t.Error("a claim of a shard that is not on this node is watched")
		}
		for what, call := range map[string]func() error{
			"Enqueue":     func() error { _, _, err := w.Enqueue(ctx, two, ns, []task.Spec{{}}); return err },
			"Claim":       func() error { _, _, err := w.Claim(ctx, two, call("a"), time.Hour); return err },
			"Await":       func() error { return w.Await(ctx, two, call("a")) },
			"Settle":      func() error { _, _, err := w.Settle(ctx, two, []Settle{{Verb: Ack}}); return err },
			"Task":        func() error { _, _, err := w.Task(ctx, ns, far, time.Hour); return err },
			"Peek":        func() error { _, _, _, err := w.Peek(ctx, ns, far); return err },
			"Check":       func() error { _, _, err := w.Check(ctx, two); return err },
			"Audit":       func() error { _, _, err := w.Audit(ctx, two, AuditQuery{}, nil, 1); return err },
			"MakeGroup":   func() error { _, _, err := w.MakeGroup(ctx, two, ns, task.Group{}, nil); return err },
			"FindGroup":   func() error { _, _, err := w.FindGroup(ctx, two, ns, task.Group{}); return err },
			"AddToGroup":  func() error { _, _, err := w.AddToGroup(ctx, ns, far, nil, nil); return err },
			"Once":        func() error { _, _, err := w.Once(ctx, two, OnceCall{}); return err },
			"CopyWatches": func() error { return w.CopyWatches(ctx, two, nil) },
			"Meters":      func() error { _, err := w.Meters(ctx, two, ns, nil, false); return err },
			"a change":    func() error { return operateTask(ctx, w.Broker, Cancel, far) },
			"a read":      func() error { _, err := ShowGroup.Call(ctx, w, OnGroup{ns, far}); return err },
		} {
			var notLeader *NotLeader
			if err := call(); !errors.As(err, &notLeader) || *notLeader != (NotLeader{Shard: two}) {
				t.Errorf("%s: %v, want NotLeader", what, err)
			}
		}
		if node, term, index := w.Leader(two); node != 0 || term != 0 || index != 0 {
			t.Errorf("Leader = node %d in term %d at entry %d, want zeros for a shard that is not on this node", node, term, index)
		}
		if err := w.Add(two, func(shard.Hooks) (*shard.Shard, error) { return nil, errors.New("no disk") }); err == nil ||
			err.Error() != "shard 2: no disk" {
			t.Errorf("adding a shard that fails to start: %v", err)
		}
		if got := w.Led(); !slices.Equal(got, []uint32{one}) {
			t.Errorf("Led = %v, want only the shard that is on this node", got)
		}
	})
}

// With a full disk nothing new is accepted, but existing tasks can be completed.
func TestFullDiskRefusesEnqueues(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		id := w.enqueue(task.Spec{Queue: "a"})[0]
		spec := task.Schedule{Name: "s", Every: time.Hour, Task: task.Spec{Queue: "a", Type: "t"}}
		spec.Fill()
		put := SchedulePutCall{OnShard: OnShard{one, ns}, Put: SchedulePut{Schedule: spec, Version: 1}}
		_, err := PutSchedule.Call(ctx, w, put)
		w.must(err)
		full := error(task.Unavailable(time.Minute, "the disk is full"))
		w.onRoom.Store(&full)
		for what, call := range map[string]func() error{
			"Enqueue":    func() error { _, _, err := w.Enqueue(ctx, one, ns, []task.Spec{{}}); return err },
			"MakeGroup":  func() error { _, _, err := w.MakeGroup(ctx, one, ns, task.Group{}, nil); return err },
			"AddToGroup": func() error { _, _, err := w.AddToGroup(ctx, ns, id, nil, nil); return err },
			"a schedule": func() error { _, err := PutSchedule.Call(ctx, w, put); return err },
			"a trigger": func() error {
				_, err := TriggerSchedule.Call(ctx, w, ScheduleTrigger{AtHome: AtHome{OnSchedule{OnShard{one, ns}, "s"}}})
				return err
			},
		} {
			if err := call(); !errors.Is(err, full) {
				t.Errorf("%s with a full disk: %v, want unavailable", what, err)
			}
		}
		put.Put.DryRun = true
		if _, err := PutSchedule.Call(ctx, w, put); err != nil {
			t.Errorf("a dry run with a full disk: %v", err)
		}
		claimed := <-w.claim(ctx, call("a"), 0)
		if got := w.settle(Settle{Verb: Ack, Hold: hold(claimed[0])}); got.Err != nil {
			t.Errorf("an ack with a full disk: %v", got.Err)
		}
	})
}

// A shard that is added while the broker runs works like the others: time passes in it.
func TestShardIsAddedWhileRunning(t *testing.T) {
	inWorld(t, func(w *world) {
		if err := w.Add(one, func(shard.Hooks) (*shard.Shard, error) { return nil, errors.New("started twice") }); err == nil ||
			err.Error() == "shard 1: started twice" {
			t.Errorf("adding the same shard twice: %v", err)
		}
		stop := w.addShard(two)
		w.pass(5 * time.Second) // until it is led
		began := time.Now()
		_, _, err := w.Enqueue(context.Background(), two, ns, []task.Spec{{Type: "job", Queue: "late", Priority: task.Normal,
			Delay: 10 * time.Second}})
		w.must(err)
		got, _, err := w.Claim(context.Background(), two, call("late"), time.Minute)
		if err != nil || len(got) != 1 || time.Since(began) < 10*time.Second || time.Since(began) > 11*time.Second {
			t.Errorf("the delayed task was claimed after %s: %v, %v", time.Since(began), got, err)
		}
		stop()
	})
}

// A wait for a result continues although the leader's memory is dropped.
func TestWaitSurvivesElection(t *testing.T) {
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
		r.results.wakeAll()
		w.pass(10 * time.Second)
		err = operateTask(context.Background(), w.Broker, Cancel, ids[0])
		w.must(err)
		if s := <-states; s != task.Cancelled || time.Since(began) > 11*time.Second {
			t.Errorf("the wait ended with the task %s after %s", s, time.Since(began))
		}
	})
}

// A wait that ends does not end the waits of others.
func TestWaitsEndIndependently(t *testing.T) {
	var r results
	id := task.NewID(one, 1, 1)
	first, forget := r.wait(id)
	second, _ := r.wait(id)
	forget()
	r.ended([]engine.Ended{{ID: id}})
	select {
	case <-second:
	default:
		t.Error("the other wait was not woken")
	}
	select {
	case <-first:
		t.Error("a wait that had ended was woken")
	default:
	}
	if len(r.waiting) > 0 {
		t.Errorf("%d waits are left", len(r.waiting))
	}
}

// Closing a watch leaves no claims to check.
func TestCloseEndsAllWatches(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(task.Spec{Queue: "a"})
		claimed := <-w.claim(context.Background(), call("a"), 0)
		watch, lost := w.watch()
		if !watch.Add(hold(claimed[0])) {
			t.Fatal("Add did not watch the claim")
		}
		r, err := w.replica(one)
		w.must(err)
		if !r.watches.any() {
			t.Error("no claim is watched")
		}
		watch.Close()
		if r.watches.any() {
			t.Error("a claim is still watched after Close")
		}
		w.pass(time.Minute)
		if len(lost) > 0 {
			t.Errorf("a closed watch reported %+v as lost", <-lost)
		}
	})
}

func TestRefusalsAroundARound(t *testing.T) {
	refused := task.NotFound("task", "x")
	if got := Refusal(3, refused); got != error(refused) {
		t.Errorf("Refusal of a task error = %v, want it unchanged", got)
	}
	var notLeader *NotLeader
	if err := Refusal(3, &shard.NotLeader{Leader: 5<<32 | 2}); !errors.As(err, &notLeader) || *notLeader != (NotLeader{3, 2}) ||
		err.Error() != "shard 3 is led by node 2" {
		t.Errorf("Refusal of shard.NotLeader = %v", err)
	}
	if err := Refusal(3, shard.ErrStopped); !errors.As(err, &notLeader) || *notLeader != (NotLeader{3, 0}) {
		t.Errorf("Refusal of shard.ErrStopped = %v", err)
	}
	err := Refusal(3, shard.ErrUnknown)
	if e, ok := task.AsError(err); !ok || e.Code != task.CodeUnavailable || !errors.Is(err, ErrUnknown) {
		t.Errorf("Refusal of shard.ErrUnknown = %v", err)
	}
	if err := Refusal(3, shard.ErrBusy); !errors.Is(err, task.ErrUnavailable) || errors.Is(err, ErrUnknown) {
		t.Errorf("Refusal of shard.ErrBusy = %v", err)
	}
	// A call that was partly done is not reported as one that did not run.
	if err := partlyDone(&NotLeader{Shard: 3}, 7); errors.As(err, &notLeader) || !errors.Is(err, task.ErrUnavailable) {
		t.Errorf("partlyDone after 7 = %v, want unavailable", err)
	}
	if err := partlyDone(&NotLeader{Shard: 3}, 0); !errors.As(err, &notLeader) {
		t.Errorf("partlyDone after 0 = %v, want NotLeader", err)
	}
}
