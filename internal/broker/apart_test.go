package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// damages are the ways in which a row can be spoilt.
var damages = map[string]func(row []byte) []byte{
	"other bytes":     func(row []byte) []byte { return bytes.Repeat([]byte{0xa7}, max(len(row), 5)) },
	"truncated":       func(row []byte) []byte { return append([]byte(nil), row[:len(row)/2]...) },
	"another version": func(row []byte) []byte { return append([]byte{9}, row[min(len(row), 1):]...) },
	"nothing":         func([]byte) []byte { return nil },
}

// A shard whose rows are spoilt, those of one table at a time, goes on: leases end, delays, retries and schedules of other queues are on time, and
// messages to other shards are delivered. Nothing panics a node.
func TestDamagedRowsStopNothing(t *testing.T) {
	const tables = "esircalLwdkquJjgCybQnSBpPhDofGMOmWNztv"
	for what, spoil := range damages {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				ctx := context.Background()
				defer w.addShard(two)()
				w.pass(5 * time.Second)
				for i, tab := range []byte(tables) {
					bad, good := fmt.Sprintf("bad%d", i), fmt.Sprintf("good%d", i)
					w.populate(bad)
					w.damage(tab, bad, spoil)
					w.populate(good)
					w.pass(3 * time.Minute)
					w.mustGoOn(string(tab), good)
				}
				w.pass(2 * time.Hour) // until whatever else is due has been
				last := "last"
				w.populate(last)
				w.pass(3 * time.Minute)
				w.mustGoOn("all", last)
				problems, _, err := w.Check(ctx, one)
				if err != nil || !strings.Contains(strings.Join(problems, "\n"), "was set apart") {
					t.Errorf("check does not report what was set apart: %q, %v", problems, err)
				}
				w.mustNameApart()
			})
		})
	}
}

// populate gives a queue tasks in various states, a schedule, a group and a message on its way.
func (w *world) populate(queue string) {
	w.t.Helper()
	ctx := context.Background()
	specs := []task.Spec{
		{Queue: queue, Type: "lease", Timeout: time.Minute, Priority: task.High},
		{Queue: queue, Type: "retry", Priority: task.High},
		{Queue: queue, Type: "parent", Priority: task.High, Then: []task.Spec{{Queue: "far", Type: "next", Key: queue}}},
		{Queue: queue, Type: "dies", Priority: task.High, MaxAttempts: 1},
		{Queue: queue, Type: "ready", Key: "k", IdempotencyKey: queue, Unique: &task.Unique{Key: "u"}},
		{Queue: queue, Type: "delayed", Delay: time.Minute},
		{Queue: queue, Type: "expires", Delay: time.Hour, ExpiresIn: time.Minute},
	}
	for i := range specs {
		specs[i].Fill()
	}
	got, _, err := w.Enqueue(ctx, one, ns, specs)
	w.must(err)
	for i := range got {
		w.must(got[i].Err)
	}
	c := call(queue)
	c.Max = 4
	c.Types = []string{"lease", "retry", "parent", "dies"}
	for _, t := range <-w.claim(ctx, c, 0) {
		switch t.Type {
		case "retry":
			w.settle(Settle{Verb: Fail, Hold: hold(t), Fail: Failing{Failure: Failure{Message: "no"}}})
		case "dies":
			w.settle(Settle{Verb: Fail, Hold: hold(t), Fail: Failing{Action: FailDead, Failure: Failure{Message: "no"}}})
		case "parent":
			w.settle(Settle{Verb: Ack, Hold: hold(t)})
		}
	}
	g := task.Group{Tasks: []task.Spec{{Queue: queue, Type: "member", Delay: time.Hour}}}
	g.Fill()
	_, _, err = w.MakeGroup(ctx, one, ns, g, []string{queue})
	w.must(err)
	s := task.Schedule{Name: queue, Every: time.Minute, Task: task.Spec{Queue: queue, Type: "tick"}}
	s.Fill()
	_, err = PutSchedule.Call(ctx, w, SchedulePutCall{OnShard: OnShard{one, ns}, Put: SchedulePut{Schedule: s, Version: 1}})
	w.must(err)
}

// damage spoils the rows of a table that are of a queue.
func (w *world) damage(tab byte, queue string, spoil func([]byte) []byte) {
	w.t.Helper()
	r, err := w.replica(one)
	w.must(err)
	_, _, err = change(context.Background(), r, func(round *engine.Round) (struct{}, error) {
		tx := round.Tx()
		mine := map[task.ID]bool{}
		prefix := schema.QueueKey(ns, schema.TableListed, queue)
		tx.Scan(prefix, schema.After(prefix), func(k, _ []byte) bool { mine[schema.IDAt(k)] = true; return true })
		rows := map[string][]byte{}
		tx.Scan([]byte{tab}, []byte{tab + 1}, func(k, v []byte) bool {
			if bytes.Contains(k, []byte(queue+"\x00")) || bytes.HasSuffix(k, []byte(queue)) || len(k) >= 16 && mine[schema.IDAt(k)] {
				rows[string(k)] = spoil(v)
			}
			return true
		})
		for k, v := range rows {
			tx.Set([]byte(k), v)
		}
		return struct{}{}, nil
	})
	w.must(err)
	// After a panic the leader's memory is gone, and the rows are read again.
	if _, _, err = change(context.Background(), r, func(*engine.Round) (struct{}, error) { panic("on purpose") }); err == nil {
		w.t.Error("a call that panics was answered")
	}
}

