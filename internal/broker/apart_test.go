package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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

// A shard whose rows are spoilt, those of one table at a time, goes on: leases end, delays, retries and schedules of
// other queues are on time, and messages to other shards are delivered. Nothing panics a node.
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
				apart := slices.DeleteFunc(problems, func(p string) bool { return !strings.Contains(p, "was set apart") })
				if err != nil || len(apart) == 0 || strings.HasSuffix(apart[0], "(<nil>)") {
					t.Errorf("check reports what was set apart as %q, %v", apart, err)
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
	for typ, want := range map[string]string{"lease": "ready", "retry": "ready", "parent": "succeeded", "dies": "dead", "ready": "ready",
		"delayed": "ready", "expires": "discarded", "tick": "ready"} {
		if states[typ] != want {
			w.t.Errorf("with damaged rows of table %s, the task %q of another queue is %q, want %q", damaged, typ, states[typ], want)
		}
	}
}

// mustNameApart checks that the log names each row that was set apart, that the table has it, and that the status of
// its namespace counts it.
func (w *world) mustNameApart() {
	w.t.Helper()
	r, err := w.replica(one)
	w.must(err)
	n, _, err := read(context.Background(), r, func(from store.Reader) (map[string]int64, error) { return schema.CountApart(from, 0), nil })
	w.must(err)
	if lines := int64(strings.Count(w.log.String(), "was set apart")); n[ns] < 3 || lines != n[ns] {
		w.t.Errorf("%v rows are set apart, and the log names %d", n, lines)
	}
	if status := w.status(0); status.Apart != n[ns] {
		w.t.Errorf("%v rows are set apart, and the status counts %d", n, status.Apart)
	}
}

// A claim that comes upon a task which can't be read, at once or while it waits, sets the task's place in its lane apart and goes on.
func TestClaimOfDamagedTask(t *testing.T) {
	for _, tab := range []byte{schema.TableExec, schema.TableEnvelope, schema.TableReady} {
		for what, spoil := range damages {
			if tab == schema.TableEnvelope && what == "truncated" {
				continue // that is an envelope without a payload
			}
			for _, key := range []string{"", "k"} {
				for _, waits := range []bool{false, true} {
					t.Run(fmt.Sprintf("table %c, %s, key %q, waiting %t", tab, what, key, waits), func(t *testing.T) {
						inWorld(t, func(w *world) { w.claimAround(task.Spec{Queue: "a", Key: key}, tab, spoil, waits) })
					})
				}
			}
		}
	}
}

// claimAround claims the other tasks of a lane in which one is spoilt.
func (w *world) claimAround(spec task.Spec, tab byte, spoil func([]byte) []byte, waits bool) {
	ctx := context.Background()
	r, err := w.replica(one)
	w.must(err)
	paused := func(version uint64, on bool) {
		w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"a": {Version: version, Settings: task.DefaultSettings(),
			Paused: on}}))
	}
	ids := w.enqueue(spec, spec, spec)
	paused(2, waits)
	bad := ids[1]
	if tab != schema.TableReady && spec.Key != "" {
		bad = ids[0] // it is in the row of its lane
	}
	w.spoilTask(tab, "a", bad, spoil)
	c := call("a")
	c.Max = 3
	claimed := w.claim(ctx, c, time.Hour)
	if waits {
		w.pass(time.Second)
		paused(3, false)
	}
	got := receive(w.t, "the answer to the claim", claimed)
	if more := <-w.claim(ctx, c, 0); len(more) > 0 { // the waiting claim may have taken those before the damaged one
		got = append(got, more...)
	}
	if len(got) != 2 || slices.ContainsFunc(got, func(c Claimed) bool { return c.ID == bad }) {
		w.t.Errorf("claimed %d tasks, want the two others", len(got))
	}
	n, _, err := read(ctx, r, func(from store.Reader) (map[string]int64, error) { return schema.CountApart(from, 0), nil })
	if w.must(err); n[ns] != 1 || !strings.Contains(w.log.String(), "was set apart") {
		w.t.Errorf("%d rows are set apart, want one, which the log names: %s", n[ns], w.log)
	}
	w.enqueue(spec, spec)
	err = operateTask(ctx, w.Broker, Cancel, bad) // it is in no lane, and must not leave one
	if got := <-w.claim(ctx, c, 0); err == nil || len(got) != 2 {
		w.t.Errorf("the cancel returned %v; then claimed %v, want the next two tasks", err, got)
	}
	x, _, err := read(ctx, r, func(from store.Reader) (x *schema.Exec, _ error) {
		_ = schema.Catch(func() { x, _ = schema.ReadExec(from, ns, bad) })
		return x, nil
	})
	if w.must(err); tab == schema.TableEnvelope && (x == nil || x.State != task.Discarded || x.Reason != task.ReasonUnreadable) {
		w.t.Errorf("the task is %+v, want that it is discarded", x)
	}
	problems, _, err := w.Check(ctx, one)
	w.must(err)
	for _, p := range problems {
		if strings.Contains(p, " counts ") {
			w.t.Errorf("check reports %s", p)
		}
	}
}

