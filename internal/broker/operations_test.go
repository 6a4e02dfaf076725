package broker

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/broker/waiting"
	"github.com/pawlq/pawl/internal/task"
)

// ready returns a filter for the ready tasks of a queue.
func ready(queue string) Filter { return Filter{Queue: queue, States: []task.State{task.Ready}} }

// startOperation starts an operation.
func (w *world) startOperation(spec OperationSpec) task.ID {
	w.t.Helper()
	spec.Request = task.NewID(one, time.Now().UnixMilli(), uint64(time.Now().UnixNano())) // #nosec G115 -- after 1970
	out, err := StartOperation.Call(context.Background(), w, NewOperation{OnShard: OnShard{one, ns}, Spec: spec})
	w.must(err)
	if out.View.Operation == nil || out.View.State != OperationRunning || out.At.Index == 0 {
		w.t.Errorf("StartOperation = %+v, want a running operation", out)
	}
	return out.View.ID
}

// waitUntilStopped waits until an operation is no longer running.
func (w *world) waitUntilStopped(id task.ID) OperationView {
	w.t.Helper()
	out, err := ShowOperation.Call(context.Background(), w, OperationWait{OnOperation{ns, id}, time.Hour})
	w.must(err)
	if out.View.State == OperationRunning || out.View.WaitsFor != "" || out.At.Index == 0 {
		w.t.Errorf("a stopped operation is %s and waits for %q", out.View.State, out.View.WaitsFor)
	}
	return out.View
}

// showOperation returns an operation.
func (w *world) showOperation(id task.ID) OperationView {
	w.t.Helper()
	out, err := ShowOperation.Call(context.Background(), w, OperationWait{OnOperation: OnOperation{ns, id}})
	w.must(err)
	return out.View
}

// An operation goes through all shards in steps of bounded size, as fast as they answer, and pauses briefly after each.
func TestOperationGoesThroughAllShards(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		w.enqueue(specsOf(2*stepChunk+10, "a")...)
		w.enqueueFar(30)
		var mu sync.Mutex
		var steps []string
		saw := func(shard uint32, c StepCall) error {
			mu.Lock()
			defer mu.Unlock()
			if steps = append(steps, strings.Repeat("I", int(shard))); c.Count != stepChunk || c.Action != task.Cancel {
				t.Errorf("step %d ran as %+v, want a cancel of stepChunk tasks", len(steps), c)
			}
			return nil
		}
		w.onStep.Store(&saw)
		began := time.Now()
		done := w.waitUntilStopped(w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a")}))
		if took := time.Since(began); done.State.String() != "done" || done.Matched != 2*stepChunk+40 || done.Done != done.Matched ||
			took >= maxStepPause {
			t.Errorf("the operation is %s after %v with %+v", done.State, took, done.Tally)
		}
		if want := []string{"I", "I", "I", "II"}; !slices.Equal(steps, want) {
			t.Errorf("the steps ran in shards %q, want %q", steps, want)
		}
		synctest.Wait() // a caller waiting for the end may run on before the line is written
		if log := w.log.String(); strings.Count(log, "operation done") != 1 || strings.Contains(log, "operation running") ||
			!strings.Contains(log, "matched=440") {
			t.Errorf("want one line about the finished operation, which matched 440 tasks, in the log: %s", log)
		}
		began = time.Now()
		if again := w.waitUntilStopped(done.ID); again.Done != done.Done || time.Since(began) > 0 {
			t.Errorf("a second wait for the operation took %v and found %d tasks done", time.Since(began), again.Done)
		}
		page, err := ListOperations.Call(context.Background(), w, OperationList{OnShard: OnShard{one, ns}, Limit: 10})
		if err != nil || len(page.Page.Operations) != 1 || page.At.Index == 0 {
			t.Errorf("ListOperations = %+v, %v, want the one operation", page, err)
		}
	})
}

// specsOf returns n specs of tasks for a queue.
func specsOf(n int, queue string) []task.Spec {
	return slices.Repeat([]task.Spec{{Queue: queue}}, n)
}

// enqueueFar adds n tasks to the part of queue "a" in another shard.
func (w *world) enqueueFar(n int) {
	far := specsOf(n, "a")
	for i := range far {
		far[i].Type = "job"
		far[i].Fill()
	}
	_, _, err := w.Enqueue(context.Background(), two, ns, far)
	w.must(err)
}