// mustGoOn checks that time has passed for the tasks of a queue.
func (w *world) mustGoOn(damaged, queue string) {
	w.t.Helper()
	r, err := w.replica(one)
	w.must(err)
	states, _, err := read(context.Background(), r, func(from store.Reader) (map[string]string, error) {
		states := map[string]string{}
		lo, hi := schema.TableBounds(ns, schema.TableExec)
		from.Scan(lo, hi, func(_, row []byte) bool {
			if x, err := schema.DecodeExec(row); err == nil && x.Queue == queue {
				states[x.Type] = x.State.String()
			}
			return true
		})
		return states, nil
	})
	w.must(err)
	for typ, want := range map[string]string{"lease": "ready", "retry": "ready", "parent": "succeeded", "dies": "dead", "ready": "ready", "delayed": "ready", "expires": "discarded", "tick": "ready"} {
		if states[typ] != want {
			w.t.Errorf("with damaged rows of table %s, the task %q of another queue is %q, want %q", damaged, typ, states[typ], want)
		}
	}
}

// mustNameApart checks that the log names each row that was set apart, and that the table has it.
func (w *world) mustNameApart() {
	w.t.Helper()
	r, err := w.replica(one)
	w.must(err)
	n, _, err := read(context.Background(), r, func(from store.Reader) (map[string]int64, error) { return schema.CountApart(from, 0), nil })
	w.must(err)
	if lines := int64(strings.Count(w.log.String(), "was set apart")); n[ns] < 3 || lines != n[ns] {
		w.t.Errorf("%v rows are set apart, and the log names %d", n, lines)
	}
}

// A waiting claim that comes upon a row which can't be read fails, and the round that served it runs again without it.
func TestWaitingClaimOfDamagedTask(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		r, err := w.replica(one)
		w.must(err)
		id := w.enqueue(task.Spec{Queue: "a"})[0]
		w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"a": {Version: 2, Settings: task.DefaultSettings(), Paused: true}}))
		_, _, err = change(ctx, r, func(round *engine.Round) (struct{}, error) {
			round.Tx().Set(schema.IDKey(ns, schema.TableExec, id), []byte{9})
			return struct{}{}, nil
		})
		w.must(err)
		_, _, _ = change(ctx, r, func(*engine.Round) (struct{}, error) { panic("the leader's memory is gone") })
		failed := make(chan error, 1)
		go func() {
			_, _, err := w.Claim(ctx, one, call("a"), time.Hour)
			failed <- err
		}()
		w.pass(time.Second)
		w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"a": {Version: 3, Settings: task.DefaultSettings()}}))
		if err := receive(t, "the answer to the claim", failed); err == nil || !strings.Contains(err.Error(), "damaged state") {
			t.Errorf("the claim returned %v, want that the state is damaged", err)
		}
		w.enqueue(task.Spec{Queue: "b"})
		if got := <-w.claim(ctx, call("b"), 0); len(got) != 1 {
			t.Errorf("a claim of another queue got %v", got)
		}
	})
}

// A message that its shard can't handle stays behind alone, and one that this shard can't read is set apart.
func TestMessageThatFailsIsAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		stop := w.addShard(two)
		defer stop()
		w.pass(5 * time.Second)
		fails := func(m *OutboxMessage) error {
			if m.Spec.Key == "1" {
				return errors.New("call panicked: on purpose")
			}
			return nil
		}
		w.onTheWay.Store(&fails)
		w.together.Store(true)
		w.enqueue(followed(5)...)
		w.ackAll("a")
		w.pass(time.Minute)
		c := ClaimCall{Namespace: ns, Max: 100, MaxBytes: 1 << 20, Worker: "w", Queues: []Share{{Queue: "far"}}}
		got, _, err := w.Claim(context.Background(), two, c, 0)
		if w.must(err); len(got) != 4 {
			t.Errorf("%d messages arrived, want all but one", len(got))
		}
	})
}

// A dead letter and an operation that can't be read stop neither the archive nor the operations: each is set apart.
func TestDamageInLoops(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		r, err := w.replica(one)
		w.must(err)
		keep := time.Hour
		var dead []task.ID
		for range 3 {
			dead = append(dead, w.deadLetter(task.Spec{Queue: "a", Retention: &keep}, Failing{Action: FailDead}))
		}
		var running []task.ID
		for i := range 2 {
			out, err := StartOperation.Call(ctx, w, NewOperation{OnShard{one, ns}, OperationSpec{Action: task.Cancel, Filter: ready("b"), Rate: 0.001, Request: task.NewID(one, 1, uint64(i))}})
			w.must(err)
			running = append(running, out.View.ID)
		}
		_, _, err = change(ctx, r, func(round *engine.Round) (struct{}, error) {
			round.Tx().Set(schema.IDKey(ns, schema.TableEnvelope, dead[1]), []byte{9})
			round.Tx().Set(schema.IDKey(ns, schema.TableOperation, running[0]), []byte{9})
			return struct{}{}, nil
		})
		w.must(err)
		_, _, _ = change(ctx, r, func(*engine.Round) (struct{}, error) { panic("the leader's memory is gone") })
		w.pass(2 * time.Hour)
		if got, _, _, err := w.Archived(ns, "a", "", 10); err != nil || len(got) != 2 {
			t.Errorf("%d dead letters were archived, %v, want all but the damaged one", len(got), err)
		}
		n, _, err := read(ctx, r, func(from store.Reader) (map[string]int64, error) { return schema.CountApart(from, 0), nil })
		if w.must(err); n[ns] != 2 {
			t.Errorf("%d rows are set apart, want the dead letter and the operation", n[ns])
		}
		if list, err := ListOperations.Call(ctx, w, OperationList{OnShard: OnShard{one, ns}, Limit: 10}); err != nil || len(list.Page.Operations) != 1 {
			t.Errorf("ListOperations = %+v, %v, want one", list, err)
		}
	})
}
