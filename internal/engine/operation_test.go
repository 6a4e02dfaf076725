package engine_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// operationStep starts an operation, does a step of one, or pauses, resumes or aborts one. They are named op1, op2 … in order of creation.
func (s *story) operationStep(d *datadriven.TestData) string {
	if d.Cmd == "operation" {
		return s.startOperation(d)
	}
	id := s.operationID(d.CmdArgs[0].Key)
	by := task.Author{Name: arg(d, "by"), Reason: arg(d, "reason")}
	switch d.Cmd {
	case "step":
		return s.stepOperation(d, id)
	case "pause-operation":
		return s.operationAnswer(engine.Run(s.World, func(r *engine.Round) (*operation.Operation, error) {
			return operation.Pause(r, "default", id, by)
		}))
	case "resume-operation":
		return s.operationAnswer(engine.Run(s.World, func(r *engine.Round) (*operation.Operation, error) {
			return operation.Resume(r, "default", id, by)
		}))
	case "abort-operation":
		return s.operationAnswer(engine.Run(s.World, func(r *engine.Round) (*operation.Operation, error) {
			return operation.Abort(r, "default", id, by)
		}))
	}
	return s.operationAnswer(operation.Show(s.Store, "default", id))
}

func (s *story) startOperation(d *datadriven.TestData) string {
	spec := operation.Spec{Action: task.BulkAction(d.CmdArgs[0].Key), ToQueue: arg(d, "to"), Max: int64(number(arg(d, "max"))),
		Canary: int64(number(arg(d, "canary"))), Filter: query.Filter{Queue: arg(d, "queue"), Type: arg(d, "type"), Key: arg(d, "key"),
			Error: arg(d, "error"), Not: arg(d, "to")},
		Request: task.ID{15: byte(number(arg(d, "request")))}, By: task.Author{Name: arg(d, "by"), Reason: arg(d, "reason")}}
	if spec.Request == (task.ID{}) {
		spec.Request = s.NewID()
	}
	spec.Priority, _ = task.ParsePriority(arg(d, "priority"))
	var asked []task.State
	for _, name := range list(d, "states") {
		state, _ := task.ParseState(name)
		asked = append(asked, state)
	}
	var err error
	if spec.Filter.States, err = spec.Action.Selects(asked); err != nil {
		return answer(err, "")
	}
	o, err := engine.Run(s.World, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Start(r, "default", 0, s.NewID(), spec)
	})
	if err == nil && !slices.Contains(s.operations, o.ID) {
		s.operations = append(s.operations, o.ID)
	}
	return s.operationAnswer(o, err)
}

func (s *story) operationID(name string) task.ID {
	if n := number(strings.TrimPrefix(name, "op")); n >= 1 && n <= len(s.operations) {
		return s.operations[n-1]
	}
	return task.ID{0xff}
}

// stepOperation does the next step, or one of another number. With lost its answer is dropped.
func (s *story) stepOperation(d *datadriven.TestData, id task.ID) string {
	o, err := operation.Show(s.Store, "default", id)
	if err != nil {
		return answer(err, "")
	}
	c := stepCall(s.World, o, int64(max(number(arg(d, "count")), 1)))
	if n := number(arg(d, "number")); n > 0 {
		c.Step = uint64(n)
	}
	a, err := doStep(s.World, c, list(d, "gone"))
	if err != nil {
		return answer(err, "")
	}
	out := fmt.Sprintf("step %d: %s", c.Step, tallyWords(&a.Tally))
	if a.Away > 0 {
		out += fmt.Sprintf(", %d on their way", a.Away)
	}
	if d.HasArg("lost") {
		return out
	}
	return out + "\n" + s.operationAnswer(engine.Run(s.World, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Advanced(r, "default", id, operation.Advance{Shard: o.Shard, Step: c.Step, Answer: a, Failed: arg(d, "failed")})
	}))
}

// stepCall returns the next request of the leader of an operation's home.
func stepCall(w *engine.World, o *operation.Operation, chunk int64) *operation.StepCall {
	return &operation.StepCall{Operation: o.ID, Step: o.Step, Action: o.Spec.Action, Filter: o.In(1), ToQueue: o.Spec.ToQueue,
		Priority: o.Spec.Priority, Cursor: o.Cursor, Swept: o.Swept, Count: o.Wants(chunk)}
}

// doStep does a step. Between its search and its entry, other things may happen.
func doStep(w *engine.World, c *operation.StepCall, gone []string, meanwhile ...func()) (operation.StepAnswer, error) {
	selected, err := operation.SelectStep(w.Store, "default", c)
	switch {
	case err != nil:
		return operation.StepAnswer{}, err
	case selected.Before != nil:
		return *selected.Before, nil
	}
	for _, happens := range meanwhile {
		happens()
	}
	return engine.Run(w, func(r *engine.Round) (operation.StepAnswer, error) {
		return operation.DoStep(r, "default", c, selected, gone)
	})
}