// An operation keeps to its rate, and can be paused, resumed and aborted while it waits.
func TestOperationIsChangedWhileItWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		w.enqueue(specsOf(20, "a")...)
		began := time.Now()
		done := w.waitUntilStopped(w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a"), Rate: 10}))
		if took := time.Since(began); done.Done != 20 || took < 1900*time.Millisecond || took > 2300*time.Millisecond {
			t.Errorf("at a rate of 10 per second, 20 tasks took %v: %+v", took, done.Tally)
		}
		w.enqueue(specsOf(20, "a")...)
		id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a"), Rate: 0.01}) // one per 100 s
		for _, c := range []struct {
			what string
			do   func(q OperationOrder) (Shown[OperationView], error)
			want string
		}{
			{"pause", func(q OperationOrder) (Shown[OperationView], error) { return PauseOperation.Call(ctx, w, q) }, "paused"},
			{"resume", func(q OperationOrder) (Shown[OperationView], error) { return ResumeOperation.Call(ctx, w, q) }, "running"},
			{"abort", func(q OperationOrder) (Shown[OperationView], error) { return AbortOperation.Call(ctx, w, q) }, "aborted"},
		} {
			w.pass(150 * time.Second)
			began := time.Now()
			out, err := c.do(OperationOrder{OnOperation: OnOperation{ns, id}})
			if err != nil || out.View.Operation == nil || out.At.Index == 0 {
				t.Fatalf("%s: %+v, %v", c.what, out, err)
			}
			now := w.showOperation(id)
			if c.want != "running" {
				now = w.waitUntilStopped(id)
			}
			if now.State.String() != c.want || time.Since(began) > time.Second {
				t.Errorf("%s: the operation is %s after %v", c.what, now.State, time.Since(began))
			}
		}
		if now := w.showOperation(id); now.Done != 2 {
			t.Errorf("the operation has done %d tasks, want one before the pause and one after it", now.Done)
		}
		synctest.Wait() // the run ends after its state says so
		r, err := w.replica(one)
		w.must(err)
		r.operations.mu.Lock()
		defer r.operations.mu.Unlock()
		if len(r.operations.runs) != 0 {
			t.Errorf("%d operations are still running", len(r.operations.runs))
		}
	})
}

// An unanswered step is repeated at increasing intervals, and the operation reports what it waits for; a step refused permanently
// ends it.
func TestOperationRetriesSteps(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(specsOf(20, "a")...)
		tries := 0
		fails := func(uint32, StepCall) error { tries++; return task.Unavailable(time.Second, "the shard has no leader") }
		w.onStep.Store(&fails)
		id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a")})
		w.pass(time.Minute)
		if now := w.showOperation(id); now.State != OperationRunning || now.WaitsFor != "the shard has no leader" ||
			tries < 15 || tries > 20 {
			t.Errorf("after %d tries the operation is %s and waits for %q", tries, now.State, now.WaitsFor)
		}
		w.onStep.Store(nil)
		if done := w.waitUntilStopped(id); done.Done != 20 {
			t.Errorf("after the shard had answered, the operation finished with %+v, want 20 done", done.Tally)
		}
		bad := func(uint32, StepCall) error { return task.Invalid("filter", "is one of a later release") }
		w.onStep.Store(&bad)
		failed := w.waitUntilStopped(w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a")}))
		if failed.State != OperationFailed || !strings.Contains(failed.Why, "later release") {
			t.Errorf("after a permanent refusal the operation is %s: %q", failed.State, failed.Why)
		}
	})
}

// hang makes a shard hang for the steps of operations, before it does them or after. The returned function ends that.
func (w *world) hang(shard uint32, after bool) (heal func()) {
	var hangs atomic.Bool
	hangs.Store(true)
	run := w.cfg.RunStep
	w.cfg.RunStep = func(ctx context.Context, id uint32, ns string, c StepCall) (StepAnswer, error) {
		if id != shard || !hangs.Load() {
			return run(ctx, id, ns, c)
		}
		if after {
			_, err := run(ctx, id, ns, c)
			w.must(err)
		}
		<-ctx.Done()
		return StepAnswer{}, ctx.Err()
	}
	return func() { hangs.Store(false) }
}

