package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker/waiting"
	"github.com/pawlq/pawl/internal/task"
)

// Calls of other shards wait while their shard is held, and calls of clients don't.
func TestHeldShard(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		ids := w.enqueue(task.Spec{Queue: "a"}, task.Spec{Queue: "a"})
		notice := &Notice{Group: task.NewID(one, 1, 1)}
		message := task.Spec{Queue: "a", Type: "job", RequestID: task.ID{6: 0x80, 8: 0x80, 15: 1}, RequestTTL: task.MessageWindow}
		message.Fill()
		on := OnShard{one, ns}
		queue := OnQueue{on, "a"}
		calls := map[string]func() error{
			"a message": func() error {
				out, _, err := w.Enqueue(ctx, one, ns, []task.Spec{message})
				return errors.Join(err, out[0].Err)
			},
			"notices": func() error { _, err := RecordNotices.Call(ctx, w, GroupNotices{on, []*Notice{notice}}); return err },
			"the order to cancel": func() error {
				_, err := OperateTask.Call(ctx, w, TaskCommand{Verb: Cancel, OnTask: OnTask{ns, ids[0]}, Message: task.ID{15: 2}})
				return err
			},
			"a step": func() error {
				_, err := RunStep.Call(ctx, w, StepOrder{on, StepCall{Operation: task.NewID(one, 2, 2), Step: 1, Action: task.SetPriority,
					Priority: task.Low, Filter: ready("a"), Count: 9}})
				return err
			},
			"a copy":            func() error { return copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"b": {Version: 1}}) },
			"the end of a copy": func() error { _, err := DropCopy.Call(ctx, w, CopyOf{OnQueue{on, "none"}, 1}); return err },
			"a share": func() error {
				_, err := PutShare.Call(ctx, w, NewShare{OnSpaces{one, task.SpacesOf(ns)}, task.Share{}})
				return err
			},
			"an erasure":  func() error { _, err := EraseNamespace.Call(ctx, w, Removal{OnShard{one, "gone"}, 1}); return err },
			"watches":     func() error { return w.CopyWatches(ctx, one, map[string]task.Watch{ns: {}}) },
			"keys":        func() error { _, err := KeysUntil.Call(ctx, w, queue); return err },
			"unique keys": func() error { _, err := HoldsUnique.Call(ctx, w, OnSlots{queue, task.AllSlots}); return err },
			"once keys":   func() error { _, err := OnceUntil.Call(ctx, w, OnSlots{queue, task.AllSlots}); return err },
			"a deleted schedule": func() error {
				_, err := DeleteSchedule.Call(ctx, w, ScheduleDeletion{OnSchedule: OnSchedule{on, "none"}})
				return err
			},
		}
		begin := func(id byte) OnCut {
			t.Helper()
			begun, err := BeginCut.Call(ctx, w, OnCut{OnShard: on, ID: task.ID{id}})
			w.must(err)
			return OnCut{on, task.ID{id}, begun.Term}
		}
		first, second := begin(1), begin(2)
		answered := make(chan string, len(calls))
		for what, call := range calls {
			go func() {
				if err := call(); err != nil && !errors.Is(err, task.ErrNotFound) {
					t.Errorf("%s: %v", what, err)
				}
				answered <- what
			}()
		}
		none := func(when string) {
			t.Helper()
			if synctest.Wait(); len(answered) > 0 {
				t.Errorf("%s, %s was answered", when, <-answered)
			}
		}
		none("while the shard is held")
		w.enqueue(task.Spec{Queue: "a"})
		if got := <-w.claim(ctx, call("a"), 0); len(got) != 1 {
			t.Errorf("a client claimed %d tasks of a held shard", len(got))
		}
		w.pass(task.CutWindow / 2)
		_, err := EndCut.Call(ctx, w, first)
		w.must(err)
		none("while another backup holds the shard")
		if _, err := CheckCut.Call(ctx, w, first); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("the check of a released hold: %v", err)
		}
		_, err = CheckCut.Call(ctx, w, second)
		w.must(err)
		w.pass(task.CutWindow/2 - time.Millisecond)
		none("before the hold ends by itself")
		w.pass(2 * time.Millisecond)
		if synctest.Wait(); len(answered) != len(calls) {
			t.Errorf("when the hold has ended, %d of %d calls are answered", len(answered), len(calls))
		}
		if _, err := CheckCut.Call(ctx, w, second); !errors.Is(err, task.ErrUnavailable) {
			t.Errorf("the check of a hold that has ended: %v", err)
		}
	})
}

// A caller that gives up does not wait for the end of a hold. A bounded number of backups holds a shard, and a shard of
// another leader is not held.
func TestHoldLimits(t *testing.T) {
	inWorld(t, func(w *world) {
		cut := OnCut{OnShard: OnShard{one, ns}}
		for i := range waiting.MaxHolds {
			cut.ID = task.ID{byte(i + 1)}
			begun, err := BeginCut.Call(context.Background(), w, cut)
			w.must(err)
			cut.Term = begun.Term
		}
		if _, err := BeginCut.Call(context.Background(), w, OnCut{OnShard: cut.OnShard, ID: task.ID{99}}); !errors.Is(err,
			task.ErrUnavailable) {
			t.Errorf("one hold more than allowed: %v", err)
		}
		if _, err := BeginCut.Call(context.Background(), w, cut); err != nil {
			t.Errorf("a repeat: %v", err)
		}
		for _, term := range []uint64{cut.Term - 1, cut.Term + 1} {
			if _, err := CheckCut.Call(context.Background(), w, OnCut{cut.OnShard, cut.ID, term}); !errors.Is(err, task.ErrUnavailable) {
				t.Errorf("the check of a hold in term %d, now in %d: %v", term, cut.Term, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		err := copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"b": {Version: 1}})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("a caller with a second's time got %v after %v", err, took)
		}
		_, err = BeginCut.Call(context.Background(), w, OnCut{OnShard: OnShard{7, ns}, ID: task.ID{1}})
		var moved *NotLeader
		if !errors.As(err, &moved) {
			t.Errorf("holding a shard of another node: %s", fmt.Sprint(err))
		}
	})
}

// A hold ends with its leader: calls that wait for it do not wait on a replica that will never hear of its end.
func TestHoldEndsWithItsLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		stop := w.addShard(two)
		w.pass(5 * time.Second)
		on := OnShard{two, ns}
		_, err := BeginCut.Call(ctx, w, OnCut{OnShard: on, ID: task.ID{1}})
		w.must(err)
		answered := make(chan error, 2)
		go func() { _, err := KeysUntil.Call(ctx, w, OnQueue{on, "a"}); answered <- err }()
		go func() {
			answered <- copyQueues(ctx, w.Broker, two, map[string]task.QueueConfig{"b": {Version: 1}})
		}()
		if synctest.Wait(); len(answered) > 0 {
			t.Errorf("a held shard answered %v", <-answered)
		}
		stop()
		if synctest.Wait(); len(answered) != 2 {
			t.Errorf("when the leader has stopped, %d of 2 calls are answered", len(answered))
		}
		w.pass(task.CutWindow)
	})
}