// A move keeps everything that the producer has specified, except for what belongs to the old task, or is over.
func TestMovesKeepTheSpec(t *testing.T) {
	w := engine.NewWorld(t)
	retention := 30 * time.Hour
	was := task.Spec{Type: "job", Payload: []byte("p"), ContentType: "text/plain", Queue: "from", Priority: task.High,
		RunAt: w.Now.Add(time.Hour).Time(), IdempotencyKey: "i", IdempotencyTTL: time.Minute, MaxAttempts: 7,
		Retry: &task.Retry{Initial: time.Second, Factor: 3, Max: time.Hour, Jitter: 0.5}, Timeout: time.Minute, ExpiresIn: 2 * time.Hour,
		ExpiresAlways: true, Retention: &retention, Key: "k", Cost: 9, Tags: []string{"a", "b"}, Headers: map[string]string{"c": "d"},
		Unique: &task.Unique{Key: "u", States: task.Unfinished, OnConflict: task.Reject}, Parent: &task.Parent{ID: w.NewID(),
			Result: []byte("r"), ContentType: "text/html", Omitted: true}}
	dropped := []string{"Queue", "IdempotencyKey", "IdempotencyTTL", // of the old task
		// of its enqueue; a task of a workflow is not moved
		"Delay", "RequestID", "AnyContent", "RequestTTL", "Routed", "Left", "OnlyFind", "OlderKey", "Then", "Member",
		"ExpiresIn", "Moved"} // checked below
	a, err := w.Enqueue(was)
	if err != nil {
		t.Fatal(err)
	}
	w.Now = w.Now.Add(10 * time.Minute)
	o, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
		return operation.Start(r, "default", 0, w.NewID(), operation.Spec{Action: task.Move, ToQueue: "to",
			Filter: query.Filter{Queue: "from",
				Not: "to", States: []task.State{task.Scheduled}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := doStep(w, stepCall(w, o, 1), nil); err != nil {
		t.Fatal(err)
	}
	sent := w.Messages(10)
	if len(sent) != 1 {
		t.Fatalf("%d messages were sent, want 1", len(sent))
	}
	to := sent[0].Spec
	for field, value := range reflect.ValueOf(was).Fields() {
		got := reflect.ValueOf(to).FieldByName(field.Name).Interface()
		switch given := !value.IsZero(); {
		case slices.Contains(dropped, field.Name):
		case !given:
			t.Errorf("the test gives no %s to the task that is moved", field.Name)
		case !reflect.DeepEqual(got, value.Interface()):
			t.Errorf("%s: %v, want %v", field.Name, got, value)
		}
	}
	want := &task.Moved{From: a.ID, Operation: o.ID}
	if to.ExpiresIn != 110*time.Minute || to.Queue != "to" || to.IdempotencyKey != "" || !reflect.DeepEqual(to.Moved, want) {
		t.Errorf("it expires in %s, in queue %q, with idempotency key %q; moved as %+v, want %+v", to.ExpiresIn, to.Queue,
			to.IdempotencyKey, to.Moved, want)
	}
}

func tallyWords(t *operation.Tally) string {
	out := fmt.Sprintf("%d matched, %d done", t.Matched, t.Done)
	for _, k := range t.Skipped {
		out += fmt.Sprintf(", %d skipped as %s", k.Count, k.Reason)
	}
	if t.Failed > 0 {
		out += fmt.Sprintf(", %d failed: %s", t.Failed, t.Errors[0].Message)
	}
	return out
}

func (s *story) operationAnswer(o *operation.Operation, err error) string {
	if err != nil {
		return answer(err, "")
	}
	out := fmt.Sprintf("op%d %s", slices.Index(s.operations, o.ID)+1, o.State)
	if o.Stopping != 0 {
		out += ", about to be " + o.Stopping.String()
	}
	if o.Why != "" {
		out += ": " + o.Why
	}
	if o.StoppedBy.Name != "" {
		out += ", by " + o.StoppedBy.Name
	}
	return out + "; " + tallyWords(&o.Tally)
}

// However steps are lost, repeated, late, paused and resumed, and whoever leads, each task that existed at the start is
// done once or skipped for a reason, and the counts agree.
func TestOperationsCountOnce(t *testing.T) {
	skipped := map[string]bool{}
	for seed := range uint64(60) {
		w := engine.NewWorld(t)
		w.PutQueue("default", task.DefaultSettings(), false)
		w.PutQueue("other", task.DefaultSettings(), false)
		const many = 60
		var ids []task.ID
		for i := range many {
			a, err := w.Enqueue(task.Spec{Type: "job", Queue: "default", Priority: task.Priority(1 + i%3)})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a.ID)
		}
		action := []task.BulkAction{task.Cancel, task.Move, task.SetPriority, task.Discard}[seed%4]
		spec := operation.Spec{Action: action, Filter: query.Filter{Queue: "default"}, ToQueue: "other", Priority: task.Low,
			Request: task.ID{1}}
		spec.Filter.States, _ = action.Selects(nil)
		o, err := engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
			return operation.Start(r, "default", 0, w.NewID(), spec)
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Now++
		var late []*operation.StepCall
		for step := uint64(0); !o.State.Ended(); step++ {
			if step > 5000 {
				t.Fatalf("seed %d: the operation did not end: %+v", seed, o)
			}
			x := task.Mix(seed<<32 | step)
			switch x % 8 {
			case 0:
				w.BecomeLeader()
			case 1: // new tasks are not selected
				if _, err := w.Enqueue(task.Spec{Type: "job", Queue: "default"}); err != nil {
					t.Fatal(err)
				}
			case 2:
				_, _ = engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
					return operation.Pause(r, "default", o.ID, task.Author{})
				})
			case 3:
				_, _ = engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
					return operation.Resume(r, "default", o.ID, task.Author{})
				})
			case 4: // a call that was delayed for long
				if len(late) > 0 {
					c := late[x>>8%uint64(len(late))]
					if _, err := doStep(w, c, nil); err != nil && !errors.Is(err, operation.ErrStepPassed) {
						t.Fatal(err)
					}
				}
			case 5:
				deliverMoved(w, t, x)
			}
			w.Now += 1000
			if o, err = operation.Show(w.Store, "default", o.ID); err != nil {
				t.Fatal(err)
			}
			if o.State != operation.Running {
				continue
			}
			c := stepCall(w, o, int64(1+x>>16%7))
			late = append(late, c)
			if x>>24%4 == 0 { // the leader of its home dies before it asks
				continue
			}
			a, err := doStep(w, c, nil, func() { // another caller is faster
				if x>>32%3 == 0 && action != task.Cancel {
					_, _ = engine.Run(w, func(r *engine.Round) (struct{}, error) {
						return struct{}{}, engine.Cancel(r, "default", ids[x>>8%many])
					})
				}
			})
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, k := range a.Skipped {
				skipped[k.Reason] = true
			}
			if x>>28%3 == 0 { // or before it records the answer
				continue
			}
			for range 1 + x>>40%2 {
				if o, err = engine.Run(w, func(r *engine.Round) (*operation.Operation, error) {
					return operation.Advanced(r, "default", o.ID, operation.Advance{Shard: o.Shard, Step: c.Step, Answer: a})
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range late { // all of them arrive once more
			if _, err := doStep(w, c, nil); err != nil && !errors.Is(err, operation.ErrStepPassed) {
				t.Fatal(err)
			}
		}
		if err := w.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		judgeOperation(w, t, seed, o, ids)
	}
	if !skipped[task.SkipChanged] || !skipped[task.SkipSame] {
		t.Errorf("tasks were skipped only as %v", skipped)
	}
}

// deliverMoved delivers some messages to their queue, some of them twice.
func deliverMoved(w *engine.World, t *testing.T, x uint64) {
	for _, p := range w.Messages(10) {
		var a engine.Accepted
		for range 1 + x%2 {
			var err error
			if a, err = w.Enqueue(p.Spec); err != nil {
				t.Fatal(err)
			}
		}
		w.Round(func(r *engine.Round) { engine.Delivered(r, "default", p.Request, a, nil) })
	}
}

// judgeOperation compares the counts of an operation with the tasks: those that existed at its start, and those that it created.
func judgeOperation(w *engine.World, t *testing.T, seed uint64, o *operation.Operation, ids []task.ID) {
	done := changedBy(w, t, seed, o, ids)
	page, err := query.List(w.Store, "default", query.Filter{Queue: "other"}, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if o.State != operation.Done || done != o.Done || o.Matched != o.Done+o.SkippedCount() ||
		o.Spec.Action == task.Move && int64(len(page.Tasks)) != done || o.Spec.Action == task.Cancel && o.Done != int64(len(ids)) {
		t.Errorf("seed %d: %s changed %d tasks, %d arrived in the other queue, the counts are %+v", seed, o.Spec.Action, done,
			len(page.Tasks), o.Tally)
	}
}

// changedBy returns how many tasks of a shard an operation has changed, of those that existed at its start.
func changedBy(w *engine.World, t *testing.T, seed uint64, o *operation.Operation, ids []task.ID) int64 {
	for len(w.Messages(1)) > 0 {
		t.Fatalf("seed %d: operation %s is %s, but messages are undelivered", seed, o.ID, o.State)
	}
	var done int64
	count := func(as bool) {
		if as {
			done++
		}
	}
	for i, id := range ids {
		x, err := schema.ReadExec(w.Store, "default", id)
		if err != nil {
			t.Fatal(err)
		}
		switch o.Spec.Action {
		case task.Cancel:
			count(x.State == task.Cancelled)
		case task.Discard:
			count(x.Reason == task.ReasonOperator)
		case task.SetPriority:
			count(x.Priority == task.Low && task.Priority(1+i%3) != task.Low)
		case task.Move:
			if x.Reason == task.ReasonMoved {
				done++
				if v, err := query.Show(w.Store, "default", x.MovedTo); err != nil || v.MovedFrom != id || v.Queue != "other" ||
					v.Exec.State != task.Ready {
					t.Errorf("seed %d: task %s was moved to %+v, %v", seed, id, v, err)
				}
			}
		}
	}
	return done
}