// remote makes the steps of operations calls of another node: they go on when the caller no longer waits.
func (w *world) remote() {
	run := w.cfg.RunStep
	type outcome struct {
		StepAnswer
		error
	}
	w.cfg.RunStep = func(ctx context.Context, id uint32, ns string, c StepCall) (StepAnswer, error) {
		done := make(chan outcome, 1)
		go func() {
			a, err := run(ctx, id, ns, c)
			done <- outcome{a, err}
		}()
		select {
		case o := <-done:
			return o.StepAnswer, o.error
		case <-ctx.Done():
			return StepAnswer{}, ctx.Err()
		}
	}
}

// While a shard hangs, an operation goes on in the next one, unless it has a maximum; if it is to be paused, it waits for what that shard
// has done.
func TestOperationPassesAShardThatHangs(t *testing.T) {
	for _, c := range []struct {
		after bool
		max   int64
		far   int64 // tasks that are done meanwhile
		early int64 // tasks that are done when it no longer runs: paused, or done if nothing is left
	}{{false, 0, 7, 7}, {true, 0, 7, 10}, {false, 100, 0, 0}} {
		inWorld(t, func(w *world) {
			defer w.addShard(two)()
			w.pass(5 * time.Second)
			w.enqueue(specsOf(3, "a")...)
			w.enqueueFar(7)
			heal := w.hang(one, c.after)
			id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a"), Max: c.max})
			w.pass(stepPatience + 2*stepRetry)
			if now := w.showOperation(id); now.State != OperationRunning || now.Done != c.far || now.Shard != one {
				t.Errorf("%+v: the operation is %s in shard %d after %d tasks", c, now.State, now.Shard, now.Done)
			}
			_, err := PauseOperation.Call(context.Background(), w, OperationOrder{OnOperation: OnOperation{ns, id}})
			w.must(err)
			w.pass(time.Hour)
			if now := w.showOperation(id); now.State != OperationRunning || now.Stopping != OperationPaused || c.max == 0 &&
				now.WaitsFor != "shard 1 did not answer in time" {
				t.Errorf("%+v: the operation is %s, to be %s, and waits for %q", c, now.State, now.Stopping, now.WaitsFor)
			}
			heal()
			if c.max > 0 { // nothing asks the step again before the call ends
				return
			}
			began := time.Now()
			if now := w.waitUntilStopped(id); (now.State == OperationPaused) == c.after || now.Done != c.early ||
				time.Since(began) > stepLongPatience+stepLongRetry {
				t.Errorf("%+v: the operation is %s after %v and %d tasks", c, now.State, time.Since(began), now.Done)
			}
			if !c.after {
				_, err = ResumeOperation.Call(context.Background(), w, OperationOrder{OnOperation: OnOperation{ns, id}})
				w.must(err)
			}
			if now := w.waitUntilStopped(id); now.State.String() != "done" || now.Done != 10 || now.Matched != 10 {
				t.Errorf("%+v: the operation is %s with %+v", c, now.State, now.Tally)
			}
		})
	}
}

// An operation returns to a shard that answers again, even while another hangs and the system shard can't say whether there is one more.
func TestOperationReturnsWithoutTheSystemShard(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		w.enqueue(specsOf(stepChunk+3, "a")...)
		heal, healFar, healSystem, hasShard := w.hang(one, false), w.hang(two, false), make(chan struct{}), w.cfg.HasShard
		w.cfg.HasShard = func(ctx context.Context, id uint32) (bool, error) {
			if id > two {
				select {
				case <-ctx.Done():
					return false, ctx.Err()
				case <-healSystem:
				}
			}
			return hasShard(ctx, id)
		}
		id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a")})
		w.pass(stepPatience + 2*stepRetry)
		heal()
		w.pass(time.Minute)
		if now := w.showOperation(id); now.Done != stepChunk || now.State != OperationRunning {
			t.Errorf("the operation is %s in shard %d after %d tasks", now.State, now.Shard, now.Done)
		}
		healFar()
		w.pass(time.Minute)
		if now := w.showOperation(id); now.Done != stepChunk || now.State != OperationRunning ||
			now.WaitsFor != "the system shard did not answer in time" {
			t.Errorf("before anybody can tell whether there is another shard, the operation is %s after %d tasks, and waits for %q",
				now.State, now.Done, now.WaitsFor)
		}
		close(healSystem)
		if done := w.waitUntilStopped(id); done.State.String() != "done" || done.Done != stepChunk+3 {
			t.Errorf("the operation is %s with %+v", done.State, done.Tally)
		}
	})
}