// A row that is missing is damage, not a refusal: the caller, or the sender of a message, must not take it for an answer.
func TestDamageIsNoRefusal(t *testing.T) {
	inWorld(t, func(w *world) {
		r, err := w.replica(one)
		w.must(err)
		missing := func(round *engine.Round) (*schema.Exec, error) {
			return schema.Must(round.Exec(ns, task.NewID(one, 1, 1))), nil
		}
		_, _, err = change(context.Background(), r, missing)
		var panicked *PanicError
		if refusal, refused := task.AsError(err); refused || !errors.As(err, &panicked) {
			t.Errorf("a call that misses a row was refused with %+v: %v", refusal, err)
		}
	})
}

// A claim of several tasks of one key ends before one that can't be read.
func TestRunEndsBeforeDamagedTask(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		settings := task.DefaultSettings()
		settings.KeyOrder = task.KeyOrderStrict
		w.must(copyQueues(ctx, w.Broker, one, map[string]task.QueueConfig{"a": {Version: 2, Settings: settings}}))
		spec := task.Spec{Queue: "a", Key: "k"}
		ids := w.enqueue(spec, spec, spec, spec)
		w.spoilTask(schema.TableExec, "a", ids[2], damages["other bytes"])
		c := call("a")
		c.Max, c.Runs = 4, true
		if got := <-w.claim(ctx, c, 0); len(got) != 2 {
			t.Errorf("claimed %v, want those before the damaged one", got)
		}
	})
}

// spoilTask spoils a row of a ready task.
func (w *world) spoilTask(tab byte, queue string, id task.ID, spoil func([]byte) []byte) {
	w.t.Helper()
	r, err := w.replica(one)
	w.must(err)
	_, _, err = change(context.Background(), r, func(round *engine.Round) (struct{}, error) {
		tx := round.Tx()
		key := schema.IDKey(ns, tab, id)
		prefix := schema.QueueKey(ns, schema.TableReady, queue)
		tx.Scan(prefix, schema.After(prefix), func(k, row []byte) bool {
			if its, _, _ := schema.DecodeReady(row); tab == schema.TableReady && its == id {
				key = bytes.Clone(k)
			}
			return true
		})
		row, _ := tx.Get(key)
		tx.Set(key, spoil(row))
		return struct{}{}, nil
	})
	w.must(err)
	_, _, _ = change(context.Background(), r, func(*engine.Round) (struct{}, error) { panic("the leader's memory is gone") })
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
			out, err := StartOperation.Call(ctx, w, NewOperation{OnShard: OnShard{one, ns}, Spec: OperationSpec{Action: task.Cancel,
				Filter: ready("b"), Rate: 0.001, Request: task.NewID(one, 1, uint64(i))}})
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
		if got := w.archived("a"); len(got) != 2 {
			t.Errorf("%d dead letters were archived, want all but the damaged one", len(got))
		}
		n, _, err := read(ctx, r, func(from store.Reader) (map[string]int64, error) { return schema.CountApart(from, 0), nil })
		if w.must(err); n[ns] != 2 {
			t.Errorf("%d rows are set apart, want the dead letter and the operation", n[ns])
		}
		if list, err := ListOperations.Call(ctx, w, OperationList{OnShard: OnShard{one, ns}, Limit: 10}); err != nil ||
			len(list.Page.Operations) != 1 {
			t.Errorf("ListOperations = %+v, %v, want one", list, err)
		}
	})
}

// A damaged row of a ready task deep in a long queue does not end the replica that reads tasks ahead, and no claim fails on it.
func TestReadAheadOfDamagedRow(t *testing.T) {
	for _, tab := range []byte{schema.TableReady, schema.TableExec, schema.TableEnvelope} {
		inWorld(t, func(w *world) {
			ids := w.enqueue(make([]task.Spec, 2000)...)
			w.spoilTask(tab, "default", ids[900], damages["truncated"])
			c, got := call("default"), 0
			c.Max = 50
			for n := 1; n > 0; got += n {
				n = len(<-w.claim(context.Background(), c, 0))
			}
			if got != len(ids)-1 {
				t.Errorf("with a damaged row of table %c, %d of %d tasks were claimed", tab, got, len(ids)-1)
			}
		})
	}
}