// A shard whose steps take longer than an operation's patience is given more time, and what an unanswered step may have done counts against
// the rate.
func TestOperationInASlowShard(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		w.enqueue(specsOf(3, "a")...)
		run := w.cfg.RunStep
		var at []time.Time // when tasks were taken
		w.cfg.RunStep = func(ctx context.Context, id uint32, ns string, c StepCall) (StepAnswer, error) {
			a, err := run(ctx, id, ns, c)
			if a.Matched > 0 && (len(at) == 0 || id == two) {
				at = append(at, time.Now())
			}
			if sleep(ctx, 5*stepPatience/2); id == one && ctx.Err() != nil {
				return StepAnswer{}, ctx.Err()
			}
			return a, err
		}
		w.enqueueFar(1)
		began := time.Now()
		done := w.waitUntilStopped(w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a"), Rate: 0.1}))
		if done.Done != 4 || time.Since(began) > 2*time.Minute {
			t.Errorf("the operation is %s after %v with %+v", done.State, time.Since(began), done.Tally)
		}
		if len(at) != 2 || at[1].Sub(at[0]) < 9*time.Second {
			t.Errorf("tasks were taken at %v", at)
		}
	})
}

// A shard that hung for long is passed at once when it hangs again after it has answered.
func TestOperationForgetsThatAShardWasLate(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		w.enqueue(specsOf(200, "a")...)
		w.enqueueFar(200)
		var hangs [3]atomic.Bool // by shard
		run := w.cfg.RunStep
		w.cfg.RunStep = func(ctx context.Context, id uint32, ns string, c StepCall) (StepAnswer, error) {
			if hangs[id].Load() {
				<-ctx.Done()
				return StepAnswer{}, ctx.Err()
			}
			return run(ctx, id, ns, c)
		}
		hangs[one].Store(true)
		hangs[two].Store(true)
		id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a"), Rate: 1})
		w.pass(10 * time.Minute)
		hangs[one].Store(false)
		hangs[two].Store(false)
		w.pass(2*stepLongPatience + 10*time.Second)
		now := w.showOperation(id)
		if now.State != OperationRunning || now.Done == 0 {
			t.Errorf("the operation is %s after %d tasks", now.State, now.Done)
		}
		hangs[now.Shard].Store(true)
		w.pass(stepPatience + 15*time.Second)
		if then := w.showOperation(id); then.Shard == now.Shard || then.Done < now.Done+5 {
			t.Errorf("the operation is in shard %d after %d tasks, and was in shard %d after %d when that hung", then.Shard, then.Done,
				now.Shard, now.Done)
		}
		hangs[now.Shard].Store(false)
		if done := w.waitUntilStopped(id); done.State.String() != "done" || done.Done != 400 {
			t.Errorf("the operation is %s with %+v", done.State, done.Tally)
		}
	})
}

// A slow shard is not passed at each step while another hangs, although it answers at once when it is asked for the same step again.
func TestOperationInASlowShardBesideOneThatHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		w.enqueue(specsOf(5*stepChunk, "a")...)
		heal, run, asked := w.hang(two, false), w.cfg.RunStep, uint64(0)
		w.cfg.RunStep = func(ctx context.Context, id uint32, ns string, c StepCall) (StepAnswer, error) {
			if id == one && c.Step > asked {
				asked = c.Step
				if sleep(ctx, 5*stepPatience/2); ctx.Err() != nil {
					return StepAnswer{}, ctx.Err()
				}
			}
			return run(ctx, id, ns, c)
		}
		id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a")})
		w.pass(30 * time.Second)
		if now := w.showOperation(id); now.Done != 5*stepChunk {
			t.Errorf("%d tasks are done", now.Done)
		}
		heal()
		w.waitUntilStopped(id)
	})
}

// An operation whose home has an older state than a shard, after a recovery, fails: it does not know what was done.
func TestOperationFailsBehindAShard(t *testing.T) {
	inWorld(t, func(w *world) {
		w.enqueue(specsOf(3, "a")...)
		id := w.startOperation(OperationSpec{Action: task.Cancel, Filter: ready("a"), Rate: 0.1})
		_, err := w.step(context.Background(), one, ns, StepCall{Operation: id, Step: 5, Action: task.Cancel, Filter: ready("a"), Count: 1})
		w.must(err)
		if failed := w.waitUntilStopped(id); failed.State != OperationFailed || !strings.Contains(failed.Why, "later step") {
			t.Errorf("the operation is %s: %s", failed.State, failed.Why)
		}
	})
}

// A dead letter is archived once, although the archive takes longer than the operation waits for an answer.
func TestOperationWithASlowArchive(t *testing.T) {
	inWorld(t, func(w *world) {
		w.deadLetter(task.Spec{Queue: "a"}, Failing{Action: FailDead})
		w.dead.slow.Store(int64(5 * stepPatience / 2))
		w.remote()
		began := time.Now()
		done := w.waitUntilStopped(w.startOperation(OperationSpec{Action: task.Discard, Filter: Filter{Queue: "a",
			States: []task.State{task.Dead}}}))
		if done.State.String() != "done" || done.Done != 1 || time.Since(began) > time.Minute {
			t.Errorf("the operation is %s after %v with %+v", done.State, time.Since(began), done.Tally)
		}
		w.pass(time.Minute)
		if tasks := w.archived("a"); len(tasks) != 1 {
			t.Errorf("%d dead letters are in the archive", len(tasks))
		}
	})
}

// A step that nobody waits for any more is over when the replica has been removed, or the broker stopped: afterwards it must not write to
// the archive, which is closed then. A caller that still waits learns that the shard is elsewhere, and no step begins.
func TestStepEndsWithItsReplica(t *testing.T) {
	for what, end := range map[string]func(w *world){"removed": func(w *world) { w.Remove(one) }, "stopped": func(w *world) { w.Stop() }} {
		inWorld(t, func(w *world) {
			w.deadLetter(task.Spec{Queue: "a"}, Failing{Action: FailDead})
			w.dead.slow.Store(int64(10 * time.Second))
			c := StepCall{Operation: task.NewID(one, 1, 1), Step: 1, Action: task.Discard, Filter: Filter{States: []task.State{task.Dead}},
				Count: 10}
			soon, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := w.step(soon, one, ns, c); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: a step with a slow archive: %v", what, err)
			}
			waits := make(chan error, 1)
			go func() {
				_, err := w.step(context.Background(), one, ns, c)
				waits <- err
			}()
			synctest.Wait()
			r, err := w.replica(one)
			w.must(err)
			end(w)
			if tasks := w.archived("a"); len(tasks) != 1 {
				t.Errorf("%s: at the end there are %d dead letters in the archive, want 1", what, len(tasks))
			}
			var notLeader *NotLeader
			if err := <-waits; !errors.As(err, &notLeader) || notLeader.Shard != one {
				t.Errorf("%s: a caller of a step got %v, want NotLeader", what, err)
			}
			if r.enter() {
				t.Errorf("%s: a call begins after the end", what)
			}
		})
	}
}

// A node that never answers when it is asked for a queue does not keep a step from being repeated: the repeats would wait forever.
func TestStepWithoutAnAnswerAboutAQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		w.must(operateTask(context.Background(), w.Broker, Cancel, w.enqueue(task.Spec{Queue: "a"})[0]))
		_, err := DropCopy.Call(context.Background(), w, CopyOf{OnQueue{OnShard{one, ns}, "a"}, math.MaxUint64})
		w.must(err)
		ensure, asked := w.cfg.EnsureQueue, 0
		w.cfg.EnsureQueue = func(ctx context.Context, id uint32, ns, queue string) error {
			if asked++; asked == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return ensure(ctx, id, ns, queue)
		}
		id := w.startOperation(OperationSpec{Action: task.Replay, Filter: Filter{Queue: "a", States: []task.State{task.Cancelled}}})
		w.pass(2 * stepLongPatience)
		if done := w.showOperation(id); done.State.String() != "done" || done.Done != 1 {
			t.Errorf("the operation is %s with %+v, and waits for %q", done.State, done.Tally, done.WaitsFor)
		}
	})
}

// An operation waits for the tasks that it moves.
func TestOperationWaitsForMovedTasks(t *testing.T) {
	inWorld(t, func(w *world) {
		defer w.addShard(two)()
		w.pass(5 * time.Second)
		w.enqueue(specsOf(3, "a")...)
		lost := func(*OutboxMessage) error { return errors.New("connection reset") }
		w.onTheWay.Store(&lost)
		hasShard := w.cfg.HasShard
		w.cfg.HasShard = func(ctx context.Context, shard uint32) (bool, error) {
			if w.onTheWay.Load() != nil {
				t.Error("the operation looked for the next shard while tasks from this one were undelivered")
			}
			return hasShard(ctx, shard)
		}
		id := w.startOperation(OperationSpec{Action: task.Move, Filter: ready("a"), ToQueue: "far"})
		w.pass(10 * time.Second)
		if now := w.showOperation(id); now.State != OperationRunning || now.WaitsFor != "tasks are on their way to the other queue" ||
			now.Shard != one || now.Done != 0 {
			t.Errorf("the operation is %s in shard %d, has done %d tasks and waits for %q", now.State, now.Shard, now.Done, now.WaitsFor)
		}
		w.onTheWay.Store(nil)
		began := time.Now()
		if done := w.waitUntilStopped(id); done.Done != 3 || time.Since(began) > 2*waiting.MaxPause {
			t.Errorf("after delivery the operation took %v and finished with %+v, want 3 done", time.Since(began), done.Tally)
		}
		page, err := ListTasks.Call(context.Background(), w, TaskList{OnShard: OnShard{two, ns}, Filter: ready("far"), Limit: 10})
		if err != nil || len(page.Page.Tasks) != 3 {
			t.Errorf("moved tasks in the other shard: %+v, %v, want 3", page, err)
		}
	})
}

// An operation that is resumed while its run ends continues.
func TestChangedAtTheEndOfARun(t *testing.T) {
	var s operationRunner
	id := task.NewID(one, 1, 1)
	run, begun := s.begin(id)
	if !begun {
		t.Fatal("begin did not start a run")
	}
	s.beginRead(run)
	if again, begun := s.begin(id); begun || again != run || len(run.wake) != 1 {
		t.Error("a second begin started another run, or did not wake the first")
	}
	if s.end(id, run) {
		t.Error("the run ended although the operation was resumed after its last read")
	}
	s.beginRead(run)
	if !s.end(id, run) {
		t.Error("the run did not end")
	}
	if _, begun := s.begin(id); !begun {
		t.Error("begin did not start a new run after the first had ended")
	}
}

// A replay fetches each queue that the shard has no copy of once. Tasks of queues that are elsewhere by now are skipped, and if that
// can't be determined the step is repeated.
func TestReplayInAShardWithoutTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		asked := map[string]int{}
		refused := map[string]error{}
		ask := func(queue string) error { asked[queue]++; return refused[queue] }
		gone := func() {
			for i, queue := range []string{"a", "a", "b"} {
				w.must(operateTask(ctx, w.Broker, Cancel, w.enqueue(task.Spec{Queue: queue, Key: strings.Repeat("k", i+1)})[0]))
			}
			for _, queue := range []string{"a", "b"} {
				_, err := DropCopy.Call(ctx, w, CopyOf{OnQueue{OnShard{one, ns}, queue}, math.MaxUint64})
				w.must(err)
			}
			clear(asked)
			w.onQueue.Store(&ask)
		}
		step := uint64(0)
		replay := func() (StepAnswer, error) {
			step++
			out, err := RunStep.Call(ctx, w, StepOrder{OnShard{one, ns}, StepCall{Operation: task.NewID(one, 1, 1), Step: step,
				Action: task.Replay, Filter: Filter{States: []task.State{task.Cancelled}}, Count: 10}})
			return out.Step, err
		}
		gone()
		for _, refused["b"] = range []error{task.Unavailable(time.Second, "no leader"), context.DeadlineExceeded, context.Canceled} {
			if got, err := replay(); !errors.Is(err, refused["b"]) || got.Matched != 0 {
				t.Errorf("replay while queue b could not be fetched = %+v, %v", got, err)
			}
		}
		refused["b"] = errors.New("it lies in shard 2")
		clear(asked)
		_, err := DropCopy.Call(ctx, w, CopyOf{OnQueue{OnShard{one, ns}, "a"}, math.MaxUint64})
		w.must(err)
		got, err := replay()
		if err != nil || got.Done != 2 || len(got.Skipped) != 1 || got.Skipped[0] != (Skipped{Reason: task.SkipQueueGone, Count: 1}) {
			t.Errorf("replay while queue b is in another shard = %+v, %v, want 2 done and 1 skipped", got, err)
		}
		if asked["a"] != 1 || asked["b"] != 1 {
			t.Errorf("the queues were fetched %v times, want each once", asked)
		}
		refused["b"] = nil
		if got, err := replay(); err != nil || got.Done != 1 {
			t.Errorf("replay with queue b in this shard = %+v, %v, want 1 done", got, err)
		}
	})
}
